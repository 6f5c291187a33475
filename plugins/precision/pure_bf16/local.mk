plugin_LTLIBRARIES += plugins/precision_pure_bf16.la
plugins_precision_pure_bf16_la_SOURCES = %D%/pure_bf16.c %D%/../mixed_table.h
plugins_precision_pure_bf16_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/precision/pure_bf16/pure_bf16_test
plugins_precision_pure_bf16_pure_bf16_test_SOURCES = %D%/pure_bf16_test.c $(plugin_test_sources)
plugins_precision_pure_bf16_pure_bf16_test_LDADD = $(test_ldadd)
