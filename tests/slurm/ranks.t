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
        "$BALLAST" weights "runs/$1/checkpoints/50" "runs/$2/checkpoints/50" >compare.out
}
# as_one PROCESSES NODES [KEY=VALUE...]: they give what one process gives.
as_one() {
    n=$1 nodes=$2
    shift 2
    "$BALLAST" train --fresh ranks.cfg run.name=one "$@" >one.out 2>&1 || { tail -n 3 one.out; return 1; }
    if ! step "$n" "$nodes" several "$@" || ! equal one several; then
        echo "$*"
        return 1
    fi
    ways=$((ways + 1))
    echo "$(cksum <runs/one/checkpoints/50/model.safetensors) $n $*" >>all
}
both() { as_one 8 4 "$@"; }

for algorithm in alltoall ring tree nvls pairwise hybrid; do
    test_expect_success "$algorithm: each collective and average, 8 processes on 4 nodes" '
        ways=0 && for collective in all_reduce reduce_scatter; do
            for average in divide divide_first premultiply predivide; do
                case $algorithm-$collective-$average in
                tree-reduce_scatter-* | nvls-*-premultiply) continue ;; # NCCL has neither
                esac
                both precision.algorithm=$algorithm precision.collective=$collective \
                    precision.average=$average || return 1
            done
        done && test "$ways" -ge 4'
done

test_expect_success 'fp32, fp16, stochastic sums, the optimizer in shards, two processes for eight ranks' '
    ways=0 && both precision.wire=fp32 precision.sum=fp32 precision.algorithm=ring &&
    both precision.wire=fp16 precision.sum=fp16 precision.algorithm=tree &&
    both precision.sum_rounding=stochastic precision.algorithm=ring cluster.shard=optimizer &&
    step 2 2 two precision.sum_rounding=stochastic precision.algorithm=ring && equal one two && test $ways -eq 3'

test_expect_success 'two ranks with the optimizer in shards; sixteen nodes' '
    ways=0 && as_one 2 2 cluster.emulate=2 cluster.shard=optimizer &&
    as_one 16 16 cluster.emulate=16 batch.sequences=48 && test "$ways" -eq 2'

test_expect_success 'most ways have bits of their own' '
    sort all && test "$(cut -d" " -f1 all | sort -u | wc -l)" -ge 20'

test_expect_success 'doctor finds nothing that fails; without PMI2 it says so' '
    timeout 60 bash "$CLUSTER" exec ctl srun --mpi=pmi2 -N4 --ntasks-per-node=2 -c1 "$BALLAST" doctor ranks.cfg run.name=new >out 2>&1 &&
    ! grep FAILED out && { timeout 60 bash "$CLUSTER" exec ctl srun --mpi=none -N2 -n2 "$BALLAST" doctor ranks.cfg >out 2>&1; test $? -ne 0; } &&
    test "$(grep -c "FAILED.*" out)" -ge 1 && grep -e "--mpi=pmi2" out'

test_done
