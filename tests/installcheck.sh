#!/bin/sh
# The out-of-tree example against an INSTALLED ballast: builds with nothing but pkg-config and a
# compiler, is found through plugin_path, checks; and is refused when its ABI is another one.
#
# BALLAST          the installed program (default: ballast in PATH)
# PKG_CONFIG_PATH  where the installed ballast.pc is, when not in the default place
# top_srcdir       the source tree, for plugins/example alone
#
# Then the same for what `plugin new` writes, which needs no source tree at all.
set -u
ballast=${BALLAST:-ballast}
example=$(cd "${top_srcdir:-.}/plugins/example" && pwd) || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/ballast-installcheck-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
unset BALLAST_PLUGIN_PATH

die() {
    echo "FAIL: $*"
    exit 1
}

command -v pkg-config >/dev/null || { echo "no pkg-config: skipped"; exit 77; }
pkg-config --exists ballast || die "pkg-config does not find ballast (PKG_CONFIG_PATH=${PKG_CONFIG_PATH:-})"
plugindir=$(pkg-config --variable=plugindir ballast)
[ -d "$plugindir" ] || die "the installed plugin folder $plugindir does not exist"

cp "$example"/* "$work" || exit 1
cd "$work" || exit 1
rm -f ./*.so
make CFLAGS="-O2 -Wall -Wextra -Werror" || die "the example does not build"

cat >check.cfg <<EOF
run = { name = "installcheck"; dir = "$work/runs"; steps = 2; };
model = { layers = 1; width = 16; heads = 2; context = 16; vocab = 64; };
data = { source = "synthetic"; vocab = 64; };
batch = { sequences = 2; };
optimizer = { plugin = "adamw"; lr = 1e-3; };
schedule = { plugin = "constant"; warmup = 0; };
regularizers = ( { plugin = "logit_square"; coefficient = 1e-4; } );
sinks = ( );
plugin_path = [ "$work" ];
EOF
"$ballast" check check.cfg >out 2>&1 || { cat out; die "ballast check"; }
echo "ok: built, found and accepted"

"$ballast" check check.cfg 'regularizers[0].coefficient=-1.0' >out 2>&1
[ $? -eq 2 ] || { cat out; die "a coefficient out of range did not give exit code 2"; }
grep -q coefficient out || { cat out; die "the message does not name the option"; }
echo "ok: its option table is enforced"

make install DESTDIR="$work/stage" >/dev/null || die "make install"
[ -f "$work/stage$plugindir/regularizer_logit_square.so" ] || die "make install: no file"
echo "ok: installs"

"$ballast" plugin test ./regularizer_logit_square.so >out 2>&1 || { cat out; die "plugin test of the example"; }
echo "ok: passes plugin test"

# A new plugin of every kind, with the installed program, headers and ballast.pc alone.
(
    mkdir new && cd new || exit 1
    for kind in regularizer precision schedule monitor optimizer guard sink source tokenizer; do
        "$ballast" plugin new $kind try_$kind >out 2>&1 || { cat out; die "plugin new $kind"; }
        if make -C try_$kind BALLAST="$ballast" CFLAGS="-O2 -Wall -Wextra -Werror" test >out 2>&1; then
            die "the test of try_$kind passes without its number"
        fi
        if ! grep -q "^[0-9]* ok, 0 failed" out || ! grep -q "fill in the expected value" out; then
            cat out
            die "make test of try_$kind"
        fi
    done
) || exit 1
echo "ok: plugin new, nine kinds"

# The same source with the headers of another major version.
cp -r "$(pkg-config --variable=includedir ballast)/ballast" . || exit 1
sed 's/#define BL_ABI_MAJOR .*/#define BL_ABI_MAJOR 2/' ballast/plugin.h >new.h &&
    mv new.h ballast/plugin.h
rm -f ./*.so
make CFLAGS="-O2" ballast_cflags="-I$work" || die "the changed example does not build"
"$ballast" check check.cfg >out 2>&1
[ $? -eq 3 ] || { cat out; die "another ABI did not give exit code 3"; }
grep -q 'ABI 2.0, this program has 1.0' out || { cat out; die "the message names no versions"; }
echo "ok: another ABI is refused"
