plugin_LTLIBRARIES += plugins/precision_bf16_wire_fp32_sum.la
plugins_precision_bf16_wire_fp32_sum_la_SOURCES = %D%/bf16_wire_fp32_sum.c %D%/../mixed_table.h
plugins_precision_bf16_wire_fp32_sum_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/precision/bf16_wire_fp32_sum/bf16_wire_fp32_sum_test
plugins_precision_bf16_wire_fp32_sum_bf16_wire_fp32_sum_test_SOURCES = %D%/bf16_wire_fp32_sum_test.c $(plugin_test_sources)
plugins_precision_bf16_wire_fp32_sum_bf16_wire_fp32_sum_test_LDADD = $(test_ldadd)
