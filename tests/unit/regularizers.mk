check_PROGRAMS += tests/unit/regularizers_test
tests_unit_regularizers_test_SOURCES = tests/unit/regularizers_test.c
tests_unit_regularizers_test_LDADD = $(test_ldadd)
