#!/bin/sh
# The direction that the loss does not see: one vector added to all rows of an untied output matrix.
test_description='the gauge: what conserves the mean row, what moves it, what holds it'
. "${top_srcdir:-.}/tests/shell/lib.sh"

# value RUN METRIC [STEP]: of the last row, or of that step's.
value() {
    if [ $# -gt 2 ]; then grep "\"step\":$3," "runs/$1/metrics.jsonl"; else tail -n 1 "runs/$1/metrics.jsonl"; fi |
        tr ',' '\n' | sed -n "s|^\"$2\":\(.*\)|\1|p"
}
# holds EXPRESSION [NAME=VALUE...]: awk decides; the numbers are shown when it fails.
holds() {
    program=$1
    shift
    awk "BEGIN { $(printf '%s; ' "$@") exit !($program) }" || { echo "not: $program with $*"; return 1; }
}
long="run.steps=200 run.eval_tokens=24"
ring="cluster.emulate=8 precision.wire=bf16 precision.sum=bf16 precision.algorithm=ring"

# SGD in fp32: mu changes by rounding alone, 200 updates of 2^-24 of a weight and less. The other factors
# lie well between two measured numbers: Adam moves |mu| to 8 times its size, the ring leaks 5e-4, over
# it |mu| is off by 1e4 times what the centred run's is, mu_loss pulls it to 1/380 of Adam's; of what
# z_loss does to log Z, head_centering changes 1e-8, and of one ring's update of |mu| it leaves 2e-4.
test_expect_success 'fp32 SGD conserves the mean row, the leak is rounding' '
    write_tiny && train sgd $long optimizer.plugin=sgd optimizer.lr=0.5 optimizer.weight_decay=0.0 &&
    holds "(a - b) ^ 2 < (1e-4 * a) ^ 2 && leak < 1e-7 && leak >= 0" \
        a="$(value sgd logits/gauge 1)" b="$(value sgd logits/gauge)" leak="$(value sgd logits/gauge_leak)"'

test_expect_success 'Adam moves it without any low precision' '
    train adam $long optimizer.weight_decay=0.0 &&
    holds "b > 1.5 * a && leak < 1e-7" a="$(value adam logits/gauge 1)" b="$(value adam logits/gauge)" \
        leak="$(value adam logits/gauge_leak)"'

test_expect_success 'coupled second moments keep it' '
    train coupled $long optimizer.plugin=coupled_adam optimizer.weight_decay=0.0 &&
    holds "(a - b) ^ 2 < (1e-4 * a) ^ 2 && leak < 1e-7" a="$(value coupled logits/gauge 1)" \
        b="$(value coupled logits/gauge)" leak="$(value coupled logits/gauge_leak)"'

# Of the fp32 gradient after the projection one rounding of 2^-24 an element is left.
test_expect_success 'a bf16 ring leaks, head_centering stops the leak' '
    train leak $ring && train centred $ring "regularizers=({plugin=\"head_centering\";})" &&
    holds "leak > 1e-5" leak="$(value leak logits/gauge_leak 1)" &&
    holds "leak < 1e-7 && leak >= 0" leak="$(value centred logits/gauge_leak 1)"'

test_expect_success 'with SGD over that ring only the centred run keeps the mean row' '
    set -- $long $ring optimizer.plugin=sgd optimizer.lr=0.5 optimizer.weight_decay=0.0 &&
    train moves "$@" && train stays "$@" "regularizers=({plugin=\"head_centering\";})" &&
    holds "(a - b) ^ 2 < (1e-5 * a) ^ 2" a="$(value stays logits/gauge 1)" b="$(value stays logits/gauge)" &&
    holds "(moves - a) ^ 2 > (20 * (stays - a)) ^ 2" a="$(value stays logits/gauge 1)" \
        moves="$(value moves logits/gauge)" stays="$(value stays logits/gauge)"'

# After one large update, so that nothing else has moved: rounding of z_loss's own force is left, against
# the ring's leak into cross-entropy, which is what the uncentred run is off by.
test_expect_success 'so it does over that ring: only the leak is gone' '
    set -- run.steps=2 guards="()" optimizer.plugin=sgd optimizer.lr=100.0 optimizer.weight_decay=0.0 schedule.warmup=0 &&
    z="{plugin=\"z_loss\";coefficient=1e-4;}" &&
    train exact "$@" cluster.emulate=8 "regularizers=($z)" && train ring "$@" $ring "regularizers=($z)" &&
    train cured "$@" $ring "regularizers=($z,{plugin=\"head_centering\";})" &&
    holds "(cured - exact) ^ 2 < (0.1 * (ring - exact)) ^ 2" exact="$(value exact logits/gauge)" \
        ring="$(value ring logits/gauge)" cured="$(value cured logits/gauge)"'

# The same run in fp32, where there is nothing to stop: what is left of the difference is rounding.
test_expect_success 'the force of other regularizers goes through' '
    set -- run.steps=40 optimizer.plugin=sgd optimizer.lr=0.5 optimizer.weight_decay=0.0 &&
    z="{plugin=\"z_loss\";coefficient=0.01;}" &&
    train z "$@" "regularizers=($z)" && train both "$@" "regularizers=($z,{plugin=\"head_centering\";})" &&
    train none "$@" &&
    holds "(z - both) ^ 2 < (1e-3 * (z - none)) ^ 2" z="$(value z logits/log_z)" \
        both="$(value both logits/log_z)" none="$(value none logits/log_z)"'

test_expect_success 'mu_loss pulls the mean row in, mu_centering removes it' '
    train pulled $long optimizer.weight_decay=0.0 "regularizers=({plugin=\"mu_loss\";coefficient=100.0;})" &&
    train removed $long optimizer.weight_decay=0.0 "regularizers=({plugin=\"mu_centering\";})" &&
    holds "pulled < adam / 3 && removed < 1e-6" pulled="$(value pulled logits/gauge)" \
        removed="$(value removed logits/gauge)" adam="$(value adam logits/gauge)"'

test_expect_success 'head_centering is refused with tied weights' '
    test_expect_code 2 "$BALLAST" check tiny.cfg model.tied=true "regularizers=({plugin=\"head_centering\";})" 2>err &&
    cat err && grep "tied" err && test "$(wc -l <err)" -eq 1'

test_expect_success 'and where the loss feels a common offset of the logits' '
    for with in "model.logit_softcap=30.0 regularizers=({plugin=\"head_centering\";})" \
        "regularizers=({plugin=\"logit_softcap\";},{plugin=\"head_centering\";})" \
        "regularizers=({plugin=\"logit_norm\";},{plugin=\"head_centering\";})"; do
        # shellcheck disable=SC2086
        test_expect_code 2 "$BALLAST" check tiny.cfg $with 2>err || return 1
        cat err && grep "leave one of the two out" err && test "$(wc -l <err)" -eq 1 || return 1
    done &&
    "$BALLAST" check tiny.cfg "regularizers=({plugin=\"norm_softmax\";},{plugin=\"head_centering\";})" >out'

test_done
