check_PROGRAMS += tests/unit/shards_test
tests_unit_shards_test_SOURCES = tests/unit/shards_test.c
tests_unit_shards_test_LDADD = $(test_ldadd)
