#!/bin/sh
# Checkpoints that a run writes while it goes on, and everything that may become of them.
test_description='checkpoints and resume'
. "${top_srcdir:-.}/tests/shell/lib.sh"

write_tiny
sed -i 's/guards = .*/guards = ( { plugin = "skip_step"; window = 4; minimum = 2; sigmas = 2.0; }, { plugin = "clip_norm"; max = 1.0; } );/' tiny.cfg

several_processes
# until_step NAME STEP COPY: a copy of a run as it was after STEP.
until_step() {
    rm -rf "runs/$3" && cp -r "runs/$1" "runs/$3" &&
        for step in "runs/$3/checkpoints"/[0-9]*; do
            test "${step##*/}" -le "$2" || rm -r "$step"
        done
}
equal() { # NAME NAME [STEP]
    "$BALLAST" weights "runs/$1/checkpoints/${3:-6}" "runs/$2/checkpoints/${3:-6}" >compare.out 2>&1 ||
        { grep -v identical compare.out; return 1; }
}
plugins_of() { # the plugins' states of a checkpoint, which are text
    sed 's/.*"__metadata__"/"__metadata__"/' "runs/$1/checkpoints/6/plugins.safetensors" | tr -d ' \0' | cut -c 3-
}

test_expect_success 'a resume after any step comes to the bits of the run that nobody stopped, plugins too' '
    begin whole run.checkpoint_every=1 run.keep=9 && grep "guard.skip_step" runs/whole/checkpoints/3/plugins.safetensors &&
    for k in 1 2 3 4 5; do
        until_step whole $k part && begin part run.checkpoint_every=1 run.keep=9 && grep "resuming from runs/part/checkpoints/$k" part.out &&
        equal whole part && plugins_of whole >a && plugins_of part >b && test_cmp a b || return 1
    done'

test_expect_success 'run.save = "sync" makes the same checkpoints' '
    begin sync run.checkpoint_every=1 run.keep=9 "run.save=\"sync\"" && equal whole sync && equal whole sync 3 &&
    grep -q "time/checkpoint" runs/sync/metrics.jsonl && grep -q "time/checkpoint" runs/whole/metrics.jsonl'

test_expect_success PROCESSES 'two processes write two shards, which one process, two, and one after two resume to the same bits' '
    begin emulated cluster.emulate=2 run.checkpoint_every=1 run.keep=9 &&
    two real run.checkpoint_every=1 run.keep=9 && ls runs/real/checkpoints/3/optimizer-2-of-2.safetensors && equal emulated real && equal emulated real 3 &&
    until_step real 3 part && begin part cluster.emulate=2 run.checkpoint_every=1 && equal emulated part &&
    until_step real 3 part && two part run.checkpoint_every=1 && equal emulated part &&
    until_step emulated 2 part && two part run.checkpoint_every=1 run.steps=6 "cluster.shard=\"optimizer\"" && equal emulated part &&
    until_step part 4 again && begin again cluster.emulate=2 && equal emulated again'

test_expect_success PROCESSES 'other ranks: refused with the numbers, --replan goes on with the next sample' '
    until_step emulated 3 w && test_expect_code 5 begin w && grep "cluster.emulate is 2 there, 1 now" w.out && grep -e --replan w.out &&
    begin w --replan && grep "replan: cluster.emulate: 2 -> 1" w.out && grep "\"sample\": 48" runs/w/checkpoints/6/state.json &&
    close loss/ce emulated w 1e-4'

# ---- damage --------------------------------------------------------------------------------------

# bad NAME STEP COMMAND: the newest checkpoint, in $c, is damaged by COMMAND; the one before is taken.
bad() {
    until_step whole "$2" hurt && c=runs/hurt/checkpoints/$2 && eval "$3" &&
        begin hurt run.checkpoint_every=1 run.keep=9 && grep "warning: .*$c.*the checkpoint before is taken" hurt.out &&
        grep "resuming from runs/hurt/checkpoints/$(($2 - 1))$" hurt.out && equal whole hurt
}
for how in 'truncate -s 100 $c/model.safetensors' ': >$c/optimizer-1-of-1.safetensors' ': >$c/state.json' \
    'rm $c/state.json' 'rm $c/plugins.safetensors' 'rm $c/*' 'cp runs/whole/checkpoints/1/* $c/' \
    'cp runs/whole/checkpoints/1/state.json $c/' 'printf x | dd of=$c/model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null' \
    'rm -r $c; cp -r runs/wide/checkpoints/6 $c; sed -i "s/x/x/" $c/state.json' 'echo hello >$c/state.json' 'rm -r $c; : >$c'; do
    test_expect_success "the newest checkpoint: $how" '
        { test -e runs/wide || begin wide model.width=16; } && bad whole 4 "$how"'
done

test_expect_success 'no good one is left: exit 5, each with its reason, and nothing is changed' '
    until_step whole 3 none && for k in 1 2 3; do : >runs/none/checkpoints/$k/model.safetensors; done &&
    test_expect_code 5 begin none && for k in 1 2 3; do grep "checkpoints/$k/model.safetensors: damaged" none.out || return 1; done &&
    grep "none of the 3 checkpoints there can be used" none.out && ls runs/none/checkpoints >list && printf "1\n2\n3\n" >three && test_cmp three list'

test_expect_success 'a bad newest one pushes no good one out' '
    until_step whole 3 push && : >runs/push/checkpoints/3/model.safetensors && cp -r runs/push/checkpoints/3 runs/push/checkpoints/600 &&
    begin push run.checkpoint_every=4 run.keep=1 && ls runs/push/checkpoints >list && printf "6\n600\n" >wanted && test_cmp wanted list && equal whole push'

# ---- forks ---------------------------------------------------------------------------------------

test_expect_success 'the ring holds the newest states; --from one of them replays to the same bits' '
    begin ring run.ring=3 && ls runs/ring/checkpoints/ring >list && printf "4\n5\n6\n" >wanted && test_cmp wanted list && equal whole ring &&
    begin replay --from runs/ring/checkpoints/ring/4 && grep "forking from runs/ring/checkpoints/ring/4" replay.out && equal whole replay &&
    test "$(wc -l <runs/replay/metrics.jsonl)" -eq 2 && ! grep "replan:" replay.out &&
    metrics ring | tail -n 2 >a && metrics replay >b && test_cmp a b'

test_expect_success '--from under another plan: every difference is logged and kept' '
    begin fork --from runs/whole/checkpoints/4 optimizer.lr=1e-3 run.steps=8 "guards=()" &&
    grep "replan: optimizer.lr: 0.01 -> 0.001" fork.out && grep "replan: run.steps: 6 -> 8" fork.out && grep "replan: guards: a list of 2 -> a list of 0" runs/fork/log.txt &&
    grep "state of guard.skip_step is left out" fork.out &&
    grep "\"run.steps: 6 -> 8\"" runs/fork/attempts/1 && grep "\"state\": \".*/runs/whole/checkpoints/4\"" runs/fork/attempts/1 && grep "\"from\": " runs/fork/checkpoints/8/state.json'

test_expect_success '--skip-samples moves the data on, once: the same command goes on with the fork' '
    begin skip --from runs/whole/checkpoints/2 --skip-samples 5 run.checkpoint_every=1 run.keep=9 && grep "the data goes on at sample 21 instead of 16" skip.out &&
    grep "\"sample\": 53" runs/skip/checkpoints/6/state.json && { equal whole skip; test $? -eq 1; } &&
    until_step skip 4 skipped &&
    begin skipped --from runs/whole/checkpoints/2 --skip-samples 5 && ! grep "goes on at" skipped.out && equal skip skipped &&
    begin skipped && grep complete skipped.out'

test_expect_success '--from: refused where another run is, without a state, and with --fresh of its own run' '
    until_step whole 4 own && test_expect_code 5 begin own --from runs/ring/checkpoints/6 && grep "another run.name" own.out &&
    test_expect_code 5 begin new --from runs/ring/checkpoints/7 && grep "runs/ring/checkpoints/7/state.json" new.out &&
    test_expect_code 2 begin own --fresh --from runs/own/checkpoints/3 && test -e runs/own/checkpoints/3/state.json &&
    test_expect_code 2 begin own --from && test_expect_code 2 begin own --from x --skip-samples -3'

test_expect_success '--replan: another schedule on the same run' '
    until_step whole 4 longer && test_expect_code 5 begin longer run.steps=9 && grep -e "run.steps is 6 there, 9 now.*--replan" longer.out &&
    begin longer run.steps=9 --replan && grep "replan: run.steps: 6 -> 9" longer.out && test -e runs/longer/checkpoints/9/state.json &&
    grep "\"replan\"" runs/longer/attempts/2 && begin longer run.steps=9 && grep complete longer.out'

# ---- attempts ------------------------------------------------------------------------------------

test_expect_success 'a newer attempt: the older one publishes nothing more and says why' '
    { "$BALLAST" train tiny.cfg run.name=zombie run.steps=1000000 run.checkpoint_every=1 "monitors=()" >zombie.out 2>&1 & } && pid=$! &&
    await grep -q "zombie/checkpoints/5" zombie.out && : >runs/zombie/attempts/2 && { wait $pid; test $? -eq 1; } &&
    grep "attempt 1 ends here .* a later start, attempt 2, has taken the run over" zombie.out && ! ls -d runs/zombie/checkpoints/.tmp* 2>/dev/null'

# ---- full disk -----------------------------------------------------------------------------------

if unshare -m sh -c 'mount -t tmpfs none /mnt' 2>/dev/null; then
    test_set_prereq MOUNT
else
    say "no private mounts here (not root?): the test of a full disk is skipped"
fi
# in_tmpfs OPTIONS SCRIPT: with a tmpfs at disk/ that nobody else sees.
in_tmpfs() {
    mkdir -p disk && BALLAST=$BALLAST unshare -m sh -c "mount -t tmpfs -o $1 none disk || exit 9; $2"
}
AWAIT='await() { for _ in $(seq 600); do eval "$1" && return; sleep 0.1; done; echo "in vain: $1"; return 1; }'
test_expect_success MOUNT 'a disk that is full for a while: failed saves are counted in the rows, the run goes on, and saves again' '
    in_tmpfs size=8m "$AWAIT; $BALLAST train tiny.cfg run.dir=disk run.name=d run.steps=1000000 run.checkpoint_every=1 run.keep=1 \"monitors=()\" \"sinks=({plugin=\\\"jsonl\\\";every=50})\" >full.out 2>&1 & pid=\$!
        await \"grep -q checkpoints/5 full.out\"
        dd if=/dev/zero of=disk/fill bs=4k 2>/dev/null
        await \"grep -q \\\"is not saved.*No space left\\\" full.out\" && good=\$(ls disk/d/checkpoints | sort -n | tail -n 1) &&
        test -s disk/d/checkpoints/\$good/state.json; rc=\$?; rm disk/fill
        await \"grep -q checkpoint/failed disk/d/metrics.jsonl\"; rc2=\$?
        kill -TERM \$pid; wait \$pid; test \$? -eq 75 && test \$rc -eq 0 && test \$rc2 -eq 0 && tail -n 1 full.out | grep \"with a checkpoint\""'

# ---- other people'"'"'s tools ---------------------------------------------------------------------------

for python in "${PYTHON:-python3}" python3; do
    "$python" -c 'import safetensors, numpy' 2>/dev/null && { test_set_prereq SAFETENSORS; break; }
done
test_have_prereq SAFETENSORS || say "no Python with safetensors and numpy (PYTHON names one): their check is skipped"
test_expect_success SAFETENSORS,PROCESSES 'the public library reads whole files and slices' '
    cat >check.py <<"P"
import json, sys
import numpy
from safetensors import safe_open
def tensors(*names):
    for name in names:
        with safe_open(name, "np") as f:
            meta = f.metadata() or {}
            for key in f.keys():
                yield key, f.get_tensor(key), meta.get(key)
whole = {k: t for k, t, m in tensors(sys.argv[1] + "/optimizer-1-of-1.safetensors")}
seen = {k: 0 for k in whole}
for key, part, meta in tensors(*[sys.argv[2] + "/optimizer-%d-of-2.safetensors" % p for p in (1, 2)]):
    m = json.loads(meta)
    assert list(whole[key].shape) == m["shape"], key
    assert (whole[key].reshape(-1)[m["begin"]:m["end"]] == part).all(), key
    seen[key] += m["end"] - m["begin"]
assert all(seen[k] == whole[k].size for k in whole)
weights = {k: t for k, t, m in tensors(sys.argv[1] + "/model.safetensors")}
assert all((weights[k] == whole[k + ".master"]).all() for k in weights) and len(weights) > 10
P
    "$python" check.py runs/emulated/checkpoints/3 runs/real/checkpoints/3'

test_done
