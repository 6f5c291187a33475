# The plugin ABI as compilers see it. probe is a tool of the second script, no test by itself.
EXTRA_PROGRAMS += tests/abi/probe
tests_abi_probe_SOURCES = %D%/probe.c
tests_abi_probe_LDADD = libtrainer.la $(core_libs)
check_DATA += tests/abi/probe$(EXEEXT)
CLEANFILES += tests/abi/probe$(EXEEXT)

abi_tests = %D%/layout_test.sh %D%/compilers_test.sh
TESTS += $(abi_tests)
EXTRA_DIST += $(abi_tests) %D%/layout.c %D%/layout.txt
