# Tests on a Slurm cluster of their own (root and the Slurm packages; skipped otherwise).
# BALLAST_TEST_RANKS=4 make check TESTS=tests/slurm/faults.t runs it with four processes.
slurm_tests = %D%/job.t
slurm_long_tests = tests/slurm/faults.t tests/slurm/matrix.t
TESTS += $(slurm_tests)
EXTRA_DIST += $(slurm_tests) $(slurm_long_tests) %D%/cluster.sh %D%/lib.sh
