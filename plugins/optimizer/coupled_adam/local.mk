# The update loops are vectorised at any -O level; neither flag changes a result.
plugin_LTLIBRARIES += plugins/optimizer_coupled_adam.la
plugins_optimizer_coupled_adam_la_SOURCES = %D%/coupled_adam.c plugins/optimizer/adam.h plugins/optimizer/isa.h
plugins_optimizer_coupled_adam_la_CFLAGS = $(AM_CFLAGS) -fopenmp-simd -fno-math-errno
plugins_optimizer_coupled_adam_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizer_coupled_adam_la_LIBADD = -lm

check_PROGRAMS += plugins/optimizer/coupled_adam/coupled_adam_test
plugins_optimizer_coupled_adam_coupled_adam_test_SOURCES = %D%/coupled_adam_test.c %D%/../matrix_test.h $(plugin_test_sources)
plugins_optimizer_coupled_adam_coupled_adam_test_LDADD = $(test_ldadd)
