#!/bin/sh
# Known faults, and whether what should notice them does.
test_description='injected faults and guards'
. "${top_srcdir:-.}/tests/shell/lib.sh"

# steps RUN METRIC: steps in which it is 1.
steps() { grep "\"$2\":1[,}]" "runs/$1/metrics.jsonl" | sed 's|.*"step":\([0-9]*\),.*|\1|' | tr '\n' ' '; }
guard='{plugin="skip_step";minimum=20;window=40;sigmas=6.0;on="norm";}'

test_expect_success 'skip_step skips all of the injected steps and no other' '
    write_tiny && train spikes run.steps=70 run.eval_tokens=24 \
        "guards=({plugin=\"inject\";steps=[35,36,60];factor=50.0;},$guard)" &&
    test "$(steps spikes guard/inject/active)" = "35 36 60 " && test "$(steps spikes optim/skipped)" = "35 36 60 " &&
    test "$(steps spikes spike/flag)" = "35 36 60 "'

# zclip is asked before the injection or, in the rejected steps, not at all.
test_expect_success 'what a later guard rejects is not remembered by an earlier one' '
    spike="{plugin=\"inject\";steps=[35,36,60];}" && clip="{plugin=\"zclip\";max=0.0;}" &&
    train before run.steps=70 run.eval_tokens=24 "guards=($clip,$spike,$guard)" &&
    train after run.steps=70 run.eval_tokens=24 "guards=($spike,$guard,$clip)" &&
    test "$(steps before optim/skipped)" = "35 36 60 " && test "$(steps after optim/skipped)" = "35 36 60 " &&
    for run in before after; do
        tail -n 1 runs/$run/metrics.jsonl | tr , "\n" | grep "guard/zclip/mean" >$run.mean || return 1
    done && test_cmp before.mean after.mean'

# norm RUN STEP: of the gradient as it reached the optimizer.
norm() { grep "\"step\":$2," "runs/$1/metrics.jsonl" | tr , '\n' | sed -n 's|^"optim/grad_norm_clipped":||p'; }
for clip in '{plugin="clip_value";max=0.003;}' '{plugin="agc";lambda=0.02;head=true;}' '{plugin="adagc";warmup=20;}' \
    '{plugin="zclip";warmup=20;max=0.0;}'; do
    name=$(expr "$clip" : '{plugin="\([a-z_]*\)"')
    test_expect_success "a gradient 50 times as large hardly gets through $name" '
        train $name run.steps=40 run.eval_tokens=24 "guards=({plugin=\"inject\";steps=[35];},$clip)" &&
        echo "$(norm $name 34) $(norm $name 35)" && awk "BEGIN { exit !($(norm $name 35) < 5 * $(norm $name 34)) }"'
done

test_expect_success 'a broken weight in a step that is skipped is in the next one, resumed or not' '
    set -- precision.plugin=mixed run.steps=8 run.checkpoint_every=4 run.keep=9 "guards=({plugin=\"inject\";name=\"weight\";steps=[4];what=\"flip\";where=\"weight\";bit=29;tensor=\"layers.0.attn.q.weight\";},{plugin=\"inject\";name=\"gradient\";steps=[4];what=\"nan\";},{plugin=\"skip_step\";minimum=2;window=20;on=\"norm\";})" &&
    train whole "$@" && mkdir -p runs/half/checkpoints && cp -r runs/whole/checkpoints/4 runs/half/checkpoints/ &&
    "$BALLAST" train tiny.cfg run.name=half "$@" >half.out 2>&1 && grep "resuming from" half.out && same whole half 8 &&
    grep "\"guard/weight/active\":1" runs/whole/metrics.jsonl >/dev/null'

test_expect_success 'without injections it skips nothing' '
    train calm run.steps=70 run.eval_tokens=24 "guards=($guard)" && test -z "$(steps calm optim/skipped)"'

test_expect_success 'a guard that skips a step leaves no trace of a NaN in the gradient' '
    train broken run.steps=30 run.eval_tokens=24 "guards=({plugin=\"inject\";steps=[4];what=\"nan\";},$guard)" &&
    test "$(steps broken optim/skipped)" = "4 " && ! tail -n 1 runs/broken/metrics.jsonl | grep "nan"'

test_expect_success 'without a guard a NaN in the gradient ends the run as diverged, with the step' '
    test_expect_code 7 "$BALLAST" train --fresh tiny.cfg run.name=dead \
        "guards=({plugin=\"inject\";steps=[4];what=\"nan\";})" >out 2>&1 && grep "diverged at step 4" out'

# Exponents of weights around 0.02 begin with 0: the bit makes it some 1e36, which fp32 still holds.
test_expect_success 'a flipped exponent bit of a weight is seen in the next loss' '
    train flip "guards=({plugin=\"inject\";steps=[2];what=\"flip\";where=\"weight\";tensor=\"head.weight\";})" &&
    grep "element 0 of the weights of head.weight" flip.out &&
    grep "\"step\":2,.*\"loss/ce\":[0-9.]*," runs/flip/metrics.jsonl >/dev/null &&
    grep "\"step\":3,.*\"loss/ce\":[0-9.]*e+3[0-9]," runs/flip/metrics.jsonl >/dev/null'

test_done
