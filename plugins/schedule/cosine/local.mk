plugin_LTLIBRARIES += plugins/schedule_cosine.la
plugins_schedule_cosine_la_SOURCES = %D%/cosine.c
plugins_schedule_cosine_la_LDFLAGS = $(plugin_ldflags)
plugins_schedule_cosine_la_LIBADD = -lm

check_PROGRAMS += plugins/schedule/cosine/cosine_test
plugins_schedule_cosine_cosine_test_SOURCES = %D%/cosine_test.c $(plugin_test_sources)
plugins_schedule_cosine_cosine_test_LDADD = $(test_ldadd)
