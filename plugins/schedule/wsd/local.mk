plugin_LTLIBRARIES += plugins/schedule_wsd.la
plugins_schedule_wsd_la_SOURCES = %D%/wsd.c
plugins_schedule_wsd_la_LDFLAGS = $(plugin_ldflags)
plugins_schedule_wsd_la_LIBADD = -lm

check_PROGRAMS += plugins/schedule/wsd/wsd_test
plugins_schedule_wsd_wsd_test_SOURCES = %D%/wsd_test.c $(plugin_test_sources)
plugins_schedule_wsd_wsd_test_LDADD = $(test_ldadd)
