# What the tests of sums share: gradients and a scalar reference.
sum_reference = tests/unit/sum_reference.c tests/unit/sum_reference.h

check_PROGRAMS += tests/unit/fp16_test tests/unit/order_test tests/unit/sum_laws_test tests/unit/sum_test
tests_unit_fp16_test_SOURCES = tests/unit/fp16_test.c
tests_unit_fp16_test_LDADD = $(test_ldadd)
tests_unit_sum_laws_test_SOURCES = tests/unit/sum_laws_test.c $(sum_reference)
tests_unit_sum_laws_test_LDADD = $(test_ldadd)
tests_unit_order_test_SOURCES = tests/unit/order_test.c $(sum_reference)
tests_unit_order_test_LDADD = $(test_ldadd)
tests_unit_sum_test_SOURCES = tests/unit/sum_test.c $(sum_reference)
tests_unit_sum_test_LDADD = $(test_ldadd)

check_PROGRAMS += tests/unit/ring_order_test
tests_unit_ring_order_test_SOURCES = tests/unit/ring_order_test.c
tests_unit_ring_order_test_LDADD = $(test_ldadd)

if HAVE_UCX
check_PROGRAMS += tests/unit/sum_exchange_test
tests_unit_sum_exchange_test_SOURCES = tests/unit/sum_exchange_test.c $(sum_reference)
tests_unit_sum_exchange_test_LDADD = $(test_ldadd)
endif
