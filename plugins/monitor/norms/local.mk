plugin_LTLIBRARIES += plugins/monitor_norms.la
plugins_monitor_norms_la_SOURCES = %D%/norms.c
plugins_monitor_norms_la_LDFLAGS = $(plugin_ldflags)
plugins_monitor_norms_la_LIBADD = -lm

check_PROGRAMS += plugins/monitor/norms/norms_test
plugins_monitor_norms_norms_test_SOURCES = %D%/norms_test.c $(plugin_test_sources)
plugins_monitor_norms_norms_test_LDADD = $(test_ldadd)
