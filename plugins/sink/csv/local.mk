plugin_LTLIBRARIES += plugins/sink_csv.la
plugins_sink_csv_la_SOURCES = %D%/csv.c plugins/sink/lines.h
plugins_sink_csv_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/sink/csv/csv_test
plugins_sink_csv_csv_test_SOURCES = %D%/csv_test.c $(plugin_test_sources)
plugins_sink_csv_csv_test_LDADD = $(test_ldadd)
