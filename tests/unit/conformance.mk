check_PROGRAMS += tests/unit/conformance_test
tests_unit_conformance_test_SOURCES = tests/unit/conformance_test.c
tests_unit_conformance_test_LDADD = $(test_ldadd)
