#!/bin/sh
# Plugins as real toolchains make them: what loads, what is refused. A compiler, linker or tool that
# is not there is a part not run.
set -u
top=${top_srcdir:-.}
probe=${top_builddir:-.}/tests/abi/probe
source=$top/tests/fixtures/plugins/schedule.c
work=$(mktemp -d "${TMPDIR:-/tmp}/ballast-toolchains-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 ran=0
x86=no
[ "$(uname -m)" = x86_64 ] && x86=yes

# The same plugin as C++ and CUDA: only the compiler's language differs.
cp "$source" "$work/schedule.cc"
cat >"$work/schedule.cu" <<'EOF'
#include <ballast/kernel.h>
#include <ballast/schedule.h>
struct args { double c; double *value; };
BL_FN void element(const struct args *a, uint64_t i) { a->value[i] *= a->c; }
BL_MAP(twice, element, struct args)
static double factor(const void *, const struct bl_schedule_point *) { return 1; }
static const struct bl_schedule_ops ops = {NULL, NULL, NULL, NULL, factor};
BL_PLUGIN(BL_KIND_SCHEDULE, "flat", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, NULL, 0, NULL);
EOF
cat >"$work/object.cc" <<'EOF'
#include <cstdlib>
struct registers_itself { registers_itself() { setenv("BALLAST_FIXTURE_RAN", "1", 1); } };
static registers_itself one;
EOF

fault() {
    echo "FAIL: $*"
    failed=1
}

build() { # build COMMAND...: makes $work/p.so; the toolchain may lack an option
    rm -f "$work/p.so"
    "$@" -I"$top/trainer/include" -fPIC -shared -o "$work/p.so" >"$work/log" 2>&1 && return 0
    echo "skipped part: does not build: $*"
    return 1
}

loads() { # loads NAME [OPTION]
    ran=$((ran + 1))
    if out=$("$probe" ${2:+"$2"} "$work/p.so" 2>&1); then
        echo "ok: $1: loads"
    else
        fault "$1: $out"
    fi
}

refused() { # refused NAME TEXT
    ran=$((ran + 1))
    out=$("$probe" "$work/p.so" 2>&1)
    code=$?
    case $code:$out in
    3:*"$2"*) echo "ok: $1: refused" ;;
    *) fault "$1: exit code $code: $out; expected 3 and '$2'" ;;
    esac
}

present() {
    command -v "$1" >/dev/null 2>&1 || { echo "skipped part: no $1"; return 1; }
}

for cc in gcc clang; do
    present $cc || continue
    for options in -O0 -O3 -flto -g -fvisibility=hidden -fuse-ld=lld -fuse-ld=gold \
        -Wl,--hash-style=sysv -Wl,--hash-style=gnu -Wl,-z,pack-relative-relocs \
        -Wl,-z,now -nostartfiles; do
        # shellcheck disable=SC2086
        build $cc $options "$source" && loads "$cc $options"
    done
    # glibc asks for a version mark that not every lld writes, so the file alone is looked at.
    build $cc -fuse-ld=lld -Wl,--pack-dyn-relocs=relr "$source" && loads "$cc, lld, relr" --file
    build $cc -O2 "$source" -s && loads "$cc, stripped"
    if [ $x86 = yes ]; then
        build $cc -DFIXTURE_CPU_SUPPORTS "$source" && loads "$cc, __builtin_cpu_supports"
        build $cc -DFIXTURE_CPU_SUPPORTS "$source" -s &&
            loads "$cc, __builtin_cpu_supports, stripped"
        build $cc -DFIXTURE_MODE "$source" && refused "$cc, resolver" "floating-point mode"
        # Newer compilers leave the constructor of -ffast-math out of shared objects.
        for strip in "" -s; do
            if build $cc -ffast-math "$source" $strip && build $cc -Ofast "$source" $strip; then
                if "$probe" --file "$work/p.so" >/dev/null; then
                    loads "$cc -Ofast $strip, no constructor"
                else
                    refused "$cc -Ofast $strip" "-ffast-math"
                fi
            fi
        done
    fi
    for strip in "" -s; do
        build $cc -DFIXTURE_CONSTRUCTOR "$source" $strip && refused "$cc, constructor $strip" \
            "constructor"
        build $cc -DFIXTURE_CONSTRUCTOR -fuse-ld=lld "$source" $strip &&
            refused "$cc, lld, constructor $strip" "constructor"
        build $cc -DFIXTURE_CONSTRUCTOR -nostartfiles "$source" $strip &&
            refused "$cc -nostartfiles, constructor $strip" "constructor"
    done
    build $cc -DFIXTURE_CONSTRUCTOR "-DFIXTURE_DEVICES=BL_DEVICE_CPU|BL_DEVICE_CUDA" "$source" &&
        refused "$cc, constructor, CUDA without device code" "constructor"
    build $cc -DFIXTURE_CONSTRUCTOR -Dstatic= -Wl,-init,before_main "$source" &&
        refused "$cc -init" "DT_INIT"
done

for cxx in g++ clang++; do
    present $cxx || continue
    build $cxx -O2 "$work/schedule.cc" && loads "$cxx"
    build $cxx -O2 "$work/schedule.cc" -s && loads "$cxx, stripped"
    build $cxx -O2 "$work/schedule.cc" "$work/object.cc" && refused "$cxx, static object" \
        "constructor"
done

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if present "$nvcc"; then
    rm -f "$work/p.so"
    if "$nvcc" -O2 -I"$top/trainer/include" -Xcompiler -fPIC -shared -o "$work/p.so" \
        "$work/schedule.cu" >"$work/log" 2>&1; then
        loads "nvcc, file" --file
        # Its libraries may not be installed where this test runs.
        if "$probe" "$work/p.so" >"$work/log" 2>&1; then
            loads "nvcc"
        else
            echo "skipped part: dlopen of the nvcc plugin: $(cat "$work/log")"
        fi
    else
        cat "$work/log"
        fault "nvcc: the plugin does not build"
    fi
fi

[ "$ran" -gt 0 ] || { echo "no compiler: skipped"; exit 77; }
exit $failed
