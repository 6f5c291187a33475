# Unit tests link the whole trainer; shell tests run the built program.
test_ldadd = tests/lib/libtest.la libtrainer.la $(CMOCKA_LIBS) $(core_libs)

include %D%/lib/local.mk
include %D%/unit/local.mk
include %D%/fixtures/plugins/local.mk
include %D%/abi/local.mk
include %D%/fuzz/local.mk

shell_tests = %D%/shell/alarms.t %D%/shell/bad_input.t %D%/shell/bits.t %D%/shell/check.t \
    %D%/shell/checkpoints.t \
    %D%/shell/commands.t \
    %D%/shell/data.t \
    %D%/shell/docs.t \
    %D%/shell/doctor.t \
    %D%/shell/fork.t \
    %D%/shell/gauge.t \
    %D%/shell/identity.t \
    %D%/shell/inject.t \
    %D%/shell/pack.t \
    %D%/shell/plugin.t \
    %D%/shell/ranks.t \
    %D%/shell/policies.t \
    %D%/shell/pure_bf16.t \
    %D%/shell/reduce.t \
    %D%/shell/report.t \
    %D%/shell/robust.t
# What takes minutes: make check-long
long_shell_tests = tests/shell/kill_storm.t tests/shell/long.t tests/fuzz/fuzz_long.sh
long_tests = $(long_shell_tests) $(slurm_long_tests)
EXTRA_DIST += $(shell_tests) $(long_shell_tests) tests/shell/lib.sh %D%/shell/docs_bootstrap.sh \
    %D%/shell/docs_sbatch.sh %D%/shell/docs_srun.sh
TESTS += $(check_PROGRAMS) $(shell_tests)
include %D%/slurm/local.mk
TEST_EXTENSIONS = .t .sh
T_LOG_COMPILER = $(SHELL)
SH_LOG_COMPILER = $(SHELL)
AM_TESTS_ENVIRONMENT = \
    top_srcdir='$(top_srcdir)'; top_builddir='$(top_builddir)'; \
    BALLAST_PLUGIN_PATH='$(abs_top_builddir)/plugins/.libs'; \
    export top_srcdir top_builddir BALLAST_PLUGIN_PATH;
EXTRA_DIST += %D%/bench/A.cfg %D%/bench/B.cfg %D%/bench/C.cfg %D%/bench/README.md %D%/bench/peer.py \
    %D%/bench/checkpoint.sh %D%/bench/emulation.sh %D%/bench/plugins.sh %D%/bench/run.sh %D%/bench/startup.sh
EXTRA_DIST += %D%/installcheck.sh plugins/example/Makefile plugins/example/README \
    plugins/example/logit_square.c

check-long: all
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(long_tests)'
.PHONY: check-long

installcheck-local:
	BALLAST=$(DESTDIR)$(bindir)/ballast PKG_CONFIG_PATH=$(DESTDIR)$(libdir)/pkgconfig \
	top_srcdir=$(top_srcdir) $(SHELL) $(top_srcdir)/tests/installcheck.sh

clean-local:
	rm -rf tests/shell/scratch tests/slurm/scratch

# A measurement, not a test: make tests/bench/gemm
EXTRA_PROGRAMS += tests/bench/gemm
tests_bench_gemm_SOURCES = %D%/bench/gemm.c
tests_bench_gemm_LDADD = libtrainer.la $(core_libs)
CLEANFILES += tests/bench/gemm$(EXEEXT)
EXTRA_PROGRAMS += tests/bench/blas
tests_bench_blas_SOURCES = %D%/bench/blas.c
tests_bench_blas_CFLAGS = $(AM_CFLAGS) -fopenmp
tests_bench_blas_LDADD = libtrainer.la $(core_libs)
CLEANFILES += tests/bench/blas$(EXEEXT)
# Compiled by `make check`, run by hand: tests/bench/collectives.sh
EXTRA_PROGRAMS += tests/bench/collectives
tests_bench_collectives_SOURCES = %D%/bench/collectives.c %D%/bench/ring.h
tests_bench_collectives_LDADD = libtrainer.la $(core_libs)
check_DATA += tests/bench/collectives$(EXEEXT)
CLEANFILES += tests/bench/collectives$(EXEEXT)
EXTRA_DIST += %D%/bench/collectives.sh %D%/bench/collectives_mpi.c
