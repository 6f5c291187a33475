#!/usr/bin/env bash
# Ballast against PyTorch, step by step in one run: A B A B, medians, ratios.
#
#   tests/bench/run.sh [-r ROUNDS] [-c "A B C"] [-o out.json]
#
# BALLAST   the program                        (default build/trainer/ballast)
# PYTHON    a python3 that has torch           (default python3)
# PRELOAD   allocators to try for the peer, colon list of .so files; "" is the C library's own.
#           The peer's best one counts.        (default: none and libtcmalloc_minimal, if found)
# THREADS   of both                            (default 2)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rounds=3 cases="A B C" out=
while getopts r:c:o: option; do
    case $option in
    r) rounds=$OPTARG ;;
    c) cases=$OPTARG ;;
    o) out=$OPTARG ;;
    *) exit 2 ;;
    esac
done
ballast=$(realpath "${BALLAST:-$here/../../build/trainer/ballast}")
python=${PYTHON:-python3}
threads=${THREADS:-2}
tcmalloc=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4
if [ -z "${PRELOAD+set}" ]; then
    PRELOAD=
    [ ! -e "$tcmalloc" ] || PRELOAD=:$tcmalloc
fi
IFS=: read -ra preloads <<<"$PRELOAD:"
[ ${#preloads[@]} -gt 0 ] || preloads=("")
cd "$here/../.."
work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")") # a run ends with a checkpoint of GBs
trap 'rm -rf "$work"' EXIT
[ -x "$ballast" ] || { echo "run.sh: no program $ballast; build first or set BALLAST" >&2; exit 2; }
"$python" -c 'import torch' 2>/dev/null ||
    { echo "run.sh: $python has no torch; set PYTHON (pip install torch in a virtual environment)" >&2; exit 2; }

declare -A shape=([A]="6 384 6 256 256 8" [B]="12 768 12 64 50257 4" [C]="12 768 12 1024 50257 1")
declare -A tokens=([A]=2048 [B]=256 [C]=1024)
declare -A steps=([A]=12 [B]=8 [C]=5)
warm=2 # steps of each process that do not count: caches, allocators, lazy initialisation

median() { sort -g "$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

peer() { # CASE VARIANT-INDEX
    # shellcheck disable=SC2086
    LD_PRELOAD=${preloads[$2]} "$python" "$here/peer.py" ${shape[$1]} "${steps[$1]}" "$threads" >"$work/peer.json"
    "$python" - "$work/peer.json" "$warm" >>"$work/$1.peer$2" <<'PY'
import json, sys
for s in json.load(open(sys.argv[1]))["seconds"][int(sys.argv[2]):]:
    print(s)
PY
    "$python" -c 'import json, sys; j = json.load(open(sys.argv[1])); print(j["peak_bytes"]); print(j["what"], file=sys.stderr)' \
        "$work/peer.json" >>"$work/$1.peer_memory" 2>"$work/what$2"
}

own() { # CASE
    "$ballast" train --fresh "$here/$1.cfg" run.dir="$work/runs" run.steps="${steps[$1]}" \
        run.threads="$threads" >"$work/own.out" 2>&1 ||
        { cat "$work/own.out" >&2; exit 1; }
    sed -n 's/.*"perf\/step_seconds": *\([0-9.e+-]*\).*/\1/p' "$work/runs/bench-$1/metrics.jsonl" |
        tail -n +$((warm + 1)) >>"$work/$1.own"
    sed -n 's/.*"perf\/memory_bytes": *\([0-9.e+-]*\).*/\1/p' "$work/runs/bench-$1/metrics.jsonl" |
        tail -n 1 >>"$work/$1.own_memory"
    rm -rf "$work/runs"
}

for ((round = 1; round <= rounds; round++)); do
    for c in $cases; do
        for i in "${!preloads[@]}"; do
            peer "$c" "$i"
            own "$c"
        done
    done
done

echo "# $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $threads threads, $rounds rounds; medians"
for i in "${!preloads[@]}"; do echo "# peer $i: $(cat "$work/what$i")"; done
printf '%-4s %14s %14s %8s %14s %14s %8s\n' case "ballast tok/s" "torch tok/s" ratio "ballast bytes" "torch bytes" ratio
json=
for c in $cases; do
    mine=$(median "$work/$c.own") which=0 best=""
    for i in "${!preloads[@]}"; do
        m=$(median "$work/$c.peer$i")
        if [ -z "$best" ] || awk "BEGIN {exit !($m < $best)}"; then best=$m which=$i; fi
    done
    mm=$(median "$work/$c.own_memory") pm=$(sort -g "$work/$c.peer_memory" | head -n 1)
    line=$(awk -v n="${tokens[$c]}" -v a="$mine" -v b="$best" -v x="$mm" -v y="$pm" -v c="$c" \
        'BEGIN {printf "%-4s %14.1f %14.1f %8.2f %14.0f %14.0f %8.2f", c, n / a, n / b, b / a, x, y, x / y}')
    echo "$line"
    json+=${json:+, }$(awk -v c="$c" -v a="$mine" -v b="$best" -v x="$mm" -v y="$pm" -v w="$which" \
        'BEGIN {printf "{\"case\": \"%s\", \"ballast_seconds\": %.6f, \"torch_seconds\": %.6f, \"speed_ratio\": %.3f, \"ballast_bytes\": %.0f, \"torch_bytes\": %.0f, \"peer_variant\": %d}", c, a, b, b / a, x, y, w}')
done
[ -z "$out" ] || printf '{"threads": %d, "rounds": %d, "cases": [%s]}\n' "$threads" "$rounds" "$json" >"$out"
