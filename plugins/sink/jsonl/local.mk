plugin_LTLIBRARIES += plugins/sink_jsonl.la
plugins_sink_jsonl_la_SOURCES = %D%/jsonl.c plugins/sink/lines.h
plugins_sink_jsonl_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/sink/jsonl/jsonl_test
plugins_sink_jsonl_jsonl_test_SOURCES = %D%/jsonl_test.c $(plugin_test_sources)
plugins_sink_jsonl_jsonl_test_LDADD = $(test_ldadd)
