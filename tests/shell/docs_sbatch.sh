#!/bin/sh
# Stand-in for sbatch in docs.t: options before the script are dropped, the script runs now; with
# --array=A-B once for each number.
first='' last=''
while [ $# -gt 0 ]; do
    case $1 in
    --array=*)
        first=${1#--array=} && first=${first%%%*}
        last=${first#*-} && first=${first%-*}
        shift
        ;;
    --*=*) shift ;;
    *) break ;;
    esac
done
export SLURM_JOB_ID=1 SLURM_CPUS_PER_TASK=1
[ -n "$first" ] || exec bash "$@"
export SLURM_ARRAY_JOB_ID=1
for SLURM_ARRAY_TASK_ID in $(seq "$first" "$last"); do
    export SLURM_ARRAY_TASK_ID
    bash "$@" || exit
done
