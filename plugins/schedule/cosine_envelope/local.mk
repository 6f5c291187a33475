plugin_LTLIBRARIES += plugins/schedule_cosine_envelope.la
plugins_schedule_cosine_envelope_la_SOURCES = %D%/cosine_envelope.c
plugins_schedule_cosine_envelope_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/schedule/cosine_envelope/cosine_envelope_test
plugins_schedule_cosine_envelope_cosine_envelope_test_SOURCES = %D%/cosine_envelope_test.c $(plugin_test_sources)
plugins_schedule_cosine_envelope_cosine_envelope_test_LDADD = $(test_ldadd)
