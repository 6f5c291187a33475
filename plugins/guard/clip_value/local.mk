plugin_LTLIBRARIES += plugins/guard_clip_value.la
plugins_guard_clip_value_la_SOURCES = %D%/clip_value.c %D%/../blocks.h
plugins_guard_clip_value_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/guard/clip_value/clip_value_test
plugins_guard_clip_value_clip_value_test_SOURCES = %D%/clip_value_test.c $(plugin_test_sources)
plugins_guard_clip_value_clip_value_test_LDADD = $(test_ldadd)
