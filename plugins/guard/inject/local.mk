plugin_LTLIBRARIES += plugins/guard_inject.la
plugins_guard_inject_la_SOURCES = %D%/inject.c %D%/../blocks.h
plugins_guard_inject_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/guard/inject/inject_test
plugins_guard_inject_inject_test_SOURCES = %D%/inject_test.c $(plugin_test_sources)
plugins_guard_inject_inject_test_LDADD = $(test_ldadd)
