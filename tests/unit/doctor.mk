check_PROGRAMS += tests/unit/doctor_test
tests_unit_doctor_test_SOURCES = tests/unit/doctor_test.c
tests_unit_doctor_test_LDADD = $(test_ldadd)
