# Code that tests share; part of $(test_ldadd).
check_LTLIBRARIES += tests/lib/libtest.la
tests_lib_libtest_la_SOURCES = %D%/alone.h %D%/checkpoint.h %D%/plugin_test.c \
	%D%/plugin_test.h %D%/precision_test.c %D%/regularizer_test.c

# What the test of a plugin lists among its sources.
plugin_test_sources = tests/lib/plugin_test.h
