# The update loops are vectorised at any -O level; neither flag changes a result.
plugin_LTLIBRARIES += plugins/optimizer_adamw.la
plugins_optimizer_adamw_la_SOURCES = %D%/adamw.c plugins/optimizer/adam.h plugins/optimizer/isa.h
plugins_optimizer_adamw_la_CFLAGS = $(AM_CFLAGS) -fopenmp-simd -fno-math-errno
plugins_optimizer_adamw_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizer_adamw_la_LIBADD = -lm

check_PROGRAMS += plugins/optimizer/adamw/adamw_test
plugins_optimizer_adamw_adamw_test_SOURCES = %D%/adamw_test.c $(plugin_test_sources)
plugins_optimizer_adamw_adamw_test_LDADD = $(test_ldadd)
