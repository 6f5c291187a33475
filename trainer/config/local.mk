libtrainer_la_SOURCES += %D%/node.c %D%/node.h %D%/scan.c %D%/parse.c %D%/override.c \
	%D%/range.c %D%/range.h %D%/options.c %D%/options.h %D%/schema.c %D%/schema.h %D%/model.c %D%/presets.c %D%/presets.h \
	%D%/dials.c %D%/instances.c %D%/read.c %D%/dump.c %D%/alarms.c %D%/ring_order.c %D%/plan.c %D%/plan.h %D%/help.c %D%/config.h %D%/internal.h

check_PROGRAMS += tests/unit/options_test tests/unit/config_test
tests_unit_options_test_SOURCES = tests/unit/options_test.c
tests_unit_options_test_LDADD = $(test_ldadd)
tests_unit_config_test_SOURCES = tests/unit/config_test.c
tests_unit_config_test_LDADD = $(test_ldadd)
