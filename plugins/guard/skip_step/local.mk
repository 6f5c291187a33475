plugin_LTLIBRARIES += plugins/guard_skip_step.la
plugins_guard_skip_step_la_SOURCES = %D%/skip_step.c
plugins_guard_skip_step_la_LDFLAGS = $(plugin_ldflags)
plugins_guard_skip_step_la_LIBADD = -lm

check_PROGRAMS += plugins/guard/skip_step/skip_step_test
plugins_guard_skip_step_skip_step_test_SOURCES = %D%/skip_step_test.c $(plugin_test_sources)
plugins_guard_skip_step_skip_step_test_LDADD = $(test_ldadd)
