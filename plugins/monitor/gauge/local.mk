plugin_LTLIBRARIES += plugins/monitor_gauge.la
plugins_monitor_gauge_la_SOURCES = %D%/gauge.c
plugins_monitor_gauge_la_LDFLAGS = $(plugin_ldflags)
plugins_monitor_gauge_la_LIBADD = -lm

check_PROGRAMS += plugins/monitor/gauge/gauge_test
plugins_monitor_gauge_gauge_test_SOURCES = %D%/gauge_test.c $(plugin_test_sources)
plugins_monitor_gauge_gauge_test_LDADD = $(test_ldadd)
