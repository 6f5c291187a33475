plugin_LTLIBRARIES += plugins/regularizer_norm_softmax.la
plugins_regularizer_norm_softmax_la_SOURCES = %D%/norm_softmax.c
plugins_regularizer_norm_softmax_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/norm_softmax/norm_softmax_test
plugins_regularizer_norm_softmax_norm_softmax_test_SOURCES = %D%/norm_softmax_test.c $(plugin_test_sources)
plugins_regularizer_norm_softmax_norm_softmax_test_LDADD = $(test_ldadd)
