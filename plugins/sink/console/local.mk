plugin_LTLIBRARIES += plugins/sink_console.la
plugins_sink_console_la_SOURCES = %D%/console.c
plugins_sink_console_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/sink/console/console_test
plugins_sink_console_console_test_SOURCES = %D%/console_test.c $(plugin_test_sources)
plugins_sink_console_console_test_LDADD = $(test_ldadd)
