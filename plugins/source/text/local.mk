plugin_LTLIBRARIES += plugins/source_text.la
plugins_source_text_la_SOURCES = \
    %D%/text.c plugins/source/tokens/shards.c plugins/source/tokens/shards.h \
    trainer/data/shard_format.c trainer/data/shard_format.h
plugins_source_text_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/source/text/text_test
plugins_source_text_text_test_SOURCES = %D%/text_test.c $(plugin_test_sources)
plugins_source_text_text_test_LDADD = $(test_ldadd)
