plugin_LTLIBRARIES += plugins/regularizer_logit_penalty.la
plugins_regularizer_logit_penalty_la_SOURCES = %D%/logit_penalty.c
plugins_regularizer_logit_penalty_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/logit_penalty/logit_penalty_test
plugins_regularizer_logit_penalty_logit_penalty_test_SOURCES = %D%/logit_penalty_test.c $(plugin_test_sources)
plugins_regularizer_logit_penalty_logit_penalty_test_LDADD = $(test_ldadd)
