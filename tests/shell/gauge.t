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

# SGD in fp32: mu changes by rounding alone, 200 updates of 2^-24 of a weight and less.
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

test_done
