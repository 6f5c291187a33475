# The update loops are vectorised at any -O level; neither flag changes a result.
plugin_LTLIBRARIES += plugins/optimizer_adamc.la
plugins_optimizer_adamc_la_SOURCES = %D%/adamc.c plugins/optimizer/adam.h plugins/optimizer/isa.h
plugins_optimizer_adamc_la_CFLAGS = $(AM_CFLAGS) -fopenmp-simd -fno-math-errno
plugins_optimizer_adamc_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizer_adamc_la_LIBADD = -lm

check_PROGRAMS += plugins/optimizer/adamc/adamc_test
plugins_optimizer_adamc_adamc_test_SOURCES = %D%/adamc_test.c %D%/../matrix_test.h $(plugin_test_sources)
plugins_optimizer_adamc_adamc_test_LDADD = $(test_ldadd)
