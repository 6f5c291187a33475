#!/usr/bin/env bash
# What emulated ranks cost: seconds a step against cluster.emulate at a fixed global batch, as ratios
# to one rank, for each algorithm, with and without memory for gradients that a ring visits twice.
#
#   tests/bench/emulation.sh [-r ROUNDS] [-e "1 2 4 8 16 32"] [-a "alltoall ring tree ..."]
#
# BALLAST   the program             (default build/trainer/ballast)
# THREADS   of it                   (default 2)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rounds=3 ranks="1 2 4 8 16 32" algorithms="alltoall ring tree nvls pairwise hybrid"
while getopts r:e:a: option; do
    case $option in
    r) rounds=$OPTARG ;;
    e) ranks=$OPTARG ;;
    a) algorithms=$OPTARG ;;
    *) exit 2 ;;
    esac
done
ballast=$(realpath "${BALLAST:-$here/../../build/trainer/ballast}")
threads=${THREADS:-2}
[ -x "$ballast" ] || { echo "emulation.sh: no program $ballast; build first or set BALLAST" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warm=2 steps=8 # the first steps of a process do not count

# A model of 3.2M parameters, 32 sequences a step in micro-batches of one: the same work for every W.
cat >"$work/model.cfg" <<'CFG'
run = { name = "bench"; eval_tokens = 64; };
model = { layers = 4; width = 256; heads = 4; context = 64; };
data = { source = "synthetic"; vocab = 256; };
batch = { sequences = 32; micro = 1; };
optimizer = { plugin = "adamw"; lr = 1e-3; };
precision = { wire = "bf16"; };
sinks = ( { plugin = "jsonl"; } );
CFG

median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

measure() { # W ALGORITHM KEEP: appends its steps' seconds to a file of that name
    local keep=()
    [ "$3" = default ] || keep=("cluster.keep=$3")
    "$ballast" train --fresh "$work/model.cfg" run.dir="$work/runs" run.steps=$steps run.threads="$threads" \
        cluster.emulate="$1" precision.algorithm="$2" "${keep[@]}" >"$work/out" 2>&1 ||
        { cat "$work/out" >&2; exit 1; }
    sed -n 's/.*"perf\/step_seconds": *\([0-9.e+-]*\).*/\1/p' "$work/runs/bench/metrics.jsonl" |
        tail -n +$((warm + 1)) >>"$work/$2-$3-$1"
    rm -rf "$work/runs"
}

settings=()
for a in $algorithms; do
    settings+=("$a default")
    case $a in ring | hybrid) settings+=("$a 0") ;; esac # the others visit a rank once
done
for ((round = 1; round <= rounds; round++)); do
    for setting in "${settings[@]}"; do
        read -r a keep <<<"$setting"
        for w in $ranks; do measure "$w" "$a" "$keep"; done
    done
done

echo "# $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $threads threads, $rounds rounds; medians"
printf '%-10s %-8s' algorithm keep
for w in $ranks; do printf ' %8s' "W=$w"; done
printf ' %12s\n' 's at W=1'
for setting in "${settings[@]}"; do
    read -r a keep <<<"$setting"
    one=$(median "$work/$a-$keep-${ranks%% *}")
    printf '%-10s %-8s' "$a" "$keep"
    for w in $ranks; do
        awk -v t="$(median "$work/$a-$keep-$w")" -v one="$one" 'BEGIN { printf " %8.3f", t / one }'
    done
    printf ' %12.4f\n' "$one"
done
