# C++ behind the C ABI; built where configure found the library. The C-only ones of the warning flags
# are replaced, and what the library brings beyond its own file (the trainer) is not linked.
EXTRA_DIST += tests/fixtures/tokenizer/README.md tests/fixtures/tokenizer/genesis.model \
    tests/fixtures/tokenizer/genesis.txt

if HAVE_SENTENCEPIECE
cxx_warnings_strict = $(WARN_CFLAGS:strict-prototypes=all)
cxx_warnings = $(cxx_warnings_strict:missing-prototypes=extra)

plugin_LTLIBRARIES += plugins/tokenizer_sentencepiece.la
plugins_tokenizer_sentencepiece_la_SOURCES = %D%/sentencepiece.cc
plugins_tokenizer_sentencepiece_la_CXXFLAGS = -std=c++17 -fvisibility=hidden $(cxx_warnings) \
    $(SANITIZER_CFLAGS) $(SENTENCEPIECE_CFLAGS)
plugins_tokenizer_sentencepiece_la_LDFLAGS = -Wl,--as-needed $(plugin_ldflags)
plugins_tokenizer_sentencepiece_la_LIBADD = $(SENTENCEPIECE_LIBS) -lstdc++
# The C linker: libtool links C++ with -nostdlib, and then no sanitizer.
plugins_tokenizer_sentencepiece_la_LINK = $(LIBTOOL) $(AM_V_lt) --tag=CC $(AM_LIBTOOLFLAGS) \
    $(LIBTOOLFLAGS) --mode=link $(CC) $(AM_CFLAGS) $(CFLAGS) \
    $(plugins_tokenizer_sentencepiece_la_LDFLAGS) $(LDFLAGS) -o $@

check_PROGRAMS += plugins/tokenizer/sentencepiece/sentencepiece_test
plugins_tokenizer_sentencepiece_sentencepiece_test_SOURCES = \
    %D%/sentencepiece_test.c $(plugin_test_sources)
plugins_tokenizer_sentencepiece_sentencepiece_test_LDADD = $(test_ldadd)
endif
