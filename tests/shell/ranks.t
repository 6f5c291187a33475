#!/bin/sh
# A run over several processes is the run of one process that plays all ranks: weights, rows, what
# stops it. The processes of a test run here and meet in a folder.
test_description='ranks that are processes'
. "${top_srcdir:-.}/tests/shell/lib.sh"
if [ ! -e "$BALLAST_PLUGIN_PATH/transport_ucx.so" ]; then
    echo "SKIP: built without UCX"
    exit 77
fi
for name in $(env | sed -n 's/^\(SLURM_[A-Z_]*\|PMI_[A-Z_]*\|BALLAST_PROCESS[A-Z]*\)=.*/\1/p'); do
    unset "$name"
done

write_tiny
fixture() { printf '%s' "$BUILD/tests/fixtures/plugins/.libs/monitor_$1.so"; }
alone() { # NAME [KEY=VALUE...]
    name=$1
    shift
    train "$name" batch.micro=1 run.threads=1 cluster.emulate="${ranks:-4}" "$@"
}
# start PROCESSES NAME [OPTION | KEY=VALUE...]: output in NAME.<process>, pids in $pids; $one:
# VARIABLE=value of the process $which alone.
start() {
    count=$1
    name=$2
    shift 2
    rm -rf meet.* && mkdir "meet.$$" || return 1
    pids=
    for p in $(seq 0 $((count - 1))); do
        set_one=A=1
        if test "$p" = "${which:-none}"; then set_one=$one; fi
        env BALLAST_PROCESSES="$count" BALLAST_PROCESS="$p" BALLAST_MEET="$PWD/meet.$$" "$set_one" \
            timeout 60 "$BALLAST" train "${config:-tiny.cfg}" run.name="$name" batch.micro=1 run.threads=1 \
            cluster.emulate="${ranks:-4}" "$@" >"$name.$p" 2>&1 &
        pids="$pids $!"
    done
}
# ended CODE: all processes that were started did, with it
ended() {
    wrong=0
    for pid in $pids; do
        wait "$pid"
        got=$?
        test "$got" -eq "$1" || { echo "exit $got" && wrong=1; }
    done
    test "$wrong" -eq 0 || { cat "$name".[0-9]; return 1; }
}
together() { start "$@" && ended 0; }
rows() { metrics "$1" | sed -E 's/"attempt": *[0-9]+,//; s/"rank\/[a-z]+_seconds\/[a-z]+": *[^,}]+,? *//g'; }
equal() { # A B [STEP]: weights bit by bit, rows
    cmp "runs/$1/checkpoints/${3:-6}/model.safetensors" "runs/$2/checkpoints/${3:-6}/model.safetensors" &&
        rows "$1" >rows.1 && rows "$2" >rows.2 && test_cmp rows.1 rows.2
}
reported() { # PATTERN: one error line, of process 0
    grep -h "error:" "$name".[0-9] >lines
    test "$(wc -l <lines)" -eq 1 && grep -h "error:" "$name.0" | grep -q "$1" && return
    cat "$name".[0-9]
    return 1
}

# Few steps, little to look at: there are many of them.
short="run.steps=3 run.eval_tokens=24 cluster.ranks_per_node=2 cluster.bucket=8192 monitors=()"
compare() { # PROCESSES [KEY=VALUE...]
    processes=$1
    shift
    set -- "precision.wire=\"bf16\"" "$@"
    # shellcheck disable=SC2086
    alone one $short "$@" && together "$processes" many --fresh $short "$@" && equal one many 3
}
for algorithm in alltoall ring tree nvls pairwise hybrid; do
    test_expect_success "$algorithm: 4 processes as one" '
        compare 4 "precision.algorithm=\"$algorithm\"" "precision.sum=\"bf16\""'
    test $algorithm = tree || test_expect_success "$algorithm, reduce_scatter: 2 processes, each of two ranks" '
        compare 2 "precision.algorithm=\"$algorithm\"" "precision.collective=\"reduce_scatter\""'
done
for average in divide_first premultiply predivide; do
    test_expect_success "average $average" '
        compare 2 "precision.algorithm=\"ring\"" "precision.average=\"$average\"" "precision.sum_rounding=\"stochastic\"" \
            "precision.sum=\"bf16\""'
done

all='regularizers=({plugin="z_loss";},{plugin="label_smoothing";},{plugin="mu_centering";})'
watched='monitors=({plugin="logits";every=3;},{plugin="gauge";every=3;},{plugin="norms";every=3;per_tensor=true;})'
test_expect_success 'rows, held-out loss, 4 processes, sharded and not' '
    alone whole run.eval_every=2 "$all" "$watched" &&
    together 4 plain --fresh run.eval_every=2 "$all" "$watched" && equal whole plain &&
    together 4 sharded --fresh run.eval_every=2 "$all" "$watched" "cluster.shard=\"optimizer\"" && equal whole sharded &&
    test "$(grep -c "loss/val\"" runs/plain/metrics.jsonl)" -eq 3 &&
    grep "rank/grad_norm/argmax" runs/plain/metrics.jsonl >/dev/null'
test_expect_success 'a sharded run of which nobody looks at the whole gradient' '
    alone blind "guards=()" "monitors=()" &&
    together 4 unseen --fresh "guards=()" "monitors=()" "cluster.shard=\"optimizer\"" && equal blind unseen'
test_expect_success 'bf16 weights with what rounding took off them, sharded' '
    alone kahan precision.plugin=pure_bf16 precision.rounding=kahan "$all" &&
    together 4 shards --fresh precision.plugin=pure_bf16 precision.rounding=kahan "$all" "cluster.shard=\"optimizer\"" &&
    equal kahan shards'
test_expect_success 'an optimizer that surveys whole parameters: same bits, not sharded' '
    alone surveyed optimizer.plugin=stable_adamw &&
    together 4 surveys --fresh optimizer.plugin=stable_adamw && equal surveyed surveys &&
    test_expect_code 2 "$BALLAST" check tiny.cfg optimizer.plugin=stable_adamw "cluster.shard=\"optimizer\"" 2>err &&
    grep "cuts them" err'
test_expect_success 'a projected gradient and its leaks: 4 processes, sharded and not' '
    set -- precision.wire=bf16 precision.sum=bf16 precision.algorithm=ring \
        "regularizers=({plugin=\"z_loss\";},{plugin=\"mu_loss\";},{plugin=\"head_centering\";})" &&
    alone projected "$@" && together 4 projections --fresh "$@" && equal projected projections &&
    together 4 shards2 --fresh "$@" "cluster.shard=\"optimizer\"" && equal projected shards2'
test_expect_success 'guards that change the gradient, sharded' '
    cut="guards=({plugin=\"clip_value\";max=0.01;},{plugin=\"agc\";lambda=0.05;},{plugin=\"adagc\";warmup=2;},{plugin=\"zclip\";warmup=2;})" &&
    alone cut "$cut" && together 4 pieces --fresh "$cut" "cluster.shard=\"optimizer\"" && equal cut pieces &&
    grep "\"guard/clip_value/share\":0\.[0-9]*[1-9]" runs/pieces/metrics.jsonl >/dev/null'
test_expect_success 'stopped and gone on with: 4, 2, 1 processes' '
    alone through && which=3 && one="PHASE=observe" && export PHASE_SIGNAL=10 PHASE_CALL=2 &&
    phase="monitors=({plugin=\"$(fixture phase)\";every=1;})" && alone through "$phase" &&
    start 4 parts --fresh "$phase" "cluster.shard=\"optimizer\"" && ended 75 &&
    ls runs/parts/checkpoints && test -d runs/parts/checkpoints/2 &&
    which=1 && PHASE_CALL=2 && start 2 parts "$phase" && ended 75 && test -d runs/parts/checkpoints/4 &&
    which= && start 1 parts "$phase" && ended 0 && equal through parts'
test_expect_success 'a signal to one process: all stop at the same step, one of them says so' '
    which=2 && one="PHASE=observe" && PHASE_CALL=3 && PHASE_SIGNAL=15 &&
    start 4 told --fresh "$phase" && ended 75 && test -d runs/told/checkpoints/3 &&
    grep -q "stopped by SIGTERM after step 3 of 6 with a checkpoint" told.0 &&
    ! test -s told.1 && ! test -s told.2 && ! test -s told.3'
which=
test_expect_success 'alarms: the checkpoint and the end that process 0 decides on are those of all' '
    start 4 alarmed --fresh "monitors=()" "alarms=({metric=\"loss/ce\";above=1.0;from=2;action=\"checkpoint\"},{metric=\"loss/c?\";above=1.0;from=4;action=\"stop\"})" &&
    ended 7 && reported "stopped after step 4 of 6 with a checkpoint by .*loss/c" &&
    ls runs/alarmed/checkpoints >list && printf "2\n4\n" >wanted && test_cmp wanted list &&
    start 2 alarmed "monitors=()" && ended 0 && alone quiet "monitors=()" &&
    cmp runs/quiet/checkpoints/6/model.safetensors runs/alarmed/checkpoints/6/model.safetensors'
test_expect_success 'a process that is killed ends the others, which name it' '
    which=2 && PHASE_SIGNAL=9 && start 4 killed --fresh "$phase" cluster.timeout=20 &&
    for pid in $pids; do wait "$pid"; echo $?; done >codes && printf "6\n6\n137\n6\n" >wanted &&
    test_cmp wanted codes && for p in 0 1 3; do
        test "$(grep -c "error:" killed.$p)" -eq 1 && grep "error:.* process 2 ([^)]*) was lost" killed.$p || return 1
    done'
which=3
test_expect_success 'an error of one process: process 0 says it once and whose it is' '
    mkdir -p few && cp "$BALLAST_PLUGIN_PATH"/*.so few/ && : >few/monitor_gauge.so && one=BALLAST_PLUGIN_PATH=$PWD/few &&
    start 4 less --fresh && ended 3 && reported "process 3 ([^)]*): .*gauge" && ! test -e runs/less/checkpoints'
test_expect_success 'data that one process cannot read' '
    one=PHASE=read && PHASE_CALL=9 && PHASE_SIGNAL=0 && PHASE_FAIL=1 && export PHASE_FAIL &&
    sed "s|^data = .*|data = { source = \"$BUILD/tests/fixtures/plugins/.libs/source_phase.so\"; };|" tiny.cfg >phase.cfg &&
    config=phase.cfg && start 4 unread --fresh &&
    ended 4 && reported "process 3 ([^)]*): "'
unset PHASE_FAIL PHASE_SIGNAL PHASE_CALL config
alter="monitors=({plugin=\"$(fixture alter)\";every=1;})"
test_expect_success 'a weight that changed in one process is found, and whose' '
    one=ALTER=weight && start 4 altered --fresh "$alter" cluster.check_every=2 &&
    ended 1 && reported "after step 4 the weights of process 3 ([^)]*) differ.*equal at step 2"'
test_expect_success 'a plugin that fails in one process, in all: one line' '
    one=ALTER=error && start 4 failing --fresh "$alter" && ended 1 &&
    reported "process 3 ([^)]*): monitor alter: .*told to" &&
    start 4 failing --fresh "monitors=({plugin=\"$(fixture alter)\";every=1;},{plugin=\"norms\";every=1;})" \
        "cluster.shard=\"optimizer\"" && ended 1 && reported "process 3 ([^)]*): monitor alter: .*told to" &&
    ALTER=error && export ALTER && start 4 failing --fresh "$alter" && ended 1 &&
    reported "error: monitor alter: .*told to"'
unset ALTER
which=
test_expect_success 'processes that do not divide the ranks: numbers that would' '
    start 3 thirds && ended 2 && reported "4 ranks .* 3 processes; start 2 or 4" && ! test -e runs/thirds'

test_expect_success "processes with another config, run.name or option: code 2 and one line, before anything is written" '
    for odd in run.seed=7 "run.name=\"other\"" run.checkpoint_every=2 --replan; do
        rm -rf meet.* runs/odd runs/other && mkdir "meet.$$" && name=odd && pids= || return 1
        for p in 0 1; do
            more=--
            if test "$p" = 1; then more=$odd; fi
            set -- run.name=\"odd\" "$more"
            if test "$more" = --; then set -- run.name=\"odd\"; fi
            env BALLAST_PROCESSES=2 BALLAST_PROCESS="$p" BALLAST_MEET="$PWD/meet.$$" timeout 60 "$BALLAST" train tiny.cfg \
                batch.micro=1 run.threads=1 "$@" >"odd.$p" 2>&1 &
            pids="$pids $!"
        done
        ended 2 && reported "process 1 .* are not those of process 0" && test ! -e runs/odd && test ! -e runs/other ||
            { echo "$odd" && return 1; }
    done'

test_expect_success "BALLAST_PROCESSES that differ: a line with both numbers" '
    rm -rf meet.* && mkdir "meet.$$" &&
    { env BALLAST_PROCESSES=2 BALLAST_PROCESS=0 BALLAST_MEET="$PWD/meet.$$" timeout 60 "$BALLAST" train tiny.cfg \
        run.name=\"counts\" >counts.0 2>&1 & } &&
    test_expect_code 2 env BALLAST_PROCESSES=3 BALLAST_PROCESS=1 BALLAST_MEET="$PWD/meet.$$" timeout 60 "$BALLAST" train \
        tiny.cfg run.name=\"counts\" >counts.1 2>&1 &&
    grep "meeting is of 2 processes, BALLAST_PROCESSES=3 here" counts.1
    result=$?
    wait
    return $result'

test_done
