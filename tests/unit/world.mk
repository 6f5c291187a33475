check_PROGRAMS += tests/unit/world_test
tests_unit_world_test_SOURCES = tests/unit/world_test.c
tests_unit_world_test_LDADD = $(test_ldadd)
