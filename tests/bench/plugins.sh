#!/usr/bin/env bash
# What plugins cost: seconds of a step with one of them against seconds without, as ratios.
#
#   tests/bench/plugins.sh [-r ROUNDS] [-s STEPS] [KIND...]
#
# KINDs: monitor guard regularizer optimizer; all of them when there are none. A monitor is measured in
# one run in which it looks at every second step: medians of the steps with and without a look. The
# others in pairs of runs, with and without, one after the other, ROUNDS times: the median of the pairs'
# ratios, smallest and largest beside it. Optimizers are compared with adamw.
#
# BALLAST   the program             (default build/trainer/ballast)
# THREADS   of it                   (default 2)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rounds=5 steps=24
while getopts r:s: option; do
    case $option in
    r) rounds=$OPTARG ;;
    s) steps=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- monitor guard regularizer optimizer
ballast=$(realpath "${BALLAST:-$here/../../build/trainer/ballast}")
threads=${THREADS:-2}
[ -x "$ballast" ] || { echo "plugins.sh: no program $ballast; build first or set BALLAST" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warm=2 # the first steps of a process do not count

# 4.5M parameters, 1024 tokens a step, four ranks, an untied output matrix of 4096 rows.
cat >"$work/model.cfg" <<'CFG'
run = { name = "bench"; eval_tokens = 64; };
model = { layers = 3; width = 256; heads = 4; context = 128; tied = false; };
data = { source = "synthetic"; vocab = 4096; };
batch = { sequences = 8; micro = 2; };
cluster = { emulate = 4; };
optimizer = { plugin = "adamw"; lr = 1e-3; };
sinks = ( { plugin = "jsonl"; } );
CFG

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# run STEPS KEY=VALUE...: "step seconds" of each step after the first ones.
run() {
    local n=$1
    shift
    "$ballast" train --fresh "$work/model.cfg" run.dir="$work/runs" run.steps="$n" run.threads="$threads" "$@" \
        >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    sed -n 's/.*"step":\([0-9]*\),.*"perf\/step_seconds": *\([0-9.e+-]*\).*/\1 \2/p' "$work/runs/bench/metrics.jsonl" |
        tail -n +$((warm + 1))
}

monitor() { # NAME [OPTIONS]
    run $((steps * rounds)) "monitors=({plugin=\"$1\";every=2;${2-}})" >"$work/steps"
    with=$(awk '$1 % 2 == 0 { print $2 }' "$work/steps" | median)
    without=$(awk '$1 % 2 == 1 { print $2 }' "$work/steps" | median)
    awk -v n="$1" -v a="$with" -v b="$without" \
        'BEGIN { printf "monitor      %-18s %.3f  every 10th step: %+.2f%%\n", n, a / b, 10 * (a / b - 1) }'
}

pair() { # KIND NAME KEY=VALUE [KEY=VALUE of the run without]
    : >"$work/ratios"
    for ((i = 0; i < rounds; i++)); do
        without=$(run "$steps" ${4+"$4"} | awk '{ print $2 }' | median)
        with=$(run "$steps" "$3" | awk '{ print $2 }' | median)
        awk -v a="$with" -v b="$without" 'BEGIN { print a / b }' >>"$work/ratios"
    done
    printf '%-12s %-18s %.3f  (%.3f to %.3f)\n' "$1" "$2" "$(median <"$work/ratios")" \
        "$(sort -g "$work/ratios" | head -n 1)" "$(sort -g "$work/ratios" | tail -n 1)"
}

for kind; do
    case $kind in
    monitor)
        for m in logits gauge norms reduction noise_scale effective_lr embedding_health; do monitor $m; done
        ;;
    guard)
        for g in clip_norm clip_value agc adagc zclip skip_step; do pair guard $g "guards=({plugin=\"$g\"})"; done
        ;;
    regularizer)
        for r in z_loss max_z mu_loss head_centering entropy logit_softcap logit_norm; do
            pair regularizer $r "regularizers=({plugin=\"$r\"})"
        done
        z='{plugin="z_loss"}'
        pair regularizer 'head_centering + z' "regularizers=($z,{plugin=\"head_centering\"})" "regularizers=($z)"
        ;;
    optimizer)
        for o in sgd lion adamc coupled_adam stable_adamw; do pair optimizer $o optimizer.plugin=$o; done
        ;;
    *) echo "plugins.sh: no kind $kind" >&2; exit 2 ;;
    esac
done
