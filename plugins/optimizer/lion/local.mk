# The update loops are vectorised at any -O level; neither flag changes a result.
plugin_LTLIBRARIES += plugins/optimizer_lion.la
plugins_optimizer_lion_la_SOURCES = %D%/lion.c plugins/optimizer/isa.h
plugins_optimizer_lion_la_CFLAGS = $(AM_CFLAGS) -fopenmp-simd -fno-math-errno
plugins_optimizer_lion_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizer_lion_la_LIBADD = -lm

check_PROGRAMS += plugins/optimizer/lion/lion_test
plugins_optimizer_lion_lion_test_SOURCES = %D%/lion_test.c %D%/../matrix_test.h $(plugin_test_sources)
plugins_optimizer_lion_lion_test_LDADD = $(test_ldadd)
