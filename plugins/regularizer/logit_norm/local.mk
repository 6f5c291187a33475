plugin_LTLIBRARIES += plugins/regularizer_logit_norm.la
plugins_regularizer_logit_norm_la_SOURCES = %D%/logit_norm.c
plugins_regularizer_logit_norm_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/logit_norm/logit_norm_test
plugins_regularizer_logit_norm_logit_norm_test_SOURCES = %D%/logit_norm_test.c $(plugin_test_sources)
plugins_regularizer_logit_norm_logit_norm_test_LDADD = $(test_ldadd)
