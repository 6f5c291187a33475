libtrainer_la_SOURCES += %D%/conformance.c %D%/conformance.h %D%/conformance_common.c \
    %D%/conformance_data.c %D%/conformance_regularizer.c %D%/conformance_step.c %D%/elf.c %D%/elf.h \
    %D%/host.c %D%/host.h %D%/loader.c %D%/loader.h %D%/sample_rows.c %D%/sample_rows.h %D%/trial.c \
    %D%/trial.h

check_PROGRAMS += tests/unit/loader_test tests/unit/host_test
tests_unit_loader_test_SOURCES = tests/unit/loader_test.c
tests_unit_loader_test_LDADD = $(test_ldadd)
tests_unit_host_test_SOURCES = tests/unit/host_test.c
tests_unit_host_test_LDADD = $(test_ldadd)
