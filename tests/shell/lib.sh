# Common part of the shell tests: sharness, the built program, a tiny config.
# shellcheck shell=sh
: "${top_builddir:=.}" "${top_srcdir:=.}"
BUILD=$(cd "$top_builddir" && pwd)
SOURCE=$(cd "$top_srcdir" && pwd)
BALLAST=$BUILD/trainer/ballast
BALLAST_PLUGIN_PATH=$BUILD/plugins/.libs
export BUILD SOURCE BALLAST BALLAST_PLUGIN_PATH
unset BALLAST_ISA
unset MAKEFLAGS MFLAGS MAKELEVEL # a test that runs make is no part of the make that runs it
if [ ! -r /usr/share/sharness/sharness.sh ]; then
    echo "SKIP: sharness is not installed"
    exit 77
fi
SHARNESS_TEST_DIRECTORY=$BUILD/tests/shell/scratch
mkdir -p "$SHARNESS_TEST_DIRECTORY"
export SHARNESS_TEST_DIRECTORY
. /usr/share/sharness/sharness.sh

# tiny.cfg: a model that trains a step in milliseconds, no files needed.
write_tiny() {
    cat >tiny.cfg <<'CFG'
run = { name = "tiny"; steps = 6; eval_tokens = 480; };
model = { layers = 2; width = 32; heads = 4; context = 24; tied = false; };
data = { source = "synthetic"; vocab = 61; };
batch = { sequences = 8; micro = 4; };
optimizer = { plugin = "adamw"; lr = 1e-2; };
schedule = { plugin = "cosine"; warmup = 2; };
guards = ( { plugin = "clip_norm"; max = 1.0; } );
monitors = ( { plugin = "logits"; every = 1; }, { plugin = "gauge"; every = 1; },
             { plugin = "norms"; every = 1; per_tensor = true; } );
sinks = ( { plugin = "jsonl"; } );
CFG
}

# await COMMAND...: until it succeeds; a minute at most, as test machines may be busy.
await() {
    for _ in $(seq 600); do
        "$@" && return
        sleep 0.1
    done
    echo "in vain: $*"
    return 1
}

# train NAME [KEY=VALUE...]: a fresh run of tiny.cfg in runs/NAME.
train() {
    name=$1
    shift
    "$BALLAST" train --fresh tiny.cfg run.name="$name" "$@" >"$name.out" 2>&1 ||
        { cat "$name.out"; return 1; }
}

# begin NAME [OPTION | KEY=VALUE...]: a start of tiny.cfg with whatever there is in runs/NAME; its code.
# A run that should end by itself and does not is a failure, not a hang.
begin() {
    name=$1
    shift
    timeout -s KILL 60 "$BALLAST" train tiny.cfg run.name="$name" "$@" >"$name.out" 2>&1
}

# two NAME [OPTION | KEY=VALUE...]: the same by two processes, output in NAME.0.out and NAME.1.out; the
# code of process 0, or 1 when the other one failed alone.
two() {
    name=$1
    shift
    rm -rf meet && mkdir meet || return 1
    for p in 1 0; do
        BALLAST_PROCESS=$p BALLAST_PROCESSES=2 BALLAST_MEET=$PWD/meet timeout -s KILL 60 \
            "$BALLAST" train tiny.cfg run.name="$name" run.threads=1 "$@" >"$name.$p.out" 2>&1 &
        eval "pid$p=\$!"
    done
    other=0
    # shellcheck disable=SC2154 # set by eval
    wait "$pid1" || other=$?
    # shellcheck disable=SC2154
    wait "$pid0" && test $other -eq 0
}

# several_processes: the prerequisite PROCESSES, where two works.
several_processes() {
    if two probe --fresh run.steps=1; then
        test_set_prereq PROCESSES
    else
        say "several processes cannot be started here (built without UCX?): their tests are skipped"
    fi
}

# same A B / differs A B: the final weights and optimizer state of two runs, bit by bit.
same() {
    for part in model optimizer-1-of-1; do
        "$BALLAST" weights "runs/$1/checkpoints/${3:-6}/$part.safetensors" \
            "runs/$2/checkpoints/${3:-6}/$part.safetensors" >compare.out 2>&1 ||
            { grep -v identical compare.out; return 1; }
    done
}
differs() {
    "$BALLAST" weights "runs/$1/checkpoints/6/model.safetensors" \
        "runs/$2/checkpoints/6/model.safetensors" >compare.out 2>&1
    test $? -eq 1 && grep -q " differ$" compare.out
}

# close METRIC A B TOLERANCE: the last rows of two runs have it, within a relative tolerance.
close() {
    for run in "$2" "$3"; do
        tail -n 1 "runs/$run/metrics.jsonl" | sed -n "s|.*\"$1\": *\([-0-9.e+]*\).*|\1|p"
    done >values
    awk -v t="$4" '{ x[NR] = $1 } END { d = x[1] - x[2]; if (d < 0) d = -d
        print x[1], x[2], d; exit !(NR == 2 && x[2] > 0 && d <= t * x[2]) }' values
}

# metrics NAME: the rows without what a clock or a name decides.
metrics() {
    sed -E 's/"((time|perf)\/[a-z_]+|rank\/(step|wait)_seconds\/[a-z]+|time)": *[^,}]+,? *//g; s/"run": *"[^"]*",? *//' "runs/$1/metrics.jsonl"
}
