plugin_LTLIBRARIES += plugins/schedule_linear_to_zero.la
plugins_schedule_linear_to_zero_la_SOURCES = %D%/linear_to_zero.c
plugins_schedule_linear_to_zero_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/schedule/linear_to_zero/linear_to_zero_test
plugins_schedule_linear_to_zero_linear_to_zero_test_SOURCES = %D%/linear_to_zero_test.c $(plugin_test_sources)
plugins_schedule_linear_to_zero_linear_to_zero_test_LDADD = $(test_ldadd)
