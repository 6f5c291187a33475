#!/bin/sh
# make fuzz: builds the targets with libFuzzer in fuzz/ and runs each of them FUZZ_RUNS times.
# Inputs that find new code stay in fuzz/corpus/<target>; one that breaks a promise is written to
# fuzz/findings and ends the run.
set -eu
: "${top_srcdir:?run it as: make fuzz}" "${FUZZ_CC:=clang}" "${FUZZ_RUNS:=100000}"
: "${FUZZ_TARGETS:=config plugin safetensors shard}" "${FUZZ_CFLAGS:=}" "${FUZZ_LIBS:=}"
here=$top_srcdir/tests/fuzz trainer=$top_srcdir/trainer example=$top_srcdir/plugins/example

# In the flags is -DBL_PLUGINDIR=\"...\", whose quotes make kept.
eval "set -- $FUZZ_CFLAGS"
set -- -std=gnu17 -g -O1 -fno-omit-frame-pointer -ffp-contract=off -fsanitize=address,undefined \
    -fno-sanitize-recover=undefined "$@"
mkdir -p fuzz/objects fuzz/findings fuzz/seeds
rm -f fuzz/objects/*.o
for source in "$trainer"/base/strings.c "$trainer"/base/error.c "$trainer"/base/files.c \
    "$trainer"/base/random.c "$trainer"/config/*.c "$trainer"/plugin/elf.c \
    "$trainer"/plugin/loader.c "$trainer"/checkpoint/safetensors.c "$trainer"/data/shard_format.c; do
    "$FUZZ_CC" "$@" -fsanitize=fuzzer-no-link -c "$source" -o "fuzz/objects/$(basename "$source" .c).o"
done

# Plugins as small as a linker makes them: with and without start-up code, section headers' names
# and both kinds of symbol hash.
plugin() { # NAME FLAG...
    name=$1
    shift
    "$FUZZ_CC" -shared -fPIC -Os -I "$trainer/include" -Wl,-z,noseparate-code,-z,max-page-size=64 \
        -Wl,--build-id=none "$@" "$example/logit_square.c" -o "fuzz/seeds/$name.so"
}
plugin plain -nostdlib -s -Wl,--hash-style=gnu
plugin startup -Wl,--hash-style=sysv
plugin stripped -s -Wl,--hash-style=both

for target in $FUZZ_TARGETS; do
    # shellcheck disable=SC2086 # a list of libraries
    "$FUZZ_CC" "$@" -fsanitize=fuzzer "$here/$target.c" fuzz/objects/*.o $FUZZ_LIBS -o "fuzz/$target"
    mkdir -p "fuzz/corpus/$target"
    seeds='' length=4096
    test "$target" != plugin || seeds=fuzz/seeds length=8192
    # The quarantine of freed blocks would otherwise take half of the memory that is allowed.
    ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=16 "fuzz/$target" -runs="$FUZZ_RUNS" -timeout=5 \
        -rss_limit_mb=512 -max_len="$length" -dict="$here/$target.dict" \
        -artifact_prefix="fuzz/findings/$target-" -print_final_stats=1 "fuzz/corpus/$target" \
        "$here/corpus/$target" $seeds >"fuzz/$target.log" 2>&1 ||
        { echo "$target: a finding, see fuzz/$target.log and fuzz/findings"; tail -n 20 "fuzz/$target.log"; exit 1; }
    echo "$target: $FUZZ_RUNS runs, $(sed -n 's/^#[0-9]*[[:space:]]*DONE *//p' "fuzz/$target.log")"
done
