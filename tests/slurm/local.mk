# Tests on a Slurm cluster of their own (root and the Slurm packages; skipped otherwise).
# BALLAST_TEST_RANKS=1 make check TESTS=tests/slurm/faults.t runs it with one process instead of four.
slurm_tests = %D%/job.t
slurm_long_tests = tests/slurm/faults.t tests/slurm/matrix.t tests/slurm/ranks.t
TESTS += $(slurm_tests)
EXTRA_DIST += $(slurm_tests) $(slurm_long_tests) %D%/cluster.sh %D%/lib.sh
