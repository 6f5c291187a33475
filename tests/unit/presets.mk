check_PROGRAMS += tests/unit/presets_test
tests_unit_presets_test_SOURCES = tests/unit/presets_test.c tests/unit/model_support.c \
	tests/unit/model_support.h
tests_unit_presets_test_LDADD = $(test_ldadd)
