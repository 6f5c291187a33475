# The update loops are vectorised at any -O level; neither flag changes a result.
plugin_LTLIBRARIES += plugins/optimizer_sgd.la
plugins_optimizer_sgd_la_SOURCES = %D%/sgd.c plugins/optimizer/isa.h
plugins_optimizer_sgd_la_CFLAGS = $(AM_CFLAGS) -fopenmp-simd -fno-math-errno
plugins_optimizer_sgd_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizer_sgd_la_LIBADD = -lm

check_PROGRAMS += plugins/optimizer/sgd/sgd_test
plugins_optimizer_sgd_sgd_test_SOURCES = %D%/sgd_test.c $(plugin_test_sources)
plugins_optimizer_sgd_sgd_test_LDADD = $(test_ldadd)
