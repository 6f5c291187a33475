# Stored formats: master and moments in bf16.
check_PROGRAMS += tests/unit/pure_bf16_test
tests_unit_pure_bf16_test_SOURCES = tests/unit/pure_bf16_test.c $(plugin_test_sources)
tests_unit_pure_bf16_test_LDADD = $(test_ldadd)
