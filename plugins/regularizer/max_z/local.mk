plugin_LTLIBRARIES += plugins/regularizer_max_z.la
plugins_regularizer_max_z_la_SOURCES = %D%/max_z.c
plugins_regularizer_max_z_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/max_z/max_z_test
plugins_regularizer_max_z_max_z_test_SOURCES = %D%/max_z_test.c $(plugin_test_sources)
plugins_regularizer_max_z_max_z_test_LDADD = $(test_ldadd)
