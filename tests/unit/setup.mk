check_PROGRAMS += tests/unit/setup_test
tests_unit_setup_test_SOURCES = tests/unit/setup_test.c
tests_unit_setup_test_LDADD = $(test_ldadd)
