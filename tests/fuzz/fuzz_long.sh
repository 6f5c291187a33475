#!/bin/sh
# One million executions of each fuzz target.
FUZZ_CC=${FUZZ_CC:-clang}
if ! echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n){return p && n > 99 ? 0 : 0;}' |
    "$FUZZ_CC" -fsanitize=fuzzer -x c - -o "${top_builddir:-.}/fuzz_probe" 2>/dev/null; then
    echo "SKIP: $FUZZ_CC with libFuzzer is not here (Debian: clang and libclang-rt-dev)"
    exit 77
fi
rm -f "${top_builddir:-.}/fuzz_probe"
"${MAKE:-make}" -C "${top_builddir:-.}" fuzz FUZZ_CC="$FUZZ_CC" FUZZ_RUNS=1000000
