check_PROGRAMS += tests/unit/attention_test tests/unit/logits_test tests/unit/logit_maps_test
tests_unit_attention_test_SOURCES = tests/unit/attention_test.c tests/unit/kernel_support.h
tests_unit_attention_test_LDADD = $(test_ldadd)
tests_unit_logits_test_SOURCES = tests/unit/logits_test.c tests/unit/logits_support.h \
    tests/unit/kernel_support.h
tests_unit_logits_test_LDADD = $(test_ldadd)
tests_unit_logit_maps_test_SOURCES = tests/unit/logit_maps_test.c tests/unit/logits_support.h \
    tests/unit/kernel_support.h
tests_unit_logit_maps_test_LDADD = $(test_ldadd)
