plugin_LTLIBRARIES += plugins/guard_adagc.la
plugins_guard_adagc_la_SOURCES = %D%/adagc.c %D%/../blocks.h
plugins_guard_adagc_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/guard/adagc/adagc_test
plugins_guard_adagc_adagc_test_SOURCES = %D%/adagc_test.c $(plugin_test_sources)
plugins_guard_adagc_adagc_test_LDADD = $(test_ldadd)
