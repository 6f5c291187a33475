plugin_LTLIBRARIES += plugins/schedule_rex.la
plugins_schedule_rex_la_SOURCES = %D%/rex.c
plugins_schedule_rex_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/schedule/rex/rex_test
plugins_schedule_rex_rex_test_SOURCES = %D%/rex_test.c $(plugin_test_sources)
plugins_schedule_rex_rex_test_LDADD = $(test_ldadd)
