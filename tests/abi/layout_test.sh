#!/bin/sh
# $strict is a list of flags, split on purpose.
# shellcheck disable=SC2086
# The installed headers are the same ABI for every compiler: layout.txt, byte for byte; each header
# compiles alone as C99 and as C++17. A compiler that is not there is a part not run.
set -u
top=${top_srcdir:-.}
headers=$top/trainer/include
work=$(mktemp -d "${TMPDIR:-/tmp}/ballast-abi-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 ran=0

fault() {
    echo "FAIL: $*"
    failed=1
}

compare() { # compare NAME COMMAND...: builds layout.c with the command and compares its output
    name=$1
    shift
    if "$@" -I"$headers" -o "$work/layout" >"$work/log" 2>&1 && "$work/layout" >"$work/out"; then
        if diff -u "$top/tests/abi/layout.txt" "$work/out"; then
            echo "ok: $name: same layout"
        else
            fault "$name: another layout than tests/abi/layout.txt"
        fi
    else
        cat "$work/log"
        fault "$name: layout.c does not build"
    fi
}

alone() { # alone NAME EXTENSION COMMAND...: every header by itself, and twice
    name=$1 extension=$2
    shift 2
    for header in "$headers"/ballast/*.h; do
        file=$(basename "$header")
        printf '#include <ballast/%s>\n#include <ballast/%s>\nextern int x;\n' "$file" "$file" \
            >"$work/one.$extension"
        "$@" -I"$headers" -c "$work/one.$extension" -o "$work/one.o" >"$work/log" 2>&1 ||
            { cat "$work/log"; fault "$name: ballast/$file"; }
    done
    # The macro itself, used as plugins use it.
    printf '%s\n' '#include <ballast/schedule.h>' \
        'static double f(const void *s, const struct bl_schedule_point *p)' \
        '{ (void)s; (void)p; return 1; }' \
        'static const struct bl_schedule_ops ops = {NULL, NULL, NULL, NULL, f};' \
        'BL_PLUGIN(BL_KIND_SCHEDULE, "x", "1", BL_DEVICE_CPU, ops, NULL, 0, NULL);' \
        >"$work/use.$extension"
    "$@" -I"$headers" -c "$work/use.$extension" -o "$work/use.o" >"$work/log" 2>&1 ||
        { cat "$work/log"; fault "$name: BL_PLUGIN"; }
    echo "ok: $name: headers"
}

present() {
    if command -v "$1" >/dev/null 2>&1; then
        ran=$((ran + 1))
        return 0
    fi
    echo "skipped part: no $1"
    return 1
}

strict="-Wall -Wextra -Wpedantic -Wshadow -Werror"
for cc in gcc clang; do
    present $cc || continue
    compare "$cc C99" $cc -std=c99 $strict "$top/tests/abi/layout.c"
    alone "$cc C99" c $cc -std=c99 -Wstrict-prototypes $strict
done
for cxx in g++ clang++; do
    present $cxx || continue
    compare "$cxx C++17" $cxx -std=c++17 $strict -x c++ "$top/tests/abi/layout.c"
    alone "$cxx C++17" cc $cxx -std=c++17 $strict
done
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if present "$nvcc"; then
    # One file with every header: nvcc takes seconds a file.
    compare nvcc "$nvcc" -std=c++17 -Xcompiler -Wall,-Wextra,-Werror -x cu "$top/tests/abi/layout.c"
fi

# layout.c must not forget a struct or a constant of the headers.
cat "$headers"/ballast/*.h | sed -n 's/^struct \(bl_[a-z_]*\) {.*/\1/p' | sort -u |
    while read -r name; do
        grep -q "STRUCT($name)" "$top/tests/abi/layout.c" || echo "struct $name"
    done >"$work/missing"
cat "$headers"/ballast/*.h | grep -o 'BL_[A-Z0-9_]* = [0-9]' | sed 's/ =.*//' | sort -u |
    while read -r name; do
        grep -q "VALUE($name)" "$top/tests/abi/layout.c" || echo "constant $name"
    done >>"$work/missing"
if [ -s "$work/missing" ]; then
    cat "$work/missing"
    fault "tests/abi/layout.c lacks the names above"
fi

[ "$ran" -gt 0 ] || { echo "no compiler: skipped"; exit 77; }
exit $failed
