check_PROGRAMS += tests/unit/checkpoint_test tests/unit/data_test tests/unit/metrics_test \
    tests/unit/safetensors_test
tests_unit_checkpoint_test_SOURCES = tests/unit/checkpoint_test.c
tests_unit_checkpoint_test_LDADD = $(test_ldadd)
tests_unit_data_test_SOURCES = tests/unit/data_test.c
tests_unit_data_test_LDADD = $(test_ldadd)
tests_unit_metrics_test_SOURCES = tests/unit/metrics_test.c
tests_unit_metrics_test_LDADD = $(test_ldadd)
tests_unit_safetensors_test_SOURCES = tests/unit/safetensors_test.c
tests_unit_safetensors_test_LDADD = $(test_ldadd)
