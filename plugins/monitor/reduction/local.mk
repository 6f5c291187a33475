plugin_LTLIBRARIES += plugins/monitor_reduction.la
plugins_monitor_reduction_la_SOURCES = %D%/reduction.c
plugins_monitor_reduction_la_LDFLAGS = $(plugin_ldflags)
plugins_monitor_reduction_la_LIBADD = -lm

check_PROGRAMS += plugins/monitor/reduction/reduction_test
plugins_monitor_reduction_reduction_test_SOURCES = %D%/reduction_test.c $(plugin_test_sources)
plugins_monitor_reduction_reduction_test_LDADD = $(test_ldadd)
