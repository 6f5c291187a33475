plugin_LTLIBRARIES += plugins/guard_clip_update_norm.la
plugins_guard_clip_update_norm_la_SOURCES = %D%/clip_update_norm.c
plugins_guard_clip_update_norm_la_LDFLAGS = $(plugin_ldflags)
plugins_guard_clip_update_norm_la_LIBADD = -lm

check_PROGRAMS += plugins/guard/clip_update_norm/clip_update_norm_test
plugins_guard_clip_update_norm_clip_update_norm_test_SOURCES = %D%/clip_update_norm_test.c $(plugin_test_sources)
plugins_guard_clip_update_norm_clip_update_norm_test_LDADD = $(test_ldadd)
