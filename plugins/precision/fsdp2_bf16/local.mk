plugin_LTLIBRARIES += plugins/precision_fsdp2_bf16.la
plugins_precision_fsdp2_bf16_la_SOURCES = %D%/fsdp2_bf16.c %D%/../mixed_table.h
plugins_precision_fsdp2_bf16_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/precision/fsdp2_bf16/fsdp2_bf16_test
plugins_precision_fsdp2_bf16_fsdp2_bf16_test_SOURCES = %D%/fsdp2_bf16_test.c $(plugin_test_sources)
plugins_precision_fsdp2_bf16_fsdp2_bf16_test_LDADD = $(test_ldadd)
