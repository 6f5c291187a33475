plugin_LTLIBRARIES += plugins/schedule_piecewise.la
plugins_schedule_piecewise_la_SOURCES = %D%/piecewise.c
plugins_schedule_piecewise_la_LDFLAGS = $(plugin_ldflags)
plugins_schedule_piecewise_la_LIBADD = -lm

check_PROGRAMS += plugins/schedule/piecewise/piecewise_test
plugins_schedule_piecewise_piecewise_test_SOURCES = %D%/piecewise_test.c $(plugin_test_sources)
plugins_schedule_piecewise_piecewise_test_LDADD = $(test_ldadd)
