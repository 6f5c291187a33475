#!/bin/sh
# Stand-in for ./bootstrap in docs.t: refuses words that the real one does not know, and leaves the
# data that `./bootstrap demo` makes. SOURCE is the source folder.
set -eu
word=${1:-build}
grep -qE "^$word( \||\))" "$SOURCE/bootstrap" || { echo "bootstrap has no $word"; exit 1; }
if [ "$word" = demo ]; then
    mkdir -p data
    i=0
    while [ $i -lt 300 ]; do
        echo "In the beginning there was line $i of a text, and it was like the others."
        i=$((i + 1))
    done >data/demo.txt
    ./ballast data pack --force --validation 0.1 data/demo data/demo.txt
fi
