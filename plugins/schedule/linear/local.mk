plugin_LTLIBRARIES += plugins/schedule_linear.la
plugins_schedule_linear_la_SOURCES = %D%/linear.c
plugins_schedule_linear_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/schedule/linear/linear_test
plugins_schedule_linear_linear_test_SOURCES = %D%/linear_test.c $(plugin_test_sources)
plugins_schedule_linear_linear_test_LDADD = $(test_ldadd)
