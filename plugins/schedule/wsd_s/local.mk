plugin_LTLIBRARIES += plugins/schedule_wsd_s.la
plugins_schedule_wsd_s_la_SOURCES = %D%/wsd_s.c
plugins_schedule_wsd_s_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/schedule/wsd_s/wsd_s_test
plugins_schedule_wsd_s_wsd_s_test_SOURCES = %D%/wsd_s_test.c $(plugin_test_sources)
plugins_schedule_wsd_s_wsd_s_test_LDADD = $(test_ldadd)
