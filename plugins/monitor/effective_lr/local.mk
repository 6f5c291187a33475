plugin_LTLIBRARIES += plugins/monitor_effective_lr.la
plugins_monitor_effective_lr_la_SOURCES = %D%/effective_lr.c
plugins_monitor_effective_lr_la_LDFLAGS = $(plugin_ldflags)
plugins_monitor_effective_lr_la_LIBADD = -lm

check_PROGRAMS += plugins/monitor/effective_lr/effective_lr_test
plugins_monitor_effective_lr_effective_lr_test_SOURCES = %D%/effective_lr_test.c $(plugin_test_sources)
plugins_monitor_effective_lr_effective_lr_test_LDADD = $(test_ldadd)
