# Fuzz targets. make check replays the corpus under any compiler; make fuzz mutates it with clang.
check_PROGRAMS += %D%/config_replay_test %D%/plugin_replay_test %D%/safetensors_replay_test \
    %D%/shard_replay_test
fuzz_common = %D%/replay.c %D%/target.h
%C%_config_replay_test_SOURCES = %D%/config.c $(fuzz_common)
%C%_config_replay_test_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_NAME=\"config\"
%C%_config_replay_test_LDADD = libtrainer.la $(core_libs)
%C%_plugin_replay_test_SOURCES = %D%/plugin.c $(fuzz_common)
%C%_plugin_replay_test_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_NAME=\"plugin\"
%C%_plugin_replay_test_LDADD = libtrainer.la $(core_libs)
%C%_safetensors_replay_test_SOURCES = %D%/safetensors.c $(fuzz_common)
%C%_safetensors_replay_test_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_NAME=\"safetensors\"
%C%_safetensors_replay_test_LDADD = libtrainer.la $(core_libs)
%C%_shard_replay_test_SOURCES = %D%/shard.c $(fuzz_common)
%C%_shard_replay_test_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_NAME=\"shard\"
%C%_shard_replay_test_LDADD = libtrainer.la $(core_libs)
EXTRA_DIST += %D%/README.md %D%/fuzz.sh %D%/config.dict %D%/plugin.dict %D%/safetensors.dict \
    %D%/shard.dict %D%/corpus

# make fuzz [FUZZ_RUNS=1000000] [FUZZ_TARGETS="config shard"]: everything it makes is in fuzz/.
FUZZ_CC = clang
FUZZ_RUNS = 100000
FUZZ_TARGETS = config plugin safetensors shard
fuzz:
	FUZZ_CC='$(FUZZ_CC)' FUZZ_RUNS='$(FUZZ_RUNS)' FUZZ_TARGETS='$(FUZZ_TARGETS)' top_srcdir='$(top_srcdir)' \
	FUZZ_CFLAGS='$(DEFS) -I. $(AM_CPPFLAGS) $(LIBCONFIG_CFLAGS) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS)' \
	FUZZ_LIBS='$(LIBCONFIG_LIBS) $(JANSSON_LIBS) $(XXHASH_LIBS) $(LIBS)' \
	$(SHELL) $(top_srcdir)/tests/fuzz/fuzz.sh
.PHONY: fuzz
mostlyclean-local:
	rm -rf fuzz
