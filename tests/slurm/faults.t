#!/bin/sh
# What clusters do to jobs: time limits, preemption, lost nodes, links, daemons, processes. However
# often a run is interrupted, it ends with the bits of the run that was not, and metrics.jsonl has
# each step once per last attempt.
test_description='faults of a cluster'
cluster_name=faults cluster_nodes=3
SLURMTEST_REQUEUE_EXIT=75
export SLURMTEST_REQUEUE_EXIT
. "${top_srcdir:-.}/tests/slurm/lib.sh"

near_limit() { ctl scancel --batch -s USR1 "$1"; } # what --signal=B:USR1@120 does, now

# once_more NAME JOB: it was restarted once, and ended as if it had not been.
once_more() { ends "$2" COMPLETED 0 150 && test "$(fact "$2" Restarts)" -eq 1 && as_whole "$1"; }

# Slurm looks at limits every half minute or so: USR1 comes 20 to 50 seconds after the start. Other
# tests go on beside this one.
test_expect_success 'time limit: the job begins' '
    submit limit -t 2 --signal=B:USR1@100 --export=ALL,PACE=1500 && limit=$job'

# The cluster has RequeueExit=75: were both ways used, it would be restarted twice.
test_expect_success 'USR1 with scontrol: requeued once' '
    submit scontrol --export=ALL,PACE=200 && within 30 rows scontrol 7 && near_limit $job &&
    within 30 test -s .ballast-$job.history && cat .ballast-$job.history && read -r saved idle <.ballast-$job.history &&
    test $saved -ge 7 && test $idle -eq 0 && once_more scontrol $job && ! grep "does not work here" scontrol.log'
test_expect_success 'USR1 with RequeueExit: requeued once' '
    submit code --export=ALL,PACE=200,BALLAST_REQUEUE_BY=exit && within 30 rows code 7 && near_limit $job &&
    once_more code $job'
mkdir broken && printf "#!/bin/sh\nexit 1\n" >broken/scontrol && chmod +x broken/scontrol
test_expect_success 'USR1 where scontrol does not work: RequeueExit' '
    submit broken --export=ALL,PACE=200,PATH="broken:$PATH" && within 30 rows broken 7 && near_limit $job &&
    once_more broken $job && grep "scontrol requeue does not work here" broken.log'

test_expect_success 'time limit: USR1, a checkpoint, requeued by the script' '
    job=$limit submit_name=limit && within 90 restarted $job && once_more limit $job &&
    grep "back into the queue: stopped by SIGUSR1 after step" limit.log'

test_expect_success 'TERM to the tasks alone: a checkpoint, and the job is over, although 75 would requeue it' '
    submit term --export=ALL,PACE=200 && within 30 rows term 7 && ctl scancel -s TERM $job &&
    ends $job FAILED 1 && test "$(fact $job Restarts)" -eq 0 && grep "ends with code 75: stopped by SIGTERM" term.log &&
    submit term && ends $job COMPLETED 0 && as_whole term'

test_expect_success 'preemption by a job of a higher partition' '
    submit low --export=ALL,PACE=200 && within 30 rows low 7 &&
    high=$(ctl sbatch --parsable -p high -N3 --exclusive -o high.log --wrap "sleep 1") &&
    once_more low $job && is $high COMPLETED && grep "stopped by SIGTERM after step" low.log'

# A run that never gets anywhere.
cat >stuck.sh <<'S'
#!/bin/sh
trap 'echo "75 stopped by SIGUSR1 before the first step" >"$BALLAST_STATUS"; exit 75' USR1
: >"stuck.${SLURM_RESTART_COUNT:-0}"
while :; do sleep 0.1; done
S
chmod +x stuck.sh
test_expect_success 'no new checkpoint in two attempts: not requeued for ever' '
    submit stuck --export=ALL,BALLAST=./stuck.sh && within 30 test -e stuck.0 && near_limit $job &&
    within 60 test -e stuck.1 && near_limit $job && ends $job FAILED 1 && test "$(fact $job Restarts)" -eq 1 &&
    grep "not requeued: 2 attempts in a row came to no new checkpoint" stuck.log && ! ls .ballast-$job.*'

test_expect_success 'a process is killed' '
    submit killed --export=ALL,PACE=50,PACE_KILL=13,PACE_PROCESS=$((ranks - 1)) && once_more killed $job'
test_expect_success 'process 0 is killed' '
    submit zero --export=ALL,PACE=50,PACE_KILL=13 && once_more zero $job && grep "without a word" zero.log'

node_of() { ctl scontrol show hostnames "$(fact "$1" NodeList)" | tail -n 1; } # the last of JOB's
back() { ctl sinfo -h -n "$1" -t idle -o %n | grep -qx "$1"; }

test_expect_success 'slurmd dies and is back soon: nothing happens' '
    submit daemon --export=ALL,PACE=200 && within 30 rows daemon 7 && node=$(node_of $job) && cluster killd $node &&
    within 20 rows daemon 20 && cluster startd $node && ends $job COMPLETED 0 && test "$(fact $job Restarts)" -eq 0 &&
    as_whole daemon && within 30 back $node'

# Slurm takes half a minute to notice (SlurmdTimeout 10), processes of other nodes cluster.timeout.
test_expect_success 'a node loses power' '
    submit power --export=ALL,PACE=500 && within 30 rows power 7 && node=$(node_of $job) && cluster kill $node &&
    within 120 restarted $job && once_more power $job; rc=$?; cluster start $node && within 60 back $node && test $rc -eq 0'

# A program that ends when it is told to: the first attempt with a lost peer, the second well.
cat >told.sh <<'S'
#!/bin/sh
n=${SLURM_RESTART_COUNT:-0}
: >"told.$n"
until [ -e "end.$n" ]; do sleep 0.1; done
[ $n -gt 0 ] || { echo "6 process 1 (n9) is lost" >"$BALLAST_STATUS"; exit 6; }
echo "0 done" >"$BALLAST_STATUS"
S
chmod +x told.sh
test_expect_success 'slurmd is away for long: the old script leaves the new attempt alone' '
    submit told --export=ALL,BALLAST=./told.sh && within 30 test -e told.0 && node=$(fact $job BatchHost) &&
    cluster killd $node && within 120 test -e told.1 && : >end.0 &&
    within 30 grep "Slurm has requeued this job already" told.log; rc=$?; : >end.1 && test $rc -eq 0 &&
    ends $job COMPLETED 0 && test "$(fact $job Restarts)" -eq 1 && cluster startd $node && within 60 back $node'

test_expect_success MULTI 'the node of process 0 loses power' '
    submit first --export=ALL,PACE=500 && within 30 rows first 7 && node=$(fact $job BatchHost) && cluster kill $node &&
    within 120 restarted $job && once_more first $job; rc=$?; cluster start $node && within 60 back $node && test $rc -eq 0'

test_expect_success MULTI 'a link is cut for longer than cluster.timeout' '
    submit link --export=ALL,PACE=500 && within 30 rows link 7 && node=$(node_of $job) && cluster cut $node &&
    within 60 grep "process [0-9]* ($node)" link.log; rc=$?; cluster heal $node && test $rc -eq 0 &&
    once_more link $job && within 60 back $node'

# The old processes go on, while Slurm thinks that they are gone and starts the runs elsewhere. Those
# of one node hear nothing of that; those of several hear it from the others.
test_expect_success 'slurmd is away for long: old processes do not spoil the new attempt' '
    submit alone -N1 --ntasks-per-node=1 --export=ALL,PACE=3000 && alone=$job && submit zombie --export=ALL,PACE=3000 &&
    within 30 rows alone 3 && within 30 rows zombie 3 && node=$(fact $alone BatchHost) && cluster killd $node &&
    within 120 restarted $alone && ends $job COMPLETED 0 150 && as_whole zombie && ends $alone COMPLETED 0 150 &&
    as_whole alone && grep "attempt 2 takes over" alone.log && ! grep "does not end" alone.log; rc=$?
    cluster startd $node && within 60 back $node && test $rc -eq 0'

test_done
