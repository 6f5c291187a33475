#!/bin/sh
# A run and everything that may be done to it: signals in every phase, its directory, its output,
# limits of the process. One clear line, the documented exit code, and a directory that goes on to
# the same bits.
test_description='robustness'
. "${top_srcdir:-.}/tests/shell/lib.sh"

write_tiny
FIXTURES=$BUILD/tests/fixtures/plugins/.libs
sed -e 's/source = "synthetic"; vocab = 61;/source = "phase";/' \
    -e 's/steps = 6;/steps = 6; checkpoint_every = 2; eval_every = 2; keep = 9;/' \
    -e '/monitors =/,/norms/d' -e '/^sinks/d' tiny.cfg >phase.cfg
cat >>phase.cfg <<CFG
monitors = ( { plugin = "phase"; } );
sinks = ( { plugin = "jsonl"; }, { plugin = "phase"; } );
plugin_path = [ "$FIXTURES" ];
CFG
INT=2 KILL=9 USR1=10 TERM=15

# run NAME [VARIABLE=VALUE...] [-- KEY=VALUE...]: a run of phase.cfg, never longer than 20 seconds.
run() {
    run_name=$1
    shift
    variables=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        variables="$variables $1"
        shift
    done
    [ $# -eq 0 ] || shift
    # shellcheck disable=SC2086 # words are wanted
    env $variables timeout -s KILL 20 "$BALLAST" train phase.cfg run.name="$run_name" "$@" \
        >"$run_name.out" 2>"$run_name.err"
}

# says NAME PATTERN: the last line on standard error has it, and there was no line like a crash's.
says() {
    tail -n 1 "$1.err" | grep -E "$2" || { echo "no /$2/ in:"; cat "$1.err"; return 1; }
}

no_leftovers() {
    find "runs/$1" -name '.tmp-*' -o -name '.old-*' -o -name '.out-*' -o -name '*.tmp-*' >left
    test ! -s left || { cat left; return 1; }
}

# goes_on NAME: the same command finishes it, with the bits of the run that nobody disturbed.
goes_on() {
    run "$@" || { cat "$1.err"; return 1; }
    no_leftovers "$1" && same whole "$1"
}

test_expect_success 'the undisturbed run' 'run whole && says whole complete && no_leftovers whole'

# ---- signals: PHASE CALL SIGNAL, exit code, last line --------------------------------------------

signal_at() { # NAME CODE PATTERN VARIABLE...
    signal_name=$1 code=$2 pattern=$3
    shift 3
    printf '%s\n' "$@" >args
    test_expect_success "signal: $signal_name" '
        rm -rf runs/x && set -- $(cat args) && { run x "$@"; got=$?; } &&
        { test $got -eq $code || { echo "exit $got, not $code"; cat x.err; false; }; } &&
        says x "$pattern" && goes_on x'
}

before='before the first step: nothing was trained'
# Loading ends at once: the sleeps would last longer than the test waits.
signal_at 'INT while the data is opened' 130 "SIGINT $before" PHASE=open PHASE_SIGNAL=$INT PHASE_SECONDS=60
signal_at 'TERM while the data is opened' 75 "SIGTERM $before" PHASE=open PHASE_SIGNAL=$TERM PHASE_SECONDS=60
signal_at 'USR1 while the data is opened' 75 "SIGUSR1 $before" PHASE=open PHASE_SIGNAL=$USR1 PHASE_SECONDS=60
signal_at 'TERM while plugins are created' 75 "SIGTERM $before" PHASE=create PHASE_SIGNAL=$TERM PHASE_SECONDS=60
signal_at 'INT while outputs are opened' 130 "SIGINT $before" PHASE=outputs PHASE_SIGNAL=$INT
signal_at 'TERM at the first read' 75 "SIGTERM $before" PHASE=read PHASE_SIGNAL=$TERM PHASE_SECONDS=1
signal_at 'INT while the first batch hangs' 130 "SIGINT $before" PHASE=read PHASE_SIGNAL=$INT PHASE_SECONDS=2
signal_at 'INT in the first step' 130 'SIGINT after step 1 of 6 with a checkpoint' PHASE=observe PHASE_SIGNAL=$INT
signal_at 'TERM in a later step' 75 'SIGTERM after step 3 of 6 with a checkpoint' PHASE=observe PHASE_CALL=3 PHASE_SIGNAL=$TERM
signal_at 'USR1 in a later step' 75 'SIGUSR1 after step 3 of 6' PHASE=observe PHASE_CALL=3 PHASE_SIGNAL=$USR1
signal_at 'USR1 while a batch is read ahead' 75 'SIGUSR1 after step [12] of 6' PHASE=read PHASE_CALL=17 PHASE_SIGNAL=$USR1
signal_at 'TERM while it evaluates' 75 'SIGTERM after step 2 of 6' PHASE=evaluate PHASE_CALL=3 PHASE_SIGNAL=$TERM
signal_at 'TERM while it writes a checkpoint' 75 'SIGTERM after step 2 of 6' PHASE=save PHASE_SIGNAL=$TERM
signal_at 'TERM twice while it writes a checkpoint' 75 'SIGTERM after step 2 of 6' PHASE=save PHASE_SIGNAL=$TERM PHASE_TIMES=2
signal_at 'INT while the last row is written' 0 'complete' PHASE=write PHASE_CALL=6 PHASE_SIGNAL=$INT
signal_at 'TERM while sinks finish' 0 'complete' PHASE=finish PHASE_SIGNAL=$TERM
signal_at 'USR1 while it ends' 0 'complete' PHASE=destroy PHASE_SIGNAL=$USR1

test_expect_success 'a signal cuts an evaluation off, and saves once' '
    rm -rf runs/x && { run x PHASE=evaluate PHASE_CALL=3 PHASE_SIGNAL=$TERM; test $? -eq 75; } &&
    ! grep loss/val runs/x/metrics.jsonl && test "$(grep -c "^checkpoint" x.err)" -eq 1 && goes_on x'

test_expect_success 'the last evaluation is not cut off' '
    rm -rf runs/x && run x PHASE=evaluate PHASE_CALL=43 PHASE_SIGNAL=$INT && says x complete &&
    tail -n 1 runs/x/metrics.jsonl | grep loss/val'

test_expect_success 'a second INT ends at once: no checkpoint of this step, the older ones stay' '
    rm -rf runs/x && { run x PHASE=observe PHASE_CALL=3 PHASE_SIGNAL=$INT PHASE_TIMES=2 -- run.save=sync; test $? -eq 130; } &&
    ls runs/x/checkpoints >list && echo 2 >two && test_cmp two list && goes_on x'

test_expect_success 'a second INT while it writes a checkpoint' '
    rm -rf runs/x && { run x PHASE=save PHASE_CALL=2 PHASE_SIGNAL=$INT PHASE_TIMES=2; test $? -eq 130; } &&
    ls runs/x/checkpoints >list && echo 2 >two && test_cmp two list && goes_on x'

test_expect_success 'TERM while a checkpoint is loaded' '
    rm -rf runs/x && { run x PHASE=observe PHASE_CALL=3 PHASE_SIGNAL=$TERM; test $? -eq 75; } && cp -r runs/x saved &&
    { run x PHASE=load PHASE_SIGNAL=$TERM PHASE_SECONDS=60; test $? -eq 75; } && says x "SIGTERM $before" &&
    diff -r saved/checkpoints runs/x/checkpoints && goes_on x'

test_expect_success 'a signal with nothing done since the checkpoint writes none' '
    rm -rf runs/x && { run x PHASE=observe PHASE_CALL=3 PHASE_SIGNAL=$TERM; test $? -eq 75; } &&
    { run x PHASE=read PHASE_SIGNAL=$TERM PHASE_SECONDS=1; test $? -eq 75; } && says x SIGTERM &&
    ! grep "^checkpoint" x.err && goes_on x'

# wait_rows NAME N: until metrics.jsonl has so many rows.
wait_rows() {
    rows=0
    for _ in $(seq 3000); do
        [ ! -e "runs/$1/metrics.jsonl" ] || rows=$(wc -l <"runs/$1/metrics.jsonl")
        [ "$rows" -ge "$2" ] && return 0
        sleep 0.02
    done
    echo "no $2 rows"
    return 1
}
# start NAME [KEY=VALUE...]: in the background, for a long time.
start() {
    start_name=$1
    shift
    "$BALLAST" train phase.cfg run.name="$start_name" run.steps=100000 run.eval_every=0 \
        run.checkpoint_every=0 "$@" >"$start_name.out" 2>"$start_name.err" &
    pid=$!
}

# ends CODE: the run that was started last ends by itself with it, soon.
ends() {
    for _ in $(seq 1200); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    kill -9 "$pid" 2>/dev/null
    wait "$pid"
    test $? -eq "$1"
}

test_expect_success 'killed ten times, it comes to the same bits' '
    run long -- run.steps=80 run.checkpoint_every=1 run.eval_every=0 &&
    for n in 1 2 3 4 5 6 7 8 9 10; do
        seen=$(cat runs/killed/metrics.jsonl 2>/dev/null | wc -l)
        "$BALLAST" train phase.cfg run.name=killed run.steps=80 run.keep=9 run.checkpoint_every=1 run.eval_every=0 >out 2>&1 &
        pid=$! && { wait_rows killed $((seen + 1 + n % 4)); rc=$?; kill -9 $pid; wait $pid 2>/dev/null; test $rc -eq 0; } || return 1
    done; run killed -- run.steps=80 run.checkpoint_every=1 run.eval_every=0 && no_leftovers killed && same long killed 80'

test_expect_success 'stopped and continued' '
    start paused && wait_rows paused 3 && kill -STOP $pid && sleep 0.3 && kill -CONT $pid &&
    wait_rows paused $(($(wc -l <runs/paused/metrics.jsonl) + 3)); rc=$?
    kill -TERM $pid; { wait $pid; test $? -eq 75; } && test $rc -eq 0 && says paused SIGTERM'

# ---- its directory -------------------------------------------------------------------------------

test_expect_success 'ten runs at once: one trains, nine are refused, each with one line' '
    for n in 0 1 2 3 4 5 6 7 8 9; do
        timeout -s KILL 60 "$BALLAST" train phase.cfg run.name=ten run.steps=100000 run.eval_every=0 run.checkpoint_every=0 >ten.$n.out 2>ten.$n.err &
        eval "pid$n=\$!"
    done
    wait_rows ten 3 && for _ in $(seq 400); do
        test "$(grep -l "another process trains there" ten.*.err | wc -l)" -eq 9 && break; sleep 0.05; done
    one=0 nine=0
    for n in 0 1 2 3 4 5 6 7 8 9; do
        eval "p=\$pid$n"; grep -q "another process" ten.$n.err || kill -TERM $p
        wait $p; case $? in 75) one=$((one + 1)) ;; 1) nine=$((nine + 1)); test "$(wc -l <ten.$n.err)" -eq 1 || return 1 ;; esac
    done; echo $one $nine; test $one -eq 1 && test $nine -eq 9 && ls runs/ten/checkpoints/*/state.json'

for how in 'rm -rf runs/away' 'mv runs/away runs/elsewhere' \
    'rm -rf runs/away; : >runs/away' 'mv runs/away runs/old; mkdir runs/away'; do
    test_expect_success "while it runs: $how" '
        rm -rf runs/away runs/elsewhere runs/old && start away && wait_rows away 3 && eval "$how" &&
        ends 1 && says away "runs/away: was (removed or moved|replaced)" &&
        { test ! -e runs/away || test ! -e runs/away/checkpoints; }'
done

test_expect_success 'a batch that cannot be read: the steps before it are kept' '
    rm -rf runs/x && { run x PHASE=read PHASE_CALL=35 PHASE_FAIL=1 -- run.eval_every=0 run.checkpoint_every=0; test $? -eq 4; } &&
    says x "batch of step 5: sequence [0-9]+ is broken" && test "$(wc -l <runs/x/metrics.jsonl)" -eq 4 &&
    ls runs/x/checkpoints >list && echo 4 >four && test_cmp four list && goes_on x'

test_expect_success 'a held-out sequence that cannot be read: step and row are kept' '
    rm -rf runs/x && { run x PHASE=evaluate PHASE_CALL=3 PHASE_FAIL=1 -- run.checkpoint_every=0; test $? -eq 4; } &&
    says x "evaluation after step 2: " && test "$(wc -l <runs/x/metrics.jsonl)" -eq 2 &&
    ls runs/x/checkpoints >list && echo 2 >two && test_cmp two list && goes_on x'

test_expect_success 'a signal and an alarm that stops, in one step: the alarm, one checkpoint' '
    rm -rf runs/x && stop="alarms=({metric=\"optim/lr\";above=0.0;from=3;action=\"stop\"})" &&
    { run x PHASE=observe PHASE_CALL=3 PHASE_SIGNAL=$TERM -- "$stop" run.checkpoint_every=0; test $? -eq 7; } &&
    says x "stopped after step 3 of 6 with a checkpoint by alarms.0.: optim/lr" &&
    test "$(grep -c "^checkpoint" x.err)" -eq 1 && goes_on x'

test_expect_success 'a sink that fails stops nothing' '
    rm -rf runs/x && run x PHASE=write PHASE_CALL=2 PHASE_FAIL=1 && grep "1 rows* of metrics could not" x.err && same whole x'

test_expect_success 'a plugin that is gone, and back' '
    mkdir own && cp "$FIXTURES"/*_phase.so own/ && rm -rf runs/x &&
    { run x PHASE=observe PHASE_CALL=3 PHASE_SIGNAL=$TERM -- "plugin_path=[\"own\"]"; test $? -eq 75; } && cp -r runs/x saved2 &&
    mv own/monitor_phase.so aside.so && { run x -- "plugin_path=[\"own\"]"; test $? -eq 3; } && says x "phase" &&
    diff -r saved2 runs/x && mv aside.so own/monitor_phase.so && goes_on x -- "plugin_path=[\"own\"]"'

# ---- file systems: needs a mount namespace -------------------------------------------------------

if unshare -m sh -c 'mount -t tmpfs none /mnt' 2>/dev/null; then
    test_set_prereq MOUNT
else
    say "no private mounts here (not root?): the tests of full and read-only file systems are skipped"
fi

# in_tmpfs OPTIONS SCRIPT: with a tmpfs at disk/ that nobody else sees.
in_tmpfs() {
    mkdir -p disk && BALLAST=$BALLAST unshare -m sh -c "mount -t tmpfs -o $1 none disk || exit 9; $2"
}
TRAIN='timeout -s KILL 20 "$BALLAST" train phase.cfg run.dir=disk run.name=d'

test_expect_success MOUNT 'a read-only file system' '
    in_tmpfs ro "$TRAIN 2>err; test \$? -eq 1 && test \$(wc -l <err) -eq 1 && grep -i \"disk/d.*read-only\" err"'

test_expect_success MOUNT 'a full disk at the start' '
    in_tmpfs size=64k "dd if=/dev/zero of=disk/fill bs=1k count=64 2>/dev/null; $TRAIN 2>err; test \$? -eq 1 &&
        cat err && test \$(wc -l <err) -eq 1 && grep \"disk/d.*No space left\" err"'

# One checkpoint of this model is 0.6 MB: two fit, the third does not.
test_expect_success MOUNT 'a full disk at a checkpoint: the older ones stay, and it goes on with room' '
    in_tmpfs size=1300k "$TRAIN 2>err; test \$? -eq 1 && tail -n 1 err | grep \"disk/d/checkpoints.*No space left\" &&
        test ! -e disk/d/checkpoints/6 && test -s disk/d/checkpoints/4/state.json && ! ls -d disk/d/checkpoints/.tmp* 2>/dev/null &&
        mount -o remount,size=8m disk && $TRAIN 2>err && grep resuming.*/4 err && rm -rf runs/full && cp -r disk/d runs/full" &&
    same whole full'

test_expect_success MOUNT 'a full disk between checkpoints: rows are lost and counted, the run is not' '
    in_tmpfs size=8m "$TRAIN run.checkpoint_every=0 run.steps=100000 run.eval_every=0 >out 2>err & pid=\$!;
        for _ in \$(seq 400); do test -s disk/d/metrics.jsonl && break; sleep 0.02; done
        dd if=/dev/zero of=disk/fill bs=64k 2>/dev/null; sleep 0.5; grep \"metrics.jsonl.*No space left\" err; rc=\$?
        rm disk/fill; kill -TERM \$pid; wait \$pid; test \$? -eq 75 && test \$rc -eq 0 &&
        grep \"rows of metrics could not be written\" err && ! grep -v \"^{.*}\\\$\" disk/d/metrics.jsonl"'

# ---- standard output and error -------------------------------------------------------------------

console='sinks=({plugin="jsonl"},{plugin="console"})'
test_expect_success 'standard output that is full, gone, closed; standard error that is closed' '
    for how in ">/dev/full" "| true" ">&-" "2>&-" ">&- 2>&- <&-" "2>/dev/full"; do
        rm -rf runs/x runs/code && eval "{ timeout 20 \"\$BALLAST\" train phase.cfg run.name=x \"\$console\"; echo \$? >code; } $how" 2>/dev/null
        echo "$how: $(cat code)"; test "$(cat code)" -eq 0 && test "$(wc -l <runs/x/metrics.jsonl)" -eq 6 &&
        ! grep -v "^{.*}\$" runs/x/metrics.jsonl && same whole x || return 1
    done'

# ---- limits --------------------------------------------------------------------------------------

# Whatever the limit, a run ends by itself: it trains, or it says in one line why not. What it says
# comes through a pipe, which no limit closes.
limited() { # ULIMIT-OPTION VALUE
    rm -rf runs/x
    said=$(timeout -s KILL 30 sh -c "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit $1 $2 && exec \"\$BALLAST\" train phase.cfg run.name=x" 2>&1; echo "exit $?")
    limit_code=${said##*exit }
    echo "$said" | sed '$d' >x.err
    case $limit_code in
    0) same whole x ;;
    1 | 3 | 4 | 5) tail -n 1 x.err | grep -q "^ballast: error: " && { test ! -e runs/x || no_leftovers x; } ;;
    *) false ;;
    esac || { echo "ulimit $1 $2: exit $limit_code"; cat x.err; return 1; }
    echo "ulimit $1 $2: exit $limit_code: $(tail -n 1 x.err)"
}

test_expect_success 'few descriptors' '
    for n in 5 6 7 8 9 10 11 12 14 16 20 32; do limited -n $n || return 1; done; test $limit_code -eq 0'
test_expect_success 'a limit on file sizes' '
    for n in 0 1 8 64 512 8192; do limited -f $n || return 1; done; test $limit_code -eq 0'
if "$BALLAST" --version >/dev/null && ! grep -q "fsanitize=[a-z,]*address" "$BUILD/config.log"; then
    test_expect_success 'a limit on address space' '
        for n in 100000 200000 300000 400000 600000 1000000 4000000; do limited -v $n || return 1; done; test $limit_code -eq 0'
fi

# ---- held-out data -------------------------------------------------------------------------------

# Of 41 sequences the last 8 are made of a byte that the others do not have. Held out, it is never
# learned: the loss on it stays above log 256 = 5.5. With half of them held out it is.
test_expect_success 'data.holdout: trained on the rest, evaluated on the last share' '
    held() {
        train hold "data={source=\"text\";train=[\"text.txt\"];holdout=$1}" model.vocab=0 run.steps=40 &&
        tail -n 1 runs/hold/metrics.jsonl | sed "s/.*\"loss\/$2\": *\([0-9.]*\).*/\1/"
    } &&
    awk "BEGIN { for (i = 0; i < 1000; i++) printf \"%c\", i < 33 * 24 + 1 ? 97 + i % 7 : 126 }" >text.txt &&
    held 0.2 ce >a && held 0.2 val >b && held 0.1 val >c && cat a b c &&
    awk "{ exit !(\$1 < 2) }" a && awk "{ exit !(\$1 > 5.5) }" b && awk "{ exit !(\$1 < 4) }" c &&
    "$BALLAST" check tiny.cfg "data={source=\"text\";train=[\"text.txt\"];holdout=0.2}" >out &&
    grep "held out  *8 of 41 sequences" out && grep "\"train_sequences\": 37" runs/hold/header.json &&
    grep "\"validation_sequences\": 4" runs/hold/header.json && grep "holdout = 0.1" runs/hold/config.cfg'

test_expect_success 'data.holdout: refused with validation files, without files, when nothing remains' '
    { "$BALLAST" check tiny.cfg "data={source=\"text\";train=[\"text.txt\"];validation=[\"text.txt\"];holdout=0.2}" 2>err; test $? -eq 2; } &&
    grep "holdout and validation" err && { "$BALLAST" check tiny.cfg data.holdout=0.2 2>err; test $? -eq 2; } && grep "synthetic" err &&
    { "$BALLAST" check tiny.cfg "data={source=\"text\";train=[\"text.txt\"];holdout=0.6}" 2>err; test $? -eq 2; } && grep holdout err &&
    head -c 30 text.txt >short.txt &&
    { "$BALLAST" check tiny.cfg "data={source=\"text\";train=[\"short.txt\"];holdout=0.2}" model.vocab=0 2>err; test $? -eq 4; } && grep "nothing remains" err'

test_done
