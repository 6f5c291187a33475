check_PROGRAMS += tests/unit/cgroup_test
tests_unit_cgroup_test_SOURCES = tests/unit/cgroup_test.c
tests_unit_cgroup_test_LDADD = $(test_ldadd)
