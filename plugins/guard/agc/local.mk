plugin_LTLIBRARIES += plugins/guard_agc.la
plugins_guard_agc_la_SOURCES = %D%/agc.c %D%/../blocks.h
plugins_guard_agc_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/guard/agc/agc_test
plugins_guard_agc_agc_test_SOURCES = %D%/agc_test.c $(plugin_test_sources)
plugins_guard_agc_agc_test_LDADD = $(test_ldadd)
