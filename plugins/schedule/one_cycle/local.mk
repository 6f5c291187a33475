plugin_LTLIBRARIES += plugins/schedule_one_cycle.la
plugins_schedule_one_cycle_la_SOURCES = %D%/one_cycle.c
plugins_schedule_one_cycle_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/schedule/one_cycle/one_cycle_test
plugins_schedule_one_cycle_one_cycle_test_SOURCES = %D%/one_cycle_test.c $(plugin_test_sources)
plugins_schedule_one_cycle_one_cycle_test_LDADD = $(test_ldadd)
