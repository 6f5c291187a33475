plugin_LTLIBRARIES += plugins/regularizer_logit_softcap.la
plugins_regularizer_logit_softcap_la_SOURCES = %D%/logit_softcap.c
plugins_regularizer_logit_softcap_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/logit_softcap/logit_softcap_test
plugins_regularizer_logit_softcap_logit_softcap_test_SOURCES = %D%/logit_softcap_test.c $(plugin_test_sources)
plugins_regularizer_logit_softcap_logit_softcap_test_LDADD = $(test_ldadd)
