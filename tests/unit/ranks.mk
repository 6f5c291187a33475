check_PROGRAMS += tests/unit/ranks_test
tests_unit_ranks_test_SOURCES = tests/unit/ranks_test.c
tests_unit_ranks_test_LDADD = $(test_ldadd)
