# Precision dials one by one; the loss of a whole run; numbers at the edge.
check_PROGRAMS += tests/unit/dials_test tests/unit/rank_dials_test tests/unit/total_loss_test \
    tests/unit/extremes_test
tests_unit_dials_test_SOURCES = tests/unit/dials_test.c tests/unit/model_support.c \
    tests/unit/model_support.h
tests_unit_dials_test_LDADD = $(test_ldadd)
tests_unit_rank_dials_test_SOURCES = tests/unit/rank_dials_test.c
tests_unit_rank_dials_test_LDADD = $(test_ldadd)
tests_unit_total_loss_test_SOURCES = tests/unit/total_loss_test.c tests/unit/model_support.c \
    tests/unit/model_support.h $(plugin_test_sources)
tests_unit_total_loss_test_LDADD = $(test_ldadd)
tests_unit_extremes_test_SOURCES = tests/unit/extremes_test.c tests/unit/model_support.c \
    tests/unit/model_support.h
tests_unit_extremes_test_LDADD = $(test_ldadd)
