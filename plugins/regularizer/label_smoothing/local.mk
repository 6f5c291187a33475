plugin_LTLIBRARIES += plugins/regularizer_label_smoothing.la
plugins_regularizer_label_smoothing_la_SOURCES = %D%/label_smoothing.c
plugins_regularizer_label_smoothing_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/label_smoothing/label_smoothing_test
plugins_regularizer_label_smoothing_label_smoothing_test_SOURCES = %D%/label_smoothing_test.c $(plugin_test_sources)
plugins_regularizer_label_smoothing_label_smoothing_test_LDADD = $(test_ldadd)
