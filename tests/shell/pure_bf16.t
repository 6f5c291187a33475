#!/bin/sh
# Training without fp32 weights, as a user meets it: what is stored, same bits, resume, the header.
test_description='bf16 master weights and moments'
. "${top_srcdir:-.}/tests/shell/lib.sh"

# plain FILE: how many of its fp32 numbers are no bf16 numbers (their lower two bytes are not 0).
plain() {
    length=$(od -An -v -tu8 -N8 "$1" | tr -d ' ')
    tail -c +$((9 + length)) "$1" | od -An -v -tx2 -w4 | awk '$1 != "0000" { n++ } END { print n + 0 }'
}
first_loss() { head -n 1 "runs/$1/metrics.jsonl" | sed "s|.*\"loss/ce\": *\([0-9.]*\).*|\1|"; }
final() { echo "runs/$1/checkpoints/6/$2.safetensors"; }

test_expect_success 'every stored number is a bf16 number, and the fp32 run has others' '
    write_tiny && train pure precision.plugin=pure_bf16 && train base &&
    for part in model optimizer-1-of-1; do
        test "$(plain "$(final pure $part)")" = 0 && test "$(plain "$(final base $part)")" -gt 9999 || return 1
    done'

test_expect_success 'it learns' '
    first=$(first_loss pure) &&
    last=$(tail -n 1 runs/pure/metrics.jsonl | sed "s|.*\"loss/ce\": *\([0-9.]*\).*|\1|") &&
    echo "$first $last" && awk -v a="$first" -v b="$last" "BEGIN { exit !(b < a - 0.02) }"'

test_expect_success 'initial weights are stored in bf16 before the first step' '
    train master precision.master=bf16 && test "$(first_loss master)" != "$(first_loss base)" &&
    train moments precision.moments=bf16 && test "$(first_loss moments)" = "$(first_loss base)"'

test_expect_success 'threads 1 = 2 = 3, nearest and stochastic' '
    for rounding in nearest stochastic kahan; do
        set -- precision.plugin=pure_bf16 precision.rounding=$rounding
        train $rounding "$@" run.threads=1 && train t2 "$@" run.threads=2 && train t3 "$@" run.threads=3 &&
        same $rounding t2 && same $rounding t3 || return 1
    done &&
    same pure nearest && differs nearest stochastic && differs nearest kahan && test "$(plain "$(final stochastic model)")" = 0 &&
    test "$(plain "$(final kahan optimizer-1-of-1)")" = 0'

test_expect_success 'stopped half-way and resumed = not stopped' '
    for rounding in stochastic kahan; do
        set -- precision.plugin=pure_bf16 precision.rounding=$rounding run.checkpoint_every=3 run.keep=9 &&
        rm -rf runs/half && train whole "$@" &&
        mkdir -p runs/half/checkpoints && cp -r runs/whole/checkpoints/3 runs/half/checkpoints/ &&
        "$BALLAST" train tiny.cfg run.name=half "$@" >half.out 2>&1 &&
        grep "resuming from" half.out && same whole half && same whole $rounding || return 1
    done'

test_expect_success 'four ranks in one process store bf16 too' '
    train ranks precision.plugin=pure_bf16 cluster.emulate=4 && test "$(plain "$(final ranks model)")" = 0'

test_expect_success 'a projection after the update is stored like an update' '
    train centred precision.plugin=pure_bf16 "regularizers=({plugin=\"mu_centering\"})" &&
    differs pure centred && test "$(plain "$(final centred model)")" = 0'

# Embeddings: 61 x 32 of which 64 rows are stored, and 24 x 32 positions.
test_expect_success 'one group alone' '
    train matrix precision.matrix.master=bf16 &&
    count=$(plain "$(final matrix model)") && all=$(plain "$(final base model)") && echo "$count of $all" &&
    test "$count" -gt 1000 && test "$count" -lt $((all / 2)) && differs base matrix &&
    train norm precision.norm.moments=bf16 && differs base norm'

test_expect_success 'header and check name the dials' '
    grep -c "\"master\": \"bf16\"" runs/pure/header.json >n && echo 4 >four && test_cmp four n &&
    grep -c "\"rounding\": \"stochastic\"" runs/stochastic/header.json >n && test_cmp four n &&
    "$BALLAST" check tiny.cfg precision.plugin=pure_bf16 precision.rounding=stochastic >check.out &&
    grep "master bf16, moments bf16, rounding stochastic" check.out && grep "fp32 storage" check.out &&
    "$BALLAST" check tiny.cfg >check.out && ! grep "fp32 storage" check.out'

test_done
