plugin_LTLIBRARIES += plugins/precision_mixed.la
plugins_precision_mixed_la_SOURCES = %D%/mixed.c %D%/../mixed_table.h
plugins_precision_mixed_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/precision/mixed/mixed_test
plugins_precision_mixed_mixed_test_SOURCES = %D%/mixed_test.c $(plugin_test_sources)
plugins_precision_mixed_mixed_test_LDADD = $(test_ldadd)
