plugin_LTLIBRARIES += plugins/precision_fp32.la
plugins_precision_fp32_la_SOURCES = %D%/fp32.c
plugins_precision_fp32_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/precision/fp32/fp32_test
plugins_precision_fp32_fp32_test_SOURCES = %D%/fp32_test.c $(plugin_test_sources)
plugins_precision_fp32_fp32_test_LDADD = $(test_ldadd)
