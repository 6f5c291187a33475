libtrainer_la_SOURCES += %D%/bf16.h %D%/cgroup.c %D%/cgroup.h %D%/error.c %D%/error.h %D%/log.c %D%/log.h %D%/memory.c %D%/memory.h \
	%D%/strings.c %D%/strings.h %D%/files.c %D%/fp16.h %D%/repeat.c %D%/repeat.h %D%/random.c %D%/random.h %D%/clock.c %D%/clock.h

check_PROGRAMS += tests/unit/strings_test tests/unit/random_test
tests_unit_strings_test_SOURCES = tests/unit/strings_test.c
tests_unit_strings_test_LDADD = $(test_ldadd)
tests_unit_random_test_SOURCES = tests/unit/random_test.c
tests_unit_random_test_LDADD = $(test_ldadd)
