plugin_LTLIBRARIES += plugins/regularizer_head_centering.la
plugins_regularizer_head_centering_la_SOURCES = %D%/head_centering.c %D%/../columns.h
plugins_regularizer_head_centering_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/head_centering/head_centering_test
plugins_regularizer_head_centering_head_centering_test_SOURCES = %D%/head_centering_test.c $(plugin_test_sources)
plugins_regularizer_head_centering_head_centering_test_LDADD = $(test_ldadd)
