plugin_LTLIBRARIES += plugins/regularizer_mean_logit.la
plugins_regularizer_mean_logit_la_SOURCES = %D%/mean_logit.c
plugins_regularizer_mean_logit_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/mean_logit/mean_logit_test
plugins_regularizer_mean_logit_mean_logit_test_SOURCES = %D%/mean_logit_test.c $(plugin_test_sources)
plugins_regularizer_mean_logit_mean_logit_test_LDADD = $(test_ldadd)
