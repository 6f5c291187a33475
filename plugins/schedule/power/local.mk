plugin_LTLIBRARIES += plugins/schedule_power.la
plugins_schedule_power_la_SOURCES = %D%/power.c
plugins_schedule_power_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/schedule/power/power_test
plugins_schedule_power_power_test_SOURCES = %D%/power_test.c $(plugin_test_sources)
plugins_schedule_power_power_test_LDADD = $(test_ldadd)
