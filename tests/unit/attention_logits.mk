check_PROGRAMS += tests/unit/attention_test tests/unit/logits_test
tests_unit_attention_test_SOURCES = tests/unit/attention_test.c
tests_unit_attention_test_LDADD = $(test_ldadd)
tests_unit_logits_test_SOURCES = tests/unit/logits_test.c
tests_unit_logits_test_LDADD = $(test_ldadd)
