check_PROGRAMS += tests/unit/replicas_test
tests_unit_replicas_test_SOURCES = tests/unit/replicas_test.c
tests_unit_replicas_test_LDADD = $(test_ldadd)
