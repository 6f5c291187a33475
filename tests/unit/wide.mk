# The logic of 16 lanes on any processor: the same sources with vectors of 16 floats that the
# compiler cuts to what there is, in the place of the scalar copy.
check_LTLIBRARIES += tests/unit/libcpu_wide.la
wide_flags = -DBL_ISA=scalar -DBL_LANES=16 -Wno-psabi
tests_unit_libcpu_wide_la_SOURCES = $(cpu_ops)
tests_unit_libcpu_wide_la_CFLAGS = $(AM_CFLAGS) $(wide_flags)
wide_ldadd = tests/unit/libcpu_wide.la $(test_ldadd)
wide_ldflags = -Wl,-u,bl_cpu_ops_scalar

check_PROGRAMS += tests/unit/wide_backend_test tests/unit/wide_attention_test \
    tests/unit/wide_logits_test tests/unit/wide_logit_maps_test tests/unit/wide_vmath_test
tests_unit_wide_backend_test_SOURCES = $(tests_unit_backend_test_SOURCES)
tests_unit_wide_backend_test_LDADD = $(wide_ldadd)
tests_unit_wide_backend_test_LDFLAGS = $(wide_ldflags)
tests_unit_wide_attention_test_SOURCES = tests/unit/attention_test.c
tests_unit_wide_attention_test_LDADD = $(wide_ldadd)
tests_unit_wide_attention_test_LDFLAGS = $(wide_ldflags)
tests_unit_wide_logits_test_SOURCES = $(tests_unit_logits_test_SOURCES)
tests_unit_wide_logits_test_LDADD = $(wide_ldadd)
tests_unit_wide_logits_test_LDFLAGS = $(wide_ldflags)
tests_unit_wide_logit_maps_test_SOURCES = $(tests_unit_logit_maps_test_SOURCES)
tests_unit_wide_logit_maps_test_LDADD = $(wide_ldadd)
tests_unit_wide_logit_maps_test_LDFLAGS = $(wide_ldflags)
tests_unit_wide_vmath_test_SOURCES = tests/unit/vmath_test.c
tests_unit_wide_vmath_test_CFLAGS = $(AM_CFLAGS) $(wide_flags)
tests_unit_wide_vmath_test_LDADD = $(test_ldadd)
