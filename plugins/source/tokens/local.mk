plugin_LTLIBRARIES += plugins/source_tokens.la
plugins_source_tokens_la_SOURCES = \
    %D%/shards.c %D%/shards.h %D%/tokens.c trainer/data/shard_format.c trainer/data/shard_format.h
plugins_source_tokens_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/source/tokens/tokens_test
plugins_source_tokens_tokens_test_SOURCES = %D%/tokens_test.c $(plugin_test_sources)
plugins_source_tokens_tokens_test_LDADD = $(test_ldadd)
