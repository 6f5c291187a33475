check_PROGRAMS += tests/unit/job_test
tests_unit_job_test_SOURCES = tests/unit/job_test.c
tests_unit_job_test_LDADD = $(test_ldadd)
