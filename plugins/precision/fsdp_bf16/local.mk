plugin_LTLIBRARIES += plugins/precision_fsdp_bf16.la
plugins_precision_fsdp_bf16_la_SOURCES = %D%/fsdp_bf16.c %D%/../mixed_table.h
plugins_precision_fsdp_bf16_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/precision/fsdp_bf16/fsdp_bf16_test
plugins_precision_fsdp_bf16_fsdp_bf16_test_SOURCES = %D%/fsdp_bf16_test.c $(plugin_test_sources)
plugins_precision_fsdp_bf16_fsdp_bf16_test_LDADD = $(test_ldadd)
