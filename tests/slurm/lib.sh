# Common part of the tests on a Slurm cluster: the cluster, jobs, what must hold after them.
# A test file names itself in `cluster_name` and its nodes in `cluster_nodes` before it reads this.
# shellcheck shell=sh
. "${top_srcdir:-.}/tests/shell/lib.sh"
CLUSTER=$SOURCE/tests/slurm/cluster.sh
SLURMTEST_ROOT=$BUILD/tests/slurm/scratch/$cluster_name
SLURMTEST_TTL=1200
FIXTURES=$BUILD/tests/fixtures/plugins/.libs
export SLURMTEST_ROOT SLURMTEST_TTL
for name in $(env | sed -n 's/^\(SLURM_[A-Z_]*\|SBATCH_[A-Z_]*\)=.*/\1/p'); do
    unset "$name" # this may itself run in a job
done

# Processes of a run; with several, half of them are on each of two nodes.
: "${BALLAST_TEST_RANKS:=4}"
ranks=$BALLAST_TEST_RANKS
if [ "$ranks" -gt 1 ]; then
    test_set_prereq MULTI
    shape="-N2 --ntasks-per-node=$((ranks / 2)) -c1"
else
    shape="-N1 --ntasks-per-node=1 -c1"
fi

if [ "${BALLAST_TEST_SLURM:-yes}" = no ]; then
    skip_all="BALLAST_TEST_SLURM=no"
elif ! reason=$(bash "$CLUSTER" missing); then
    skip_all="no Slurm cluster can be made here: $reason"
fi
if [ -n "${skip_all:-}" ]; then
    echo "SKIP: $skip_all"
    EXIT_OK=t
    exit 77
fi

cluster() { bash "$CLUSTER" "$@"; }
ctl() { timeout 30 bash "$CLUSTER" exec ctl "$@"; }

# However the test ends, the cluster ends. `die` is sharness's own end.
trap 'code=$?; cluster down; (exit $code); die' EXIT
trap 'exit 1' HUP INT TERM
cluster down
if ! cluster up "$cluster_nodes"; then
    echo "the cluster does not come up"
    exit 1
fi

# A tiny model of odd sizes, a checkpoint every five steps. The steps of a first attempt take PACE
# milliseconds each. `whole` is the run that nobody disturbs: one process that plays all ranks.
steps=40
cat >job.cfg <<CFG
run = { name = "job"; steps = $steps; checkpoint_every = 5; keep = 3; };
model = { layers = 2; width = 20; heads = 2; context = 12; tied = false; };
data = { source = "synthetic"; vocab = 61; };
batch = { sequences = 16; micro = 2; };
optimizer = { plugin = "adamw"; lr = 1e-2; };
schedule = { plugin = "cosine"; warmup = 2; };
guards = ( { plugin = "clip_norm"; max = 1.0; } );
monitors = ( { plugin = "norms"; every = 1; }, { plugin = "pace"; } );
sinks = ( { plugin = "jsonl"; } );
cluster = { emulate = $ranks; timeout = 10.0; };
plugin_path = [ "$FIXTURES" ];
CFG

# submit NAME [SBATCH-OPTION...] -- [KEY=VALUE...]: a job of train.sbatch, the run runs/NAME; its
# number is in $job, its output in NAME.log.
submit() {
    submit_name=$1
    shift
    options=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    [ $# -eq 0 ] || shift
    # shellcheck disable=SC2086 # words are wanted
    job=$(ctl sbatch --parsable $shape -o "$PWD/$submit_name.log" $options "$SOURCE/slurm/train.sbatch" job.cfg \
        run.name="$submit_name" "$@") && echo "job $job"
}

# within SECONDS COMMAND...: until it succeeds.
within() {
    end=$(($(date +%s) + $1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt $end ] || { echo "in vain: $*"; ctl squeue -l -t all; return 1; }
        sleep 0.2
    done
}
state() { ctl squeue -h -t all -o %T -j "$1"; }
is() { [ "$(state "$1")" = "$2" ]; }
fact() { ctl scontrol show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"; } # JOB KEY
over() { # JOB: it ended, however
    case $(state "$1") in '' | PENDING | RUNNING | COMPLETING | CONFIGURING | SUSPENDED | REQUEUED) false ;; esac
}
# ends JOB STATE CODE [SECONDS]: the job ends so.
ends() {
    within "${4:-60}" over "$1" || return 1
    [ "$(state "$1") $(fact "$1" ExitCode)" = "$2 $3:0" ] ||
        { ctl scontrol show job "$1"; cat "$submit_name.log"; return 1; }
}
restarted() { [ "$(fact "$1" Restarts)" -ge "${2:-1}" ]; } # JOB [TIMES]

rows() { # NAME N: there are so many rows
    [ -e "runs/$1/metrics.jsonl" ] && [ "$(wc -l <"runs/$1/metrics.jsonl")" -ge "$2" ]
}

# Of every step the row of its last attempt, without what a clock, a name or the attempt decides.
# Fails when an attempt has a step twice or steps are missing.
last_rows() { # NAME
    metrics "$1" | awk -v steps="$steps" '
        { a = s = $0; sub(/.*"attempt": */, "", a); a += 0; sub(/.*"step": */, "", s); s += 0
          sub(/"attempt": *[0-9]+,? */, "") }
        (a, s) in seen { print "attempt " a " has step " s " twice"; bad = 1 }
        { seen[a, s] = 1 }
        !(s in newest) || a >= newest[s] { newest[s] = a; row[s] = $0 }
        END { for (s = 1; s <= steps; s++) if (s in row) print row[s]; else { print "no step " s; bad = 1 }
              exit bad }'
}

# as_whole NAME: weights and optimizer are those of the undisturbed run, byte for byte, and so is
# what metrics.jsonl says of every step.
as_whole() {
    { cmp "runs/whole/checkpoints/$steps/model.safetensors" "runs/$1/checkpoints/$steps/model.safetensors" &&
        "$BALLAST" weights "runs/whole/checkpoints/$steps" "runs/$1/checkpoints/$steps" >compare.out &&
        last_rows whole >whole.rows && last_rows "$1" >"$1.rows" &&
        cmp whole.rows "$1.rows"; } || { head -n 60 "$1.log" "$1.rows"; return 1; }
}

test_expect_success 'the undisturbed run' '
    "$BALLAST" train job.cfg run.name=whole >whole.out 2>&1 || { cat whole.out; false; }'
