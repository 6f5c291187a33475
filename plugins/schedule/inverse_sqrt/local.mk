plugin_LTLIBRARIES += plugins/schedule_inverse_sqrt.la
plugins_schedule_inverse_sqrt_la_SOURCES = %D%/inverse_sqrt.c
plugins_schedule_inverse_sqrt_la_LDFLAGS = $(plugin_ldflags)
plugins_schedule_inverse_sqrt_la_LIBADD = -lm

check_PROGRAMS += plugins/schedule/inverse_sqrt/inverse_sqrt_test
plugins_schedule_inverse_sqrt_inverse_sqrt_test_SOURCES = %D%/inverse_sqrt_test.c $(plugin_test_sources)
plugins_schedule_inverse_sqrt_inverse_sqrt_test_LDADD = $(test_ldadd)
