#!/bin/sh
# Eight ranks over four nodes give the bits of one process that plays them, for every way to add; two
# nodes and sixteen do as well.
test_description='ranks over nodes'
cluster_name=ranks cluster_nodes=16
. "${top_srcdir:-.}/tests/slurm/lib.sh"

cat >ranks.cfg <<'CFG'
run = { steps = 50; threads = 1; };
model = { layers = 2; width = 20; heads = 2; context = 12; tied = false; };
data = { source = "synthetic"; vocab = 61; };
batch = { sequences = 24; micro = 3; };
optimizer = { plugin = "adamw"; lr = 1e-2; };
schedule = { plugin = "cosine"; warmup = 2; };
precision = { plugin = "mixed"; wire = "bf16"; sum = "bf16"; };
guards = ( { plugin = "clip_norm"; max = 1.0; } );
monitors = ( { plugin = "logits"; every = 10; }, { plugin = "reduction"; every = 10; } );
sinks = ( { plugin = "jsonl"; } );
cluster = { emulate = 8; ranks_per_node = 2; bucket = 9000; };
CFG

# step PROCESSES NODES NAME [KEY=VALUE...]
step() {
    n=$1 nodes=$2 name=$3
    shift 3
    timeout 120 bash "$CLUSTER" exec ctl srun --mpi=pmi2 -N"$nodes" --ntasks-per-node=$((n / nodes)) -c1 \
        --kill-on-bad-exit=1 "$BALLAST" train --fresh ranks.cfg run.name="$name" "$@" >"$name.out" 2>&1 ||
        { tail -n 20 "$name.out"; return 1; }
}
# equal A B: weights and optimizer, byte for byte, whoever wrote which part.
equal() {
    cmp "runs/$1/checkpoints/50/model.safetensors" "runs/$2/checkpoints/50/model.safetensors" &&
        "$BALLAST" weights "runs/$1/checkpoints/50" "runs/$2/checkpoints/50" >"$2.cmp"
}
# as_one NAME PROCESSES NODES [KEY=VALUE...]: they give what one process gives. Its checksum goes to
# the file `all`.
as_one() {
    as=$1 n=$2 nodes=$3
    shift 3
    "$BALLAST" train --fresh ranks.cfg run.name="$as-one" "$@" >"$as-one.out" 2>&1 ||
        { tail -n 3 "$as-one.out"; return 1; }
    if ! step "$n" "$nodes" "$as" "$@" || ! equal "$as-one" "$as"; then
        echo "$*"
        return 1
    fi
    echo "$(cksum <"runs/$as/checkpoints/50/model.safetensors") $n $*" >>all
}
# averages PROCESSES NODES [KEY=VALUE...]: for all averages, at the same time.
averages() {
    pids='' wrong=0
    for average in divide divide_first premultiply predivide; do
        [ "$algorithm-$average" != nvls-premultiply ] || continue # NCCL has none
        as_one "$average" "$@" precision.algorithm="$algorithm" precision.average="$average" &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || wrong=1; done
    return "$wrong"
}

for algorithm in alltoall ring tree nvls pairwise hybrid; do
    # Averages over eight ranks have the same bits, as they only move exponents; those over six have not.
    test_expect_success "$algorithm: each collective and average, 8 processes on 4 nodes, 6 on 3" '
        averages 8 4 precision.collective=all_reduce &&
        { test $algorithm = tree || averages 8 4 precision.collective=reduce_scatter; } && # NCCL has none
        averages 6 3 cluster.emulate=6 batch.micro=2'
done

test_expect_success 'fp32, fp16, stochastic sums, the optimizer in shards, two processes for eight ranks' '
    as_one fp32 8 4 precision.wire=fp32 precision.sum=fp32 precision.algorithm=ring &&
    as_one fp16 8 4 precision.wire=fp16 precision.sum=fp16 precision.algorithm=tree &&
    as_one shards 8 4 precision.sum_rounding=stochastic precision.algorithm=ring cluster.shard=optimizer &&
    step 2 2 two precision.sum_rounding=stochastic precision.algorithm=ring && equal shards two'

test_expect_success 'two ranks with the optimizer in shards; sixteen nodes' '
    as_one pair 2 2 cluster.emulate=2 cluster.shard=optimizer && as_one many 16 16 cluster.emulate=16 batch.sequences=48'

# With eight ranks an algorithm each and ring once more, whose reduce-scatter begins elsewhere; with six
# three averages each (predivide only moves the exponents of divide), two of nvls; five others.
test_expect_success 'the ways are different ones' '
    sort all && test "$(cut -d" " -f1 all | sort -u | wc -l)" -eq 29'

test_expect_success 'doctor finds nothing that fails; without PMI2 it says so' '
    timeout 60 bash "$CLUSTER" exec ctl srun --mpi=pmi2 -N4 --ntasks-per-node=2 -c1 "$BALLAST" doctor ranks.cfg run.name=new >out 2>&1 &&
    ! grep FAILED out && { timeout 60 bash "$CLUSTER" exec ctl srun --mpi=none -N2 -n2 "$BALLAST" doctor ranks.cfg >out 2>&1; test $? -ne 0; } &&
    test "$(grep -c "FAILED.*" out)" -ge 1 && grep -e "--mpi=pmi2" out'

test_done
