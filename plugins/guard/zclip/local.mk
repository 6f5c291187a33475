plugin_LTLIBRARIES += plugins/guard_zclip.la
plugins_guard_zclip_la_SOURCES = %D%/zclip.c %D%/../blocks.h
plugins_guard_zclip_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/guard/zclip/zclip_test
plugins_guard_zclip_zclip_test_SOURCES = %D%/zclip_test.c $(plugin_test_sources)
plugins_guard_zclip_zclip_test_LDADD = $(test_ldadd)
