#!/bin/sh
# slurm/matrix.sbatch: a job array whose tasks are runs.
test_description='a job array of runs'
cluster_name=matrix cluster_nodes=2
. "${top_srcdir:-.}/tests/slurm/lib.sh"

cat >lr.txt <<'A'
# the arms
optimizer.lr=1e-2

optimizer.lr=5e-3 schedule={plugin="constant"}
  optimizer.lr=1e-3 run.name=slowest
A

# matrix ARRAY [SBATCH-OPTION...]: its number is in $job, the output of task N in arm-N.log.
matrix() {
    array=$1
    shift
    # shellcheck disable=SC2086 # words are wanted
    job=$(BALLAST_TRAIN_SBATCH=$SOURCE/slurm/train.sbatch ctl sbatch --parsable --array="$array" $shape \
        -o "arm-%a.log" "$@" "$SOURCE/slurm/matrix.sbatch" job.cfg lr.txt run.keep=2)
}
all_over() { # JOB: no task of it is left
    [ -z "$(ctl squeue -h -j "$1" -o %i 2>/dev/null)" ]
}
states() { ctl squeue -h -t all -r -j "$1" -o '%K %T' | sort; } # JOB: of its tasks

test_expect_success 'a line is a run: its overrides, its name' '
    matrix 1-3 && within 60 all_over $job && states $job >got && printf "%s COMPLETED\n" 1 2 3 >wanted && test_cmp wanted got &&
    ls runs >got && printf "%s\n" lr-001 lr-002 slowest whole >wanted && test_cmp wanted got &&
    as_whole lr-001 && grep "lr = 0.005" runs/lr-002/config.cfg && grep "constant" runs/lr-002/config.cfg &&
    grep "lr = 0.001" runs/slowest/config.cfg && grep "keep = 2" runs/slowest/config.cfg'

test_expect_success 'the same line again: finished arms are left as they are' '
    rm -r runs/lr-002 && cksum runs/lr-001/metrics.jsonl >before && matrix 1-3 && within 60 all_over $job &&
    cksum runs/lr-001/metrics.jsonl | cmp before - && grep "runs/lr-001: complete, all $steps steps are done" arm-1.log &&
    test "$(grep -c . runs/lr-002/metrics.jsonl)" -eq $steps'

# The last task of an array has the number of the array itself.
test_expect_success 'one task near its limit: it alone is requeued' '
    rm -r runs/lr-001 runs/slowest && matrix 1,3 --export=ALL,PACE=200 && within 30 rows lr-001 7 &&
    within 30 rows slowest 7 && ctl scancel --batch -s USR1 ${job}_3 && within 60 all_over $job && as_whole lr-001 &&
    test "$(grep -c . runs/slowest/metrics.jsonl)" -ge $steps && grep -q "\"attempt\": *2" runs/slowest/metrics.jsonl &&
    ! grep "\"attempt\": *2" runs/lr-001/metrics.jsonl'

test_expect_success 'what is missing is said: the line, the file, the array, train.sbatch' '
    matrix 4 && within 30 all_over $job && grep "lr.txt has no arm 4" arm-4.log &&
    says() { pattern=$1; shift; { SLURM_JOB_ID=1 "$@" 2>err; test $? -eq 2; } && grep -e "$pattern" err; } &&
    says "usage:" bash "$SOURCE/slurm/matrix.sbatch" job.cfg && says "array" bash "$SOURCE/slurm/matrix.sbatch" job.cfg lr.txt &&
    says "train.sbatch is not there" env SLURM_ARRAY_TASK_ID=1 bash "$SOURCE/slurm/matrix.sbatch" job.cfg lr.txt &&
    says "none.txt cannot be read" env SLURM_ARRAY_TASK_ID=1 BALLAST_TRAIN_SBATCH="$SOURCE/slurm/train.sbatch" \
        bash "$SOURCE/slurm/matrix.sbatch" job.cfg none.txt'

test_done
