check_PROGRAMS += tests/unit/update_test tests/unit/reduce_test
tests_unit_update_test_SOURCES = tests/unit/update_test.c $(plugin_test_sources)
tests_unit_update_test_LDADD = $(test_ldadd)
tests_unit_reduce_test_SOURCES = tests/unit/reduce_test.c $(sum_reference)
tests_unit_reduce_test_LDADD = $(test_ldadd)
check_PROGRAMS += tests/unit/update_shards_test
tests_unit_update_shards_test_SOURCES = tests/unit/update_shards_test.c $(plugin_test_sources)
tests_unit_update_shards_test_LDADD = $(test_ldadd)
