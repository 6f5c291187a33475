check_PROGRAMS += tests/unit/prefetch_test
tests_unit_prefetch_test_SOURCES = tests/unit/prefetch_test.c
tests_unit_prefetch_test_LDADD = $(test_ldadd)
