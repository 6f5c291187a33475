#!/bin/sh
# Alarm rules as a user meets them: warnings, checkpoints, a run that ends; and mistakes in rules.
test_description='alarms'
. "${top_srcdir:-.}/tests/shell/lib.sh"

write_tiny
sed '/^sinks/d' tiny.cfg >plain.cfg

# alarmed NAME ALARMS [KEY=VALUE...]: a fresh run with these rules.
alarmed() {
    name=$1
    rules=$2
    shift 2
    "$BALLAST" train --fresh tiny.cfg run.name="$name" "alarms=$rules" "$@" >"$name.out" 2>&1
}
expect_refusal() {
    test_expect_code 2 "$BALLAST" check tiny.cfg "alarms=$1" 2>err >/dev/null && grep -E "$2" err
}

test_expect_success 'alarms that do not fire change no bit' '
    train base && alarmed calm "({metric=\"loss/ce\";above=1e9},{metric=\"*\";below=-1e300;action=\"stop\"})" && same base calm &&
    ! grep warning runs/calm/log.txt'

test_expect_success 'log: a warning with metric, value, bound and step, in log.txt too; the run goes on' '
    alarmed logs "({metric=\"loss/ce\";above=1.0})" && grep "alarms\[0\]: loss/ce is [0-9.]* at step 1, above 1$" logs.out &&
    grep "warning alarms\[0\]: loss/ce is" runs/logs/log.txt && same base logs &&
    test "$(grep -c "alarms\[0\]" runs/logs/log.txt)" -eq 1'

test_expect_success 'checkpoint: one an episode, at the step of the row' '
    alarmed saves "({metric=\"optim/lr\";above=0.0;from=3;for=2;action=\"checkpoint\"})" run.keep=9 &&
    ls runs/saves/checkpoints >found && printf "4\n6\n" >wanted && test_cmp wanted found && same base saves'

test_expect_success 'stop: a checkpoint, exit 7, one line that names the alarm, in log.txt too' '
    test_expect_code 7 alarmed stops "({metric=\"loss/c?\";above=1.0;from=4;action=\"stop\"})" &&
    grep "stopped after step 4 of 6 with a checkpoint by alarms\[0\]: loss/ce is [0-9.]* at step 4, above 1" stops.out &&
    grep "error stopped after step 4 of 6" runs/stops/log.txt && test -s runs/stops/checkpoints/4/state.json &&
    test "$(grep -c . runs/stops/metrics.jsonl)" -eq 4'

test_expect_success 'started again it stops again; with another threshold it goes on to the same bits' '
    test_expect_code 7 "$BALLAST" train tiny.cfg run.name=stops "alarms=({metric=\"loss/c?\";above=1.0;from=4;action=\"stop\"})" 2>err &&
    grep "stopped after step 5" err &&
    "$BALLAST" train tiny.cfg run.name=stops "alarms=({metric=\"loss/c?\";above=99.0;from=4;action=\"stop\"})" 2>err &&
    grep "resuming from" err && same base stops'

test_expect_success 'stop in the last step: exit 7, and nothing is left to train' '
    rule="({metric=\"loss/ce\";above=1.0;from=6;action=\"stop\"})" && test_expect_code 7 alarmed last "$rule" &&
    grep "all 6 steps are done and the last checkpoint is kept, but the last row set off alarms\[0\]: loss/ce" last.out &&
    same base last && "$BALLAST" train tiny.cfg run.name=last "alarms=$rule" 2>err && grep complete err'

# for = 3 from step 2 ends at step 4: with a checkpoint at 3 only a run that kept the count sees it.
test_expect_success 'a count that a checkpoint cuts: resumed = not stopped' '
    rules="({metric=\"loss/ce\";above=1.0;from=2;for=3;action=\"checkpoint\"})" &&
    alarmed whole "$rules" run.checkpoint_every=3 run.keep=9 && ls runs/whole/checkpoints >wanted && grep "^4$" wanted &&
    mkdir -p runs/half/checkpoints && cp -r runs/whole/checkpoints/3 runs/half/checkpoints/ &&
    "$BALLAST" train tiny.cfg run.name=half "alarms=$rules" run.checkpoint_every=3 run.keep=9 >half.out 2>&1 &&
    ls runs/half/checkpoints >found && test_cmp wanted found && grep "at step 4, above 1 for 3 rows" half.out'

test_expect_success 'alarms may change, come and go between starts' '
    alarmed change "({metric=\"loss/ce\";above=1.0;action=\"stop\"})"; test $? -eq 7 &&
    "$BALLAST" train tiny.cfg run.name=change 2>err && same base change'

test_expect_success 'a value that is not finite is outside' '
    alarmed inf "({metric=\"loss/val_perplexity\";below=1.0})" run.steps=1 model.init_std=3000.0 optimizer.lr=0.0 &&
    grep "loss/val_perplexity is inf at step 1, not a finite number" inf.out'

# The update of the last step makes the weights infinite; the row of that step is finite.
test_expect_success 'stop with weights that are not finite: no checkpoint, and both causes in one line' '
    test_expect_code 7 alarmed broken "({metric=\"optim/lr\";above=1.0;action=\"stop\"})" run.steps=1 optimizer.plugin=sgd \
        optimizer.lr=1e39 schedule.warmup=0 "guards=()" && grep "alarms\[0\]: optim/lr is 1e+39.*diverged at step 1" broken.out &&
    ! ls runs/broken/checkpoints/1 2>/dev/null'

test_expect_success 'a name that no metric has is told once, with the nearest' '
    alarmed typo "({metric=\"loss/ec\";above=1.0},{metric=\"graad/*\";above=1.0},{metric=\"loss/val\";above=1e9})" &&
    grep "alarms\[0\]: no metric of this run matches \"loss/ec\" so far; did you mean \"loss/ce\"" typo.out &&
    test "$(grep -c "no metric of this run" typo.out)" -eq 2'

test_expect_success 'a monitor that is not due yet is no typo' '
    alarmed due "({metric=\"logits/log_z\";above=1e9})" "monitors=({plugin=\"logits\";every=5;})" && ! grep "no metric" due.out'

test_expect_success 'check shows the rules, config.cfg and header.json hold them' '
    rules="({metric=\"grad/*/norm\";above=1e3;below=0;for=3;action=\"checkpoint\"})" &&
    "$BALLAST" check tiny.cfg "alarms=$rules" >out && grep "metric = \"grad/\*/norm\"; above = 1000.0; below = 0.0; for = 3; from = 1; action = \"checkpoint\"" out &&
    alarmed dump "$rules" && grep "for = 3" runs/dump/config.cfg && grep "\"action\": \"checkpoint\"" runs/dump/header.json &&
    "$BALLAST" train --fresh runs/dump/config.cfg run.name=dump2 2>/dev/null && sed s/dump2/dump/ runs/dump2/config.cfg >again &&
    test_cmp runs/dump/config.cfg again'

test_expect_success 'mistakes in a rule: exit 2, place and advice' '
    printf "%s\n" "@include \"plain.cfg\"" "alarms = (" "  { metric = \"loss/ce\"; abvoe = 1.0; } );" >bad.cfg &&
    test_expect_code 2 "$BALLAST" train bad.cfg 2>err && grep "bad.cfg:3: alarms\[0\]: unknown key \"abvoe\"; did you mean \"above\"" err &&
    expect_refusal "({metric=\"a\"})" "neither above nor below" &&
    expect_refusal "({above=1.0})" "\"metric\" is required" &&
    expect_refusal "({metric=\"\";above=1.0})" "metric is empty" &&
    expect_refusal "({metric=\"a\";above=1.0;below=2.0})" "larger than above" &&
    expect_refusal "({metric=\"a\";above=1.0;for=0})" "for is 0, outside" &&
    expect_refusal "({metric=\"a\";above=1.0;action=\"explode\"})" "\"log\", \"checkpoint\" or \"stop\"" &&
    expect_refusal "({metric=\"a\";above=1e999})" "above is .*outside" &&
    expect_refusal "{metric=\"a\"}" "expects a list" && expect_refusal "(3)" "expects a group"'

test_done
