check_PROGRAMS += tests/unit/report_test
tests_unit_report_test_SOURCES = tests/unit/report_test.c
tests_unit_report_test_LDADD = $(test_ldadd)
