plugin_LTLIBRARIES += plugins/tokenizer_bytes.la
plugins_tokenizer_bytes_la_SOURCES = %D%/bytes.c
plugins_tokenizer_bytes_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/tokenizer/bytes/bytes_test
plugins_tokenizer_bytes_bytes_test_SOURCES = %D%/bytes_test.c $(plugin_test_sources)
plugins_tokenizer_bytes_bytes_test_LDADD = $(test_ldadd)
