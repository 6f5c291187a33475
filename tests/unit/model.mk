# The model: parameter table, golden parity with PyTorch, derivatives and invariances.
check_PROGRAMS += tests/unit/params_test tests/unit/golden_test tests/unit/model_test \
	tests/unit/derivative_test
tests_unit_params_test_SOURCES = tests/unit/params_test.c tests/unit/model_support.c \
	tests/unit/model_support.h
tests_unit_params_test_LDADD = $(test_ldadd)
tests_unit_golden_test_SOURCES = tests/unit/golden_test.c tests/unit/model_support.c \
	tests/unit/model_support.h
tests_unit_golden_test_LDADD = $(test_ldadd)
tests_unit_model_test_SOURCES = tests/unit/model_test.c tests/unit/model_support.c \
	tests/unit/model_support.h
tests_unit_model_test_LDADD = $(test_ldadd)
tests_unit_derivative_test_SOURCES = tests/unit/derivative_test.c tests/unit/model_support.c \
	tests/unit/model_support.h
tests_unit_derivative_test_LDADD = $(test_ldadd)
EXTRA_DIST += tests/golden/make_golden.py tests/golden/README.md \
	tests/golden/gpt2.safetensors tests/golden/olmo2.safetensors \
	tests/golden/peri.safetensors tests/golden/post.safetensors \
	tests/golden/reordered.safetensors
