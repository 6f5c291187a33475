libtrainer_la_SOURCES += %D%/cpu.h %D%/ops.h %D%/rope.h %D%/pool.c %D%/gemm.c %D%/select.c \
    %D%/rope_table.c

# One source, one convenience library per instruction set.
cpu_ops = %D%/ops.c %D%/vector.h %D%/vmath.h %D%/cut.h %D%/tile.h %D%/linear.c %D%/norm.c \
    %D%/rope.c %D%/embedding.c %D%/activation.c %D%/elementwise.c %D%/attention.c \
    %D%/attention_grad.c %D%/logits.c %D%/logit_maps.c

cpu_scalar_flags = -DBL_ISA=scalar -DBL_LANES=4
cpu_avx2_flags = -DBL_ISA=avx2 -DBL_LANES=8 -mavx2 -mfma
cpu_avx512_flags = -DBL_ISA=avx512 -DBL_LANES=16 -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq \
    -mavx512vl -mprefer-vector-width=512

noinst_LTLIBRARIES += %D%/libcpu_scalar.la
%C%_libcpu_scalar_la_SOURCES = $(cpu_ops)
%C%_libcpu_scalar_la_CFLAGS = $(AM_CFLAGS) -O3 $(cpu_scalar_flags)
libtrainer_la_LIBADD += %D%/libcpu_scalar.la

check_PROGRAMS += tests/unit/backend_test tests/unit/pool_test tests/unit/vmath_scalar_test
tests_unit_backend_test_SOURCES = tests/unit/backend_test.c tests/unit/backend_cases.c \
    tests/unit/backend_cases.h tests/unit/backend_ref.c tests/unit/backend_ref.h
tests_unit_backend_test_LDADD = $(test_ldadd)
tests_unit_pool_test_SOURCES = tests/unit/pool_test.c
tests_unit_pool_test_LDADD = $(test_ldadd)
tests_unit_vmath_scalar_test_SOURCES = tests/unit/vmath_test.c
tests_unit_vmath_scalar_test_CFLAGS = $(AM_CFLAGS) $(cpu_scalar_flags)
tests_unit_vmath_scalar_test_LDADD = $(test_ldadd)

if HAVE_X86_64
noinst_LTLIBRARIES += %D%/libcpu_avx2.la %D%/libcpu_avx512.la
%C%_libcpu_avx2_la_SOURCES = $(cpu_ops)
%C%_libcpu_avx2_la_CFLAGS = $(AM_CFLAGS) -O3 $(cpu_avx2_flags)
%C%_libcpu_avx512_la_SOURCES = $(cpu_ops)
%C%_libcpu_avx512_la_CFLAGS = $(AM_CFLAGS) -O3 $(cpu_avx512_flags)
libtrainer_la_LIBADD += %D%/libcpu_avx2.la %D%/libcpu_avx512.la

check_PROGRAMS += tests/unit/vmath_avx2_test tests/unit/vmath_avx512_test
tests_unit_vmath_avx2_test_SOURCES = tests/unit/vmath_test.c
tests_unit_vmath_avx2_test_CFLAGS = $(AM_CFLAGS) $(cpu_avx2_flags)
tests_unit_vmath_avx2_test_LDADD = $(test_ldadd)
tests_unit_vmath_avx512_test_SOURCES = tests/unit/vmath_test.c
tests_unit_vmath_avx512_test_CFLAGS = $(AM_CFLAGS) $(cpu_avx512_flags)
tests_unit_vmath_avx512_test_LDADD = $(test_ldadd)
endif
