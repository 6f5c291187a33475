plugin_LTLIBRARIES += plugins/monitor_logits.la
plugins_monitor_logits_la_SOURCES = %D%/logits.c
plugins_monitor_logits_la_LDFLAGS = $(plugin_ldflags)
plugins_monitor_logits_la_LIBADD = -lm

check_PROGRAMS += plugins/monitor/logits/logits_test
plugins_monitor_logits_logits_test_SOURCES = %D%/logits_test.c $(plugin_test_sources)
plugins_monitor_logits_logits_test_LDADD = $(test_ldadd)
