check_PROGRAMS += %D%/saver_test
%C%_saver_test_SOURCES = %D%/saver_test.c
%C%_saver_test_LDADD = $(test_ldadd)
