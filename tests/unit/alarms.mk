check_PROGRAMS += tests/unit/alarms_test tests/unit/plan_test tests/unit/repeat_test \
    tests/unit/resume_test
tests_unit_alarms_test_SOURCES = tests/unit/alarms_test.c
tests_unit_alarms_test_LDADD = $(test_ldadd)
tests_unit_plan_test_SOURCES = tests/unit/plan_test.c
tests_unit_plan_test_LDADD = $(test_ldadd)
tests_unit_repeat_test_SOURCES = tests/unit/repeat_test.c
tests_unit_repeat_test_LDADD = $(test_ldadd)
tests_unit_resume_test_SOURCES = tests/unit/resume_test.c
tests_unit_resume_test_LDADD = $(test_ldadd)
