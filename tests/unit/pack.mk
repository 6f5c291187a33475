check_PROGRAMS += tests/unit/pack_test
tests_unit_pack_test_SOURCES = tests/unit/pack_test.c
tests_unit_pack_test_LDADD = $(test_ldadd)
