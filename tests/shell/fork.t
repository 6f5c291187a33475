#!/bin/sh
# A run that goes on under another plan, a new run from the state of an old one, and starts that
# get into each other's way.
test_description='replans, forks and attempts'
. "${top_srcdir:-.}/tests/shell/lib.sh"

write_tiny
# stopped NAME [KEY=VALUE...]: a run as it was after step 3 of 6.
stopped() {
    name=$1
    shift
    train "$name" run.checkpoint_every=3 run.keep=9 "$@" && rm -r "runs/$name/checkpoints/6"
}
# refused CODE NAME TEXT ARGUMENT...: one line, and no attempt is left of it.
refused() {
    code=$1 name=$2 text=$3
    shift 3
    ls "runs/$name/attempts" >before 2>/dev/null
    if ! test_expect_code "$code" begin "$name" "$@" || ! grep -- "$text" "$name.out"; then
        cat "$name.out"
        return 1
    fi
    ls "runs/$name/attempts" >after 2>/dev/null
    test "$(grep -c '^ballast: ' "$name.out")" -eq 1 && test_cmp before after
}
# state NAME STEP KEY: a value of state.json
state() { sed -n "s/^ *\"$3\": \"*\([^\",]*\)\"*,*$/\1/p" "runs/$1/checkpoints/$2/state.json"; }
# loss NAME STEP
loss() { sed -n "s/.*\"step\":$2,.*\"loss\/ce\":\([-0-9.e]*\).*/\1/p" "runs/$1/metrics.jsonl" | tail -n 1; }

test_expect_success 'a whole run to compare with' 'train whole run.checkpoint_every=3'

test_expect_success '--replan: refused without, every difference in log.txt and the attempt, config.cfg and later checkpoints follow' '
    stopped replan &&
    refused 5 replan "run.steps is 6 there, 8 now.*--replan" run.steps=8 optimizer.lr=2e-3 &&
    begin replan --replan run.steps=8 optimizer.lr=2e-3 "guards[0].max=2.0" &&
    for line in "run.steps: 6 -> 8" "optimizer.lr: 0.01 -> 0.002" "guards\[0\].max: 1.0 -> 2.0"; do
        grep "replan: $line\$" runs/replan/log.txt && grep "\"$line\"" runs/replan/attempts/2 || return 1; done &&
    test "$(grep -c " info replan: " runs/replan/log.txt)" -eq 3 &&
    test "$(state replan 8 step)" -eq 8 && test "$(state replan 8 plan)" != "$(state replan 3 plan)" &&
    grep "lr = 0.002;" runs/replan/config.cfg && begin replan run.steps=8 optimizer.lr=2e-3 "guards[0].max=2.0" && grep complete replan.out &&
    refused 5 replan "holds another plan" &&
    refused 2 replan "checkpoints/8 is the state after step 8, and run.steps = 6" --replan'

test_expect_success '--replan with nothing changed changes nothing' '
    stopped idle && begin idle --replan && same whole idle && ! grep "replan" runs/idle/log.txt runs/idle/attempts/2'

# Weights that stay as they are: the loss of a step then says which samples it saw.
still="optimizer.lr=0 schedule.warmup=0 run.checkpoint_every=3 run.keep=9"
test_expect_success 'another batch: the samples go on where they were, also after the next resume' '
    train still $still && train batch $still run.steps=3 &&
    begin batch $still --replan batch.sequences=4 run.steps=5 &&
    test "$(state batch 3 sample)" -eq 24 && test "$(state batch 5 sample)" -eq 32 &&
    begin batch $still --replan batch.sequences=8 run.steps=6 && test "$(state batch 6 sample)" -eq 40 &&
    echo "$(loss still 4) $(loss batch 4) $(loss batch 5)" >losses &&
    awk "{ d = \$1 - (\$2 + \$3) / 2; if (d < 0) d = -d; print d; exit !(\$1 > 1 && d < 1e-6 && \$2 != \$3) }" losses &&
    test "$(loss still 5)" = "$(loss batch 6)"'

test_expect_success 'other ranks: refused, --replan goes on at the same sample' '
    stopped ranks cluster.emulate=2 &&
    refused 5 ranks "cluster.emulate is 2 there, 1 now" &&
    begin ranks --replan cluster.emulate=4 batch.micro=2 && grep "replan: cluster.emulate: 2 -> 4" runs/ranks/log.txt &&
    test "$(state ranks 6 sample)" -eq 48 && test "$(state ranks 6 ranks)" -eq 4'

test_expect_success 'a config.cfg of a program that did not know a key is no other plan, unless the key is set' '
    stopped older && sed -i "/^cluster = /,/^};/d; /qk_norm/d" runs/older/config.cfg &&
    refused 5 older "model.qk_norm is \"off\" there, \"head\" now" model.qk_norm=head &&
    begin older && same whole older && grep "qk_norm" runs/older/config.cfg'

test_expect_success 'without config.cfg only the plan in state.json counts' '
    stopped lost && rm runs/lost/config.cfg &&
    refused 5 lost "checkpoints/3 belongs to another plan" optimizer.lr=1e-3 && begin lost && same whole lost'

test_expect_success '--from replays to the same bits, says where it came from, and goes on when it is started again' '
    begin fork --from runs/whole/checkpoints/3 run.checkpoint_every=3 && same whole fork && test ! -e runs/fork/checkpoints/1 &&
    grep "forking from runs/whole/checkpoints/3" fork.out &&
    metrics whole | tail -n 3 | sed "s/\"attempt\":1//" >wanted && metrics fork | sed "s/\"attempt\":1//" >found && test_cmp wanted found &&
    for file in attempts/1 header.json; do
        grep "\"state\": \".*/runs/whole/checkpoints/3\"" runs/fork/$file && grep "\"step\": 3" runs/fork/$file &&
        grep "\"checksum\": \"$(state whole 3 self)\"" runs/fork/$file || return 1; done &&
    rm -r runs/fork/checkpoints/6 && begin fork --from runs/whole/checkpoints/3/ run.checkpoint_every=5 && grep "forking from" fork.out && same whole fork &&
    rm -r runs/fork/checkpoints/6 && begin fork --from runs/whole/checkpoints/3/ && grep "resuming from runs/fork/checkpoints/5" fork.out && same whole fork &&
    rm -r runs/fork/checkpoints/6 && begin fork && grep "resuming from" fork.out && same whole fork &&
    grep -A 5 forked_from runs/fork/header.json | grep "$(state whole 3 self)" && ! grep "\"from\"" runs/fork/attempts/3'

test_expect_success 'a ring state is as good as a checkpoint' '
    train ring run.ring=2 && begin ringfork --from runs/ring/checkpoints/ring/5 && same whole ringfork'

test_expect_success '--from under another config: differences logged, the new plan from then on' '
    begin other --from runs/whole/checkpoints/3 optimizer.lr=5e-3 && grep "replan: optimizer.lr: 0.01 -> 0.005" runs/other/log.txt &&
    grep "\"optimizer.lr: 0.01 -> 0.005\"" runs/other/attempts/1 && differs whole other &&
    refused 5 other "holds another plan" --from runs/whole/checkpoints/3'

test_expect_success '--from is refused: other shapes, too few steps, no state, a run that began elsewhere' '
    refused 5 shape "tensor embed.weight.master is (61, 32), this model needs (61, 16)" --from runs/whole/checkpoints/3 model.width=16 &&
    refused 5 layers "no tensor layers.2.norm1.weight.master, which this model has" --from runs/whole/checkpoints/3 model.layers=3 &&
    refused 2 few "checkpoints/3 is the state after step 3, and run.steps = 3 leaves nothing to do" --from runs/whole/checkpoints/3 run.steps=3 &&
    refused 5 none "runs/whole/checkpoints/4/state.json" --from runs/whole/checkpoints/4 &&
    refused 5 whole "forked from nowhere, not from runs/whole/checkpoints/3" --from runs/whole/checkpoints/3 &&
    refused 5 fork "forked from .*/whole/checkpoints/3, not from runs/whole/checkpoints/6" --from runs/whole/checkpoints/6 run.steps=6 &&
    refused 2 whole "runs/whole, and --from runs/whole/checkpoints/3 is in it" --fresh --from runs/whole/checkpoints/3 &&
    test_expect_code 2 "$BALLAST" train tiny.cfg --from 2>err && grep "from wants a value" err'

test_expect_success 'a run that was killed before its first checkpoint belongs to where it began' '
    begin young --from runs/whole/checkpoints/3 && rm -r runs/young/checkpoints &&
    refused 5 young "runs/young was forked from .*/checkpoints/3 and has no checkpoint of its own yet: give --from again" &&
    refused 5 young "runs/young is a run that started from .*/checkpoints/3, not from runs/replan/checkpoints/3" --from runs/replan/checkpoints/3 &&
    begin young --from runs/whole/checkpoints/3 && same whole young && test "$(wc -l <runs/young/metrics.jsonl)" -eq 6 &&
    train plain && rm -r runs/plain/checkpoints &&
    refused 5 plain "started from nothing, not from runs/whole/checkpoints/3" --from runs/whole/checkpoints/3'

test_expect_success 'a plugin that comes or goes: a warning with --from, an error without' '
    second="guards=({plugin=\"clip_norm\";max=1.0},{plugin=\"clip_update_norm\"})" &&
    begin added --from runs/whole/checkpoints/3 "$second" && grep "warning: the checkpoint has no state of guard.clip_update_norm, which starts without" added.out &&
    train both "$second" run.checkpoint_every=3 &&
    begin dropped --from runs/both/checkpoints/3 && grep "warning: the checkpoint.s state of guard.clip_update_norm is left out" dropped.out &&
    refused 5 whole "guards is a list of 1 there, a list of 2 now" "$second"'

test_expect_success '--skip-samples: the data moves on once in a fork, at every start of a resume that asks, and stays there' '
    begin quarter --from runs/still/checkpoints/3 $still batch.sequences=4 run.steps=8 && begin skip --from runs/still/checkpoints/3 --skip-samples 4 $still batch.sequences=4 run.steps=6 &&
    test "$(loss skip 4)" = "$(loss quarter 5)" && test "$(loss skip 6)" = "$(loss quarter 7)" && grep "data goes on at sample 28 instead of 24" runs/skip/log.txt &&
    grep "\"skip_samples\": 4" runs/skip/attempts/1 && test "$(state skip 6 sample)" -eq 40 &&
    begin skip --from runs/still/checkpoints/3 --skip-samples 4 --replan $still batch.sequences=4 run.steps=7 && test "$(state skip 7 sample)" -eq 44 &&
    train later $still run.steps=3 && begin later --replan --skip-samples 8 $still && test "$(loss later 4)" = "$(loss still 5)" && test "$(state later 6 sample)" -eq 56 &&
    refused 2 nothing "there is no checkpoint yet" --skip-samples 8 &&
    refused 2 later "skip-samples -1: a number of sequences" --skip-samples -1'

# ---- several processes --------------------------------------------------------------------------

several_processes
test_expect_success PROCESSES 'two processes: forks and replans as one does, refusals on both' '
    train emulated cluster.emulate=2 run.checkpoint_every=3 &&
    two pair --from runs/emulated/checkpoints/3 run.checkpoint_every=5 && grep "\"checksum\": \"$(state emulated 3 self)\"" runs/pair/header.json &&
    "$BALLAST" weights runs/pair/checkpoints/6 runs/emulated/checkpoints/6 && test "$(wc -l <runs/pair/metrics.jsonl)" -eq 3 &&
    ls runs/pair/attempts >before && test_expect_code 5 two pair optimizer.lr=1e-3 && grep "holds another plan" pair.0.out && ls runs/pair/attempts >after && test_cmp before after &&
    test_expect_code 5 two wide --from runs/emulated/checkpoints/3 model.width=16 && grep "tensor embed.weight.master is" wide.0.out && test -z "$(ls runs/wide/attempts)" &&
    two pair --replan --skip-samples 8 run.steps=7 && test "$(state pair 7 sample)" -eq 64 && grep "replan: run.steps: 6 -> 7" runs/pair/log.txt'

rows() { test "$(wc -l <"runs/$1/metrics.jsonl" 2>/dev/null)" -gt 3; }
test_expect_success PROCESSES 'two processes end together when another start took the run over' '
    { two gone run.steps=1000000 run.checkpoint_every=50 "monitors=()" & pid=$!; } && await rows gone && : >runs/gone/attempts/2 &&
    test_expect_code 1 wait $pid && grep "runs/gone: attempt 1 ends here" gone.0.out && grep "attempt 1 ends here" gone.1.out'

# ---- attempts -----------------------------------------------------------------------------------

test_expect_success 'a start that was cut off: what it left of config.cfg and header.json goes' '
    stopped cut && : >runs/cut/config.cfg.tmp-123-0 && : >runs/cut/header.json.tmp-9-1 && : >runs/cut/config.cfg.mine &&
    : >runs/cut/attempts/7 && begin cut && same whole cut && test ! -e runs/cut/config.cfg.tmp-123-0 && test ! -e runs/cut/header.json.tmp-9-1 &&
    test -e runs/cut/config.cfg.mine && test -s runs/cut/attempts/8 && ! grep "\"attempt\": 3" runs/cut/header.json'

test_expect_success 'a run that another start took over ends by itself, without a checkpoint or a signal' '
    { begin zombie run.steps=1000000 "monitors=()" & pid=$!; } && await rows zombie && : >runs/zombie/attempts/5 &&
    test_expect_code 1 wait $pid && grep "runs/zombie: attempt 1 ends here .* a later start, attempt 5, has taken the run over" zombie.out &&
    test ! -e runs/zombie/checkpoints/1 && wc -l <runs/zombie/metrics.jsonl >count'

test_expect_success 'and before it publishes a checkpoint' '
    { begin late run.steps=1000000 run.checkpoint_every=7 "monitors=()" & pid=$!; } && await test -s runs/late/attempts/1 && : >runs/late/attempts/2 &&
    test_expect_code 1 wait $pid && grep "attempt 1 ends here" late.out && test ! -s runs/late/attempts/2'

test_expect_success 'an attempt that was removed or replaced is over too: --fresh begins to count again' '
    { begin fresh run.steps=1000000 run.checkpoint_every=7 "monitors=()" & pid=$!; } && await test -s runs/fresh/attempts/1 &&
    rm runs/fresh/attempts/1 && : >runs/fresh/attempts/1 &&
    test_expect_code 1 wait $pid && grep "attempt 1 ends here .*: its attempts/1 was removed" fresh.out && test ! -s runs/fresh/attempts/1'

test_expect_success 'a signal at a run that was taken over writes no checkpoint' '
    { begin taken run.steps=1000000 "monitors=()" & pid=$!; } && await rows taken && : >runs/taken/attempts/2 && kill -TERM "$(sed -n "s/.*\"pid\": \([0-9]*\).*/\1/p" runs/taken/attempts/1)" &&
    test_expect_code 1 wait $pid && grep "attempt 1 ends here" taken.out && test -z "$(ls runs/taken/checkpoints 2>/dev/null)"'

test_expect_success 'the report leaves out what a superseded attempt wrote after its successor began' '
    train made && { for s in 1 2 3 4; do echo "{\"run\":\"made\",\"attempt\":1,\"step\":$s,\"time\":$s,\"loss/ce\":$s.5}"; done
    for s in 3 4; do echo "{\"run\":\"made\",\"attempt\":2,\"step\":$s,\"time\":1$s,\"loss/ce\":$s.25}"
        echo "{\"run\":\"made\",\"attempt\":1,\"step\":9$s,\"time\":2$s,\"loss/ce\":99.5}"; done; } >runs/made/metrics.jsonl &&
    "$BALLAST" report runs/made >/dev/null 2>&1 && grep "4 rows* of earlier attempts are superseded" runs/made/report.md && ! grep "99\.5" runs/made/report.md'

# race NAME ARGUMENT...: ten starts at the same moment; their codes in NAME.codes.
race() {
    name=$1
    shift
    pids="" && : >"$name.codes"
    for i in 1 2 3 4 5 6 7 8 9 10; do
        "$@" train tiny.cfg run.name="$name" run.threads=1 run.checkpoint_every=2 >"$name.$i.out" 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do
        code=0
        wait "$pid" || code=$?
        echo "$code" >>"$name.codes"
    done
}
# Those that did not train say why in one line.
settled() {
    for i in 1 2 3 4 5 6 7 8 9 10; do
        grep -q "runs/$1: complete" "$1.$i.out" || grep -E -q "$2" "$1.$i.out" || { cat "$1.$i.out"; return 1; }
    done
    grep -q -x 0 "$1.codes" && ! grep -v -x "[01]" "$1.codes"
}
test_expect_success 'ten starts at once: one trains' '
    race ten "$BALLAST" && settled ten "another process trains there" && same whole ten'

# given JOB RESTARTS: a start of runs/given in that job.
given() {
    env SLURM_JOB_ID="$1" SLURM_RESTART_COUNT="$2" PACE=500 timeout 60 "$BALLAST" train tiny.cfg run.name=given \
        run.checkpoint_every=1 "monitors=({plugin=\"pace\"})" "plugin_path=[\"$BUILD/tests/fixtures/plugins/.libs\"]" 2>&1
}
test_expect_success 'an attempt that Slurm has given up makes room for the next of its job, and for no other' '
    { given 812 0 >given.0 & } && old=$! && await test -e runs/given/checkpoints/1/state.json &&
    for other in "812 0" "813 1"; do
        given $other >given.other; test $? -eq 1 && grep "another process trains there" given.other || return 1
    done
    given 812 1 >given.1 && grep "an earlier attempt of this job is still running there; attempt 2 takes over" given.1 &&
    { wait $old; test $? -eq 1; } && grep "attempt 2, has taken the run over" given.0 && same whole given'

cat >nolocks.c <<'C'
#include <errno.h>
int flock(int fd, int operation) /* as on Lustre without the mount option "flock" */
{
    (void)fd;
    (void)operation;
    errno = ENOSYS;
    return -1;
}
C
nolocks() {
    LD_PRELOAD=./nolocks.so "$@"
}
if ${CC:-cc} -shared -fPIC -o nolocks.so nolocks.c 2>/dev/null && nolocks "$BALLAST" --version >/dev/null 2>&1; then
    test_expect_success 'ten starts at once where no file can be locked: the last claim decides' '
        race free nolocks "$BALLAST" && settled free "a later start, attempt [0-9]*, has taken the run over" && begin free run.checkpoint_every=2 && same whole free'
else
    test_expect_success 'SKIP starts without locks: no C compiler, or this build takes no LD_PRELOAD' 'true'
fi

test_done
