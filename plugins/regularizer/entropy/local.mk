plugin_LTLIBRARIES += plugins/regularizer_entropy.la
plugins_regularizer_entropy_la_SOURCES = %D%/entropy.c
plugins_regularizer_entropy_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/entropy/entropy_test
plugins_regularizer_entropy_entropy_test_SOURCES = %D%/entropy_test.c $(plugin_test_sources)
plugins_regularizer_entropy_entropy_test_LDADD = $(test_ldadd)
