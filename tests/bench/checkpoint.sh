#!/bin/sh
# Checkpoints against the raw disk: MB/s of writing and of loading, and what a save costs the step
# loop, as a copy beside the training (run.save = "async") and without one ("sync").
#
#     tests/bench/checkpoint.sh [FOLDER]      in the build tree; FOLDER is on the disk in question
set -eu
build=$(pwd)
ballast=${BALLAST:-$build/trainer/ballast}
BALLAST_PLUGIN_PATH=${BALLAST_PLUGIN_PATH:-$build/plugins/.libs}
export BALLAST_PLUGIN_PATH
folder=$(mktemp -d "${1:-.}/checkpoint-bench-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >bench.cfg <<'C'
run = { name = "bench"; steps = 9; checkpoint_every = 3; keep = 1; eval_tokens = 128; };
model = { layers = 4; width = 256; heads = 8; context = 128; vocab = 8192; tied = true; };
data = { source = "text"; train = ( "text.txt" ); };
batch = { sequences = 8; micro = 4; };
optimizer = { plugin = "adamw"; lr = 1e-4; };
monitors = ( ); sinks = ( { plugin = "jsonl"; } );
C

# Not the synthetic source: at every start it sums up the entropy of what it will draw, for seconds.
seq 40000 >text.txt

value() { # METRIC RUN: its values, a line each
    sed -n "s|.*\"$1\": *\([-0-9.e+]*\).*|\1|p" "runs/$2/metrics.jsonl"
}
now() {
    date +%s.%N
}
middle() { # the median of lines
    sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'
}

for mode in async sync; do
    "$ballast" train --fresh bench.cfg run.name=$mode run.save=$mode >$mode.out 2>&1 ||
        { cat $mode.out; exit 1; }
done
bytes=$(cat runs/async/checkpoints/9/* | wc -c)
"$ballast" train --fresh bench.cfg run.name=none run.checkpoint_every=0 >none.out 2>&1
step=$(value perf/step_seconds none | middle)

# The same bytes by dd, twice, with the same promise at the end.
for _ in 1 2; do
    from=$(now)
    dd if=/dev/zero of=raw bs=4M count=$((bytes / 4194304)) conv=fsync 2>/dev/null
    to=$(now)
    echo "$from $to" | awk -v b="$bytes" '{ printf "%.1f\n", b / 1e6 / ($2 - $1) }'
done | sort -g | tail -n 1 >raw.txt
# Loading, with the files in the page cache: checksums and copies, against cat.
from=$(now)
cat raw >/dev/null
to=$(now)
echo "$from $to" | awk -v b="$bytes" '{ printf "%.1f\n", b / 1e6 / ($2 - $1) }' >cat.txt
"$ballast" train bench.cfg run.name=async >load.out 2>&1 # complete: it loads and ends
from=$(now)
"$ballast" train bench.cfg run.name=async >load.out 2>&1
to=$(now)
load=$(echo "$from $to" | awk '{ print $2 - $1 }')
sync_stall=$(value time/checkpoint sync | middle)
async_stall=$(value time/checkpoint async | sort -g | tail -n 1)
first_stall=$(value time/checkpoint async | head -n 1)

echo "checkpoint: $((bytes / 1000000)) MB, a step takes $step s"
echo "$bytes $sync_stall $(cat raw.txt)" |
    awk '{ w = $1 / 1e6 / $2; printf "write: %.0f MB/s, the raw disk %.0f MB/s: %.2f of it\n", w, $3, w / $3 }'
echo "$bytes $load $(cat cat.txt)" |
    awk '{ l = $1 / 1e6 / $2; printf "start of a finished run, load included: %.0f MB/s, cat %.0f MB/s\n", l, $3 }'
echo "$async_stall $sync_stall $step $first_stall" |
    awk '{ printf "a save holds a step up for %.3f s async at most (%.1f%% of a step; the first %.3f s), %.3f s sync (%.0f%%)\n", $1, 100 * $1 / $3, $4, $2, 100 * $2 / $3 }'
