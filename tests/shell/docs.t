#!/bin/sh
# Every command that README.md and docs/ show is run here, in the order of the page, in a folder like
# the reader's. A fenced block marked `sh` is commands; long runs are cut to a few steps, nothing else
# is changed. `./bootstrap` and the installation have their own tests (.ci/run, distcheck): here a
# stand-in checks that the words exist.
test_description='commands of the documentation'
. "${top_srcdir:-.}/tests/shell/lib.sh"

mkdir bin
ln -s "$BALLAST" bin/ballast
for name in sbatch srun; do # a job script as the batch host would run it, a step as one process
    cp "$SOURCE/tests/shell/docs_$name.sh" bin/$name && chmod +x bin/$name
done
PATH=$PWD/bin:$PATH
export PATH BALLAST
# What plugin Makefiles ask pkg-config, answered for the build tree.
PKG_CONFIG_PATH=$PWD/pkgconfig
export PKG_CONFIG_PATH
mkdir pkgconfig
cat >pkgconfig/ballast.pc <<PC
plugindir=$BUILD/plugins/.libs
Name: ballast
Description: build tree
Version: 0
Cflags: -I$SOURCE/trainer/include
PC

commands() { # PAGE: its `sh` blocks, shortened
    awk '/^ *```sh$/ { on = 1; next } /^ *```/ { on = 0 } on' "$1" |
        sed -E 's/steps = [0-9]+/steps = 12/; s/(run\.steps=)[0-9]+/\112/; s/warmup = [0-9]+/warmup = 4/'
}

# page NAME FILE FOLDER: runs the page's commands in FOLDER, which must stay readable afterwards.
page() {
    (cd "$3" && commands "$SOURCE/$2" >commands.sh && test -s commands.sh &&
        timeout 300 sh -eu commands.sh >commands.out 2>&1) ||
        { echo "$2 stops after:"; tail -n 20 "$3/commands.out"; return 1; }
}

# README.md is read at the top of a clone.
mkdir clone
ln -s "$BALLAST" clone/ballast
cp -r "$SOURCE/configs" "$SOURCE/slurm" clone/
cp "$SOURCE/tests/shell/docs_bootstrap.sh" clone/bootstrap && chmod +x clone/bootstrap clone/configs
export SOURCE

test_expect_success 'README.md' 'page readme README.md clone'
test_expect_success 'README.md: its runs and its report are there' '
    test -s clone/runs/mine/metrics.jsonl && test -s clone/runs/lr3/metrics.jsonl'

mkdir tutorial
test_expect_success 'docs/tutorial.md' 'page tutorial docs/tutorial.md tutorial'
test_expect_success 'docs/tutorial.md: the comparison is there' '
    find tutorial -name report.html | grep -q . && find tutorial -name "*.png" | grep -q .'

mkdir reductions
test_expect_success 'docs/reductions.md' 'page reductions docs/reductions.md reductions'
mkdir cluster
cp -r "$SOURCE/slurm" cluster/
test_expect_success 'docs/cluster.md' 'page cluster docs/cluster.md cluster'
test_expect_success 'docs/cluster.md: its runs are there' '
    test -s cluster/runs/mine/metrics.jsonl && test -s cluster/runs/arms-004/metrics.jsonl && test -s cluster/compared/report.html'

if command -v "${CC:-cc}" >/dev/null; then test_set_prereq CC; fi
mkdir guide
test_expect_success CC 'docs/plugins.md' 'page guide docs/plugins.md guide'

test_expect_success 'every page is covered here' '
    (cd "$SOURCE/docs" && ls ./*.md) >pages &&
    (while read -r p; do
        grep -q "docs/${p#./}" "$SOURCE/tests/shell/docs.t" || { echo "$p"; exit 1; }; done <pages)'

# What --help and the manual pages say must be the same options.
options_of_help() { # COMMAND
    ballast "$1" --help
    if [ "$1" = data ]; then
        for word in pack info verify; do ballast data "$word" --help; done
    fi
}
agree() { # COMMAND: the options of its --help are those of its manual page
    man=$SOURCE/docs/man/ballast-$1.1
    options_of_help "$1" | grep -oE -- '--[a-z][a-z-]+' | grep -vx -- --help | sort -u >in_help
    grep -oE 'Fl -[a-z-]+' "$man" | sed 's/Fl -/--/' | sort -u >in_man
    diff in_help in_man && ballast "$1" --help >help.txt && ballast help "$1" | cmp help.txt -
}
test_expect_success 'each command has --help and a manual page with the same options' '
    ballast --help | sed -n "s/^  \([a-z]*\)  .*/\1/p" >names && test -s names &&
    (while read -r name; do agree "$name" || { echo "$name"; exit 1; }; done <names)'

test_expect_success 'help prints the table of a group' '
    ballast help model | grep -q "^layers .*transformer blocks" &&
    ballast help precision.head | grep -q dlogits &&
    ballast help monitors | grep -q "^every" &&
    ballast help config | grep -q "^optimizer.rules" &&
    test_expect_code 2 ballast help nonsense'

if command -v bash >/dev/null; then test_set_prereq BASH; fi
complete() { # WORD...: what the last one is completed to
    bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ballast; printf "%s\n" "${COMPREPLY[@]}"' \
        "$SOURCE/docs/ballast.bash" "$@"
}
test_expect_success BASH 'completion knows commands, options, plugins, kinds' '
    complete ballast "" >out && ballast --help | sed -n "s/^  \([a-z]*\)  .*/\1/p" >names &&
    (while read -r name; do grep -qx "$name" out || { echo "$name"; exit 1; }; done <names) &&
    complete ballast train --f >out && grep -qx -- --fresh out &&
    complete ballast plugins z_ >out && grep -qx z_loss out &&
    complete ballast plugin new reg >out && grep -qx regularizer out'

test_done
