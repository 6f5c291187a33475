# The update loops are vectorised at any -O level; neither flag changes a result.
plugin_LTLIBRARIES += plugins/optimizer_stable_adamw.la
plugins_optimizer_stable_adamw_la_SOURCES = %D%/stable_adamw.c plugins/optimizer/adam.h plugins/optimizer/isa.h
plugins_optimizer_stable_adamw_la_CFLAGS = $(AM_CFLAGS) -fopenmp-simd -fno-math-errno
plugins_optimizer_stable_adamw_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizer_stable_adamw_la_LIBADD = -lm

check_PROGRAMS += plugins/optimizer/stable_adamw/stable_adamw_test
plugins_optimizer_stable_adamw_stable_adamw_test_SOURCES = %D%/stable_adamw_test.c %D%/../matrix_test.h $(plugin_test_sources)
plugins_optimizer_stable_adamw_stable_adamw_test_LDADD = $(test_ldadd)
