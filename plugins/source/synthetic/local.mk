plugin_LTLIBRARIES += plugins/source_synthetic.la
plugins_source_synthetic_la_SOURCES = %D%/process.c %D%/process.h %D%/synthetic.c
plugins_source_synthetic_la_LDFLAGS = $(plugin_ldflags)

# CFLAGS of its own: process.c is then another object than the plugin's libtool object.
check_PROGRAMS += plugins/source/synthetic/synthetic_test
plugins_source_synthetic_synthetic_test_SOURCES = \
    %D%/synthetic_test.c %D%/process.c $(plugin_test_sources)
plugins_source_synthetic_synthetic_test_CFLAGS = $(AM_CFLAGS)
plugins_source_synthetic_synthetic_test_LDADD = $(test_ldadd)
