plugin_LTLIBRARIES += plugins/schedule_constant.la
plugins_schedule_constant_la_SOURCES = %D%/constant.c
plugins_schedule_constant_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/schedule/constant/constant_test
plugins_schedule_constant_constant_test_SOURCES = %D%/constant_test.c $(plugin_test_sources)
plugins_schedule_constant_constant_test_LDADD = $(test_ldadd)
