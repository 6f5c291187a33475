plugin_LTLIBRARIES += plugins/regularizer_mu_centering.la
plugins_regularizer_mu_centering_la_SOURCES = %D%/mu_centering.c %D%/../columns.h
plugins_regularizer_mu_centering_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/mu_centering/mu_centering_test
plugins_regularizer_mu_centering_mu_centering_test_SOURCES = %D%/mu_centering_test.c $(plugin_test_sources)
plugins_regularizer_mu_centering_mu_centering_test_LDADD = $(test_ldadd)
