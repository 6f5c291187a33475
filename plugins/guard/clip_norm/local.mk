plugin_LTLIBRARIES += plugins/guard_clip_norm.la
plugins_guard_clip_norm_la_SOURCES = %D%/clip_norm.c
plugins_guard_clip_norm_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/guard/clip_norm/clip_norm_test
plugins_guard_clip_norm_clip_norm_test_SOURCES = %D%/clip_norm_test.c $(plugin_test_sources)
plugins_guard_clip_norm_clip_norm_test_LDADD = $(test_ldadd)
