#!/bin/sh
# A run as a job on two nodes: it ends, is requeued, cancelled, refused. The faults are in faults.t.
test_description='a run as a Slurm job'
cluster_name=job cluster_nodes=2
. "${top_srcdir:-.}/tests/slurm/lib.sh"

test_expect_success 'a job ends with the bits of the run outside of Slurm' '
    submit plain && ends $job COMPLETED 0 && as_whole plain && ls -A >files && ! grep "^.ballast-" files'

test_expect_success 'a job of one process, which plays all ranks' '
    submit alone -N1 --ntasks-per-node=1 && ends $job COMPLETED 0 && as_whole alone'

test_expect_success 'scontrol requeue: it goes on from its checkpoint' '
    submit again --export=ALL,PACE=100 && within 30 rows again 8 && ctl scontrol requeue $job &&
    within 30 restarted $job && ends $job COMPLETED 0 && as_whole again &&
    grep "after step [0-9]* of $steps with a checkpoint" again.log && grep -c "\"attempt\": *2" runs/again/metrics.jsonl'

test_expect_success 'scancel: a checkpoint, no requeue; the same line goes on' '
    submit cancelled --export=ALL,PACE=100 && within 30 rows cancelled 8 && ctl scancel $job &&
    within 30 over $job && is $job CANCELLED && test "$(fact $job Restarts)" -eq 0 &&
    within 10 grep "stopped by SIGTERM after step" cancelled.log &&
    stopped=$(sed -n "s/.*SIGTERM after step \([0-9]*\) .*/\1/p" cancelled.log | head -n 1) &&
    test -e runs/cancelled/checkpoints/$stopped/state.json &&
    submit cancelled && ends $job COMPLETED 0 && as_whole cancelled'

test_expect_success 'a config that is refused ends the job with its code, once' '
    submit refused -- optimizer.lr=-1 && ends $job FAILED 2 && test "$(fact $job Restarts)" -eq 0 &&
    grep "optimizer.lr" refused.log && grep "ends with code 2" refused.log'

test_expect_success MULTI 'the comment of the job says how far it is' '
    submit told --export=ALL,PACE=100 && within 30 rows told 3 &&
    within 30 eval "ctl squeue -h -o %k -j $job | grep -E \"^step [0-9]+/$steps loss [0-9.]+ eta 0:00:0\"" &&
    ctl scancel $job && within 30 over $job'

test_expect_success MULTI 'srun without --mpi=pmi2 is refused with the fix' '
    { ctl srun $shape --mpi=none "$BALLAST" train job.cfg run.name=none >none.out 2>&1; test $? -eq 2; } &&
    grep -e "--mpi=pmi2" none.out && test ! -e runs/none || { cat none.out; false; }'

test_expect_success MULTI 'a process that fails ends the job at once, with the cause in the log' '
    submit fails --export=ALL,BALLAST_REQUEUE_LOST=no,PACE_EXIT=5,PACE_PROCESS=$((ranks - 1)) && ends $job FAILED 6 20 &&
    test "$(fact $job Restarts)" -eq 0 && grep -E "process $((ranks - 1)) \(n2\)" fails.log'

test_done
