#!/bin/sh
# Precision policies named after what other trainers do: each is the dials that its manual lists.
test_description='precision policies and their dials'
. "${top_srcdir:-.}/tests/shell/lib.sh"

ranks="cluster.emulate=4"
dials() { # dials POLICY: of each group's row of the table that check prints
    "$BALLAST" check tiny.cfg "$ranks" precision.plugin="$1" >"$1.check" && grep -E "$2" "$1.check"
}

test_expect_success 'fsdp_bf16 is mixed with a ring of bf16 sums and a predivided average' '
    write_tiny && train fsdp $ranks precision.plugin=fsdp_bf16 &&
    train written $ranks precision.plugin=mixed precision.gradient=bf16 precision.wire=bf16 \
        precision.sum=bf16 precision.average=predivide precision.algorithm=ring \
        precision.collective=reduce_scatter &&
    same fsdp written && train mixed $ranks precision.plugin=mixed && differs fsdp mixed'

# W = 3: 1 / W is no power of two, so that it matters when it is rounded.
test_expect_success 'fsdp2_bf16 differs by the average alone' '
    set -- cluster.emulate=3 batch.sequences=6 &&
    train fsdp2 "$@" precision.plugin=fsdp2_bf16 &&
    train fsdp1 "$@" precision.plugin=fsdp_bf16 &&
    train premultiplied "$@" precision.plugin=fsdp_bf16 precision.average=premultiply &&
    same fsdp2 premultiplied && differs fsdp2 fsdp1'

test_expect_success 'bf16_wire_fp32_sum adds in fp32' '
    train megatron $ranks precision.plugin=bf16_wire_fp32_sum &&
    train written2 $ranks precision.plugin=mixed precision.gradient=bf16 precision.accumulate=bf16 \
        precision.wire=bf16 precision.sum=fp32 precision.average=divide_first \
        precision.algorithm=alltoall precision.collective=reduce_scatter &&
    same megatron written2 && differs megatron fsdp'

test_expect_success 'a dial that is written wins over the policy' '
    train won $ranks precision.plugin=fsdp_bf16 precision.gradient=fp32 precision.wire=fp32 \
        precision.sum=fp32 precision.average=divide precision.algorithm=alltoall \
        precision.collective=all_reduce &&
    same won mixed'

test_expect_success 'check and the header show what came out' '
    dials fsdp_bf16 "reduce_scatter" && dials fsdp2_bf16 "premultiply" &&
    dials bf16_wire_fp32_sum "divide_first" &&
    grep "\"average\": \"predivide\"" runs/fsdp/header.json && grep "\"algorithm\": \"ring\"" runs/fsdp/header.json'

test_done
