plugin_LTLIBRARIES += plugins/monitor_embedding_health.la
plugins_monitor_embedding_health_la_SOURCES = %D%/embedding_health.c
plugins_monitor_embedding_health_la_LDFLAGS = $(plugin_ldflags)
plugins_monitor_embedding_health_la_LIBADD = -lm

check_PROGRAMS += plugins/monitor/embedding_health/embedding_health_test
plugins_monitor_embedding_health_embedding_health_test_SOURCES = %D%/embedding_health_test.c $(plugin_test_sources)
plugins_monitor_embedding_health_embedding_health_test_LDADD = $(test_ldadd)
