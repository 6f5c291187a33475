#!/bin/sh
test_description='ballast doctor: what would stop a run here'
. "${top_srcdir:-.}/tests/shell/lib.sh"
for name in $(env | sed -n 's/^\(SLURM_[A-Z_]*\|PMI_[A-Z_]*\|BALLAST_PROCESS[A-Z]*\|CUDA_VISIBLE_DEVICES\)=.*/\1/p'); do
    unset "$name"
done
write_tiny

# doctor CODE ARGUMENT...: its lines in out, errors in err
doctor() {
    code=$1
    shift
    timeout 60 "$BALLAST" doctor "$@" >out 2>err
    test $? -eq "$code" || { cat out err; return 1; }
}
# says STATE NAME PATTERN: a line of a check; its fix is in the next one
says() { grep -Eq "^$1 +$2 +.*$3" out || { cat out err; return 1; }; }
fix() { grep -q "^ * fix: .*$1" out || { cat out err; return 1; }; }

test_expect_success 'a machine of one own: short and without trouble' '
    doctor 0 && says ok processes "no Slurm job" && grep -q "^nothing to complain about" out &&
    test $(wc -l <out) -le 12 && ! test -s err'
test_expect_success 'with a config: it loads, and nothing is left behind' '
    doctor 0 tiny.cfg && says ok set-up "9 plugins load" && says ok memory free &&
    says ok disk "4 checkpoints of" && says ok "run directory" runs/tiny && ! test -e runs'
test_expect_success 'overrides count' '
    doctor 0 tiny.cfg run.keep=6 run.ring=3 run.name=other &&
    says ok disk "10 checkpoints of" && says ok "run directory" runs/other'
test_expect_success 'a config that cannot be used ends with 2, one line' '
    doctor 2 tiny.cfg run.nam=x && grep -q "did you mean \"name\"" err && test $(wc -l <err) -eq 1 &&
    ! test -s out && doctor 2 --fast'
test_expect_success 'a run directory that cannot be made' '
    : >file && doctor 1 tiny.cfg run.dir=file/runs && says FAILED "run directory" file &&
    fix "run.dir = " && grep -q "1 of the checks failed: run directory" err'
test_expect_success 'files that are limited to less than a checkpoint' '
    (ulimit -f 100 && doctor 1 tiny.cfg) && says FAILED limits "a checkpoint takes" &&
    fix "ulimit -f unlimited"'
test_expect_success 'more threads than CPUs' '
    doctor 0 tiny.cfg run.threads=900 && says warning CPUs "900 threads of 1 process" &&
    fix "run.threads = " && grep -q "^1 warning; a run can start" out'
if taskset -c 0 true 2>/dev/null; then test_set_prereq TASKSET; fi
test_expect_success TASKSET 'one CPU where eight threads are wanted' '
    timeout 60 taskset -c "$(taskset -pc $$ | sed "s/.*: //; s/[-,].*//")" \
        "$BALLAST" doctor tiny.cfg run.threads=8 >out && says warning CPUs "on 1 CPU" &&
    fix "run.threads = 1"'

# A stand-in for the commands of Slurm; %L of squeue is what is left of the time limit.
mkdir bin
cat >bin/squeue <<'SH'
#!/bin/sh
echo 1:00
SH
cat >bin/scontrol <<'SH'
#!/bin/sh
case "$2" in
job) echo "JobId=77 Requeue=0 Restarts=0 BatchFlag=1" ;;
config) echo "KillWait                = 30 sec" ;;
esac
SH
chmod +x bin/squeue bin/scontrol
in_job() { # CODE ARGUMENT...: with VARIABLE=value in $job
    (PATH=$PWD/bin:$PATH && SLURM_JOB_ID=77 && export PATH SLURM_JOB_ID &&
        for v in $job; do export "${v?}"; done && doctor "$@")
}

test_expect_success 'tasks of a step that do not know each other: one of them speaks' '
    job="SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 SLURM_PROCID=0" && in_job 1 tiny.cfg &&
    says FAILED processes "each of the 4 tasks" && fix "srun --mpi=pmi2" &&
    says ok set-up load &&
    job="SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 SLURM_PROCID=3" && in_job 0 tiny.cfg &&
    ! test -s out && ! test -s err &&
    job="SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 SLURM_PROCID=0 PMI_FD=9 PMI_SIZE=1" &&
    in_job 1 tiny.cfg && says FAILED processes "without --mpi=pmi2"'
test_expect_success 'one process of a job of many' '
    job="SLURM_NTASKS=4" && in_job 0 tiny.cfg && says warning processes "only .* is looked at" &&
    fix "srun --mpi=pmi2"'
test_expect_success 'a job that is not requeued' '
    says warning requeue "not started again" && fix "#SBATCH --requeue"'
test_expect_success 'hidden GPUs' '
    job="SLURM_JOB_GPUS=0,1 CUDA_VISIBLE_DEVICES=" && in_job 0 && says warning GPUs "see none" &&
    fix "gpus-per-task=1" &&
    job="SLURM_JOB_GPUS=0,1 CUDA_VISIBLE_DEVICES=0,1" && in_job 0 && says ok GPUs "2 visible"'

# A run that takes 10 seconds a step, by its metrics.
mkdir -p runs/tiny
for step in 1 2 3; do
    echo "{\"step\":$step,\"perf/step_seconds\":10.0}"
done >runs/tiny/metrics.jsonl
test_expect_success 'a time limit that is shorter than the time between checkpoints' '
    job="" && in_job 1 tiny.cfg run.steps=100 run.checkpoint_every=50 &&
    says FAILED "time limit" "60 s are left.*every 8 minutes" && fix "checkpoint_every = 1," &&
    in_job 0 tiny.cfg run.steps=100 run.checkpoint_every=5 && says ok "time limit" "every 50 s"'
test_expect_success 'what an earlier run left is untouched' 'test $(ls -A runs/tiny | wc -l) -eq 1'

# A disk of 1 MiB, in a name space of its own so that nothing stays mounted.
small_disk() { # ARGUMENT...
    unshare -m sh -c 'mount -t tmpfs -o size=1m none full && exec timeout 60 "$@"' sh \
        "$BALLAST" doctor tiny.cfg run.dir=full "$@" >out 2>err
}
mkdir full
if unshare -m mount -t tmpfs none full 2>/dev/null; then test_set_prereq DISK; fi
test_expect_success DISK 'a disk that is too small' '
    test_expect_code 1 small_disk && says FAILED disk "MB are free, 4 checkpoints of" &&
    fix "run.keep = 1" && small_disk run.keep=1 && says ok disk "2 checkpoints"'

# together CODE ARGUMENT...: as two processes, which meet in a folder; $other: VARIABLE=value of
# process 1 alone.
together() {
    code=$1
    shift
    rm -rf meet && mkdir meet || return 1
    BALLAST_PROCESSES=2 BALLAST_MEET=$PWD/meet BALLAST_PROCESS=1 \
        timeout 60 env "$other" "$BALLAST" doctor "$@" >out.1 2>err.1 &
    BALLAST_PROCESSES=2 BALLAST_MEET=$PWD/meet BALLAST_PROCESS=0 \
        timeout 60 "$BALLAST" doctor "$@" >out 2>err
    test $? -eq "$code" && wait $! && return
    cat out err out.1 err.1
    return 1
}
if [ -e "$BALLAST_PLUGIN_PATH/transport_ucx.so" ]; then test_set_prereq PROCESSES; fi
test_expect_success PROCESSES 'two processes: one of them speaks for both' '
    other=A=1 && together 0 tiny.cfg run.threads=1 && says ok processes "2 on 1 host" &&
    says ok set-up "in every process" && says ok config "the same in every process" &&
    says ok locks "will be refused" && ! test -s out.1 && ! test -s err.1'
test_expect_success PROCESSES 'a plugin that is another file in one process' '
    mkdir other && cp "$BALLAST_PLUGIN_PATH"/*.so other/ && printf x >>other/monitor_norms.so &&
    other=BALLAST_PLUGIN_PATH=$PWD/other && together 1 tiny.cfg &&
    says FAILED plugins "monitor.norms is another file" && fix plugin_path'
# Waits for as long as a file that another node wrote may take: 10 seconds.
test_expect_success PROCESSES 'another config; a run directory that only process 0 sees' '
    mkdir elsewhere && sed "s/lr = 1e-2/lr = 2e-2/" tiny.cfg >elsewhere/tiny.cfg &&
    other=--chdir=$PWD/elsewhere && together 1 tiny.cfg run.name=unseen &&
    says FAILED config "another one" && says FAILED "run directory" "runs/unseen.*not seen by" &&
    fix "all nodes share" && ! test -e runs/unseen'
test_expect_success PROCESSES 'a config that one process cannot use' '
    other=BALLAST_ISA=nonsense && together 1 tiny.cfg && says FAILED set-up "not on .*nonsense"'
test_expect_success PROCESSES 'a config that no process can use: one line, exit 2' '
    other=A=1 && together 2 tiny.cfg run.nam=x && test $(wc -l <err) -eq 1 && ! test -s err.1'
CUDA_VISIBLE_DEVICES=0
export CUDA_VISIBLE_DEVICES
test_expect_success PROCESSES 'two processes with one GPU' '
    other=A=1 && together 1 && says FAILED GPUs "processes 0 and 1 both get GPU 0" &&
    fix "gpus-per-task=1"'
test_expect_success PROCESSES 'two processes with a GPU each' '
    other=CUDA_VISIBLE_DEVICES=1 && together 0 && says ok GPUs "its own"'

test_done
