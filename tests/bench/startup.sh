#!/usr/bin/env bash
# Seconds from srun to the end of the first step, one process a node, on a test cluster of its own:
#   tests/bench/startup.sh [-n TIMES] [NODES...]      (root; default: 2 4 8 16, 5 times)
# Beside it what Slurm alone takes: the same srun of `true`. Medians, the two taken in turn.
# BALLAST   the program                        (default build/trainer/ballast)
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
ballast=$(realpath "${BALLAST:-$top/build/trainer/ballast}")
times=5
while getopts n: option; do
    case $option in
    n) times=$OPTARG ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- 2 4 8 16

work=$(mktemp -d)
export SLURMTEST_ROOT=$work/cluster BALLAST_PLUGIN_PATH=${BALLAST_PLUGIN_PATH:-${ballast%/*}/../plugins/.libs}
cluster=$top/tests/slurm/cluster.sh
trap '"$cluster" down; rm -rf "$work"' EXIT
cd "$work"
cat >start.cfg <<'C'
run = { name = "start"; steps = 1; threads = 1; };
model = { layers = 2; width = 32; heads = 4; context = 24; };
data = { source = "synthetic"; vocab = 61; };
batch = { sequences = 16; micro = 1; };
optimizer = { plugin = "adamw"; lr = 1e-3; };
sinks = ( { plugin = "jsonl"; } );
C

median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
now() { date +%s.%N; }
step() { timeout 120 "$cluster" exec ctl srun --mpi=pmi2 -N "$nodes" --ntasks-per-node=1 "$@" >out 2>&1 ||
    { cat out >&2; exit 1; }; }

printf '| nodes | srun of true, s | srun to the first step, s | difference, s |\n| --- | --- | --- | --- |\n'
for nodes in "$@"; do
    "$cluster" up "$nodes"
    step true # the first step of a cluster also loads the daemons' plugins
    : >true.s && : >first.s
    for _ in $(seq "$times"); do
        start=$(now)
        step true
        echo "$(now) $start" | awk '{ print $1 - $2 }' >>true.s
        start=$(now)
        step "$ballast" train --fresh start.cfg
        sed -n 's/.*"step": *1,"time": *\([0-9.]*\).*/\1/p' runs/start/metrics.jsonl |
            awk -v start="$start" '{ print $1 - start }' >>first.s
    done
    echo "$nodes $(median <true.s) $(median <first.s)" |
        awk '{ printf "| %d | %.2f | %.2f | %.2f |\n", $1, $2, $3, $3 - $2 }'
    "$cluster" down
done
