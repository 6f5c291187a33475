#!/bin/sh
# `ballast reduce`: the numbers that the sums over ranks must show, from the printed table.
test_description='reduction laboratory'
. "${top_srcdir:-.}/tests/shell/lib.sh"

# reduce OPTION...: the table in `out`; the error line in `err`.
reduce() { "$BALLAST" reduce "$@" >out 2>err || { cat err; return 1; }; }
# check PROGRAM: awk over the rows of `out` ($2 W, $3 algorithm, $4 average, $5 K, $6 error, $7 law,
# $8 ratio, bias, lost and scale in percent, $12 sum); bad(text) fails, near(a, b, relative) compares.
check() {
    awk "function bad(text) { print text \": \" \$0; wrong = 1 }
        function near(a, b, t) { return a >= b - t * (b < 0 ? -b : b) && a <= b + t * (b < 0 ? -b : b) }
        /^#/ || \$1 == \"values\" { next }
        { rows++; W = \$2; bias = \$9 + 0; lost = \$10 + 0; scale = \$11 + 0 }
        $1
        END { if (!rows) print \"no rows\"; exit wrong || !rows }" out
}

# 16,384 elements: an error has a relative deviation of 1 / sqrt(2 * 16384) = 0.6%.
test_expect_success 'laws within 10% for mean zero: each algorithm, K by its formula' '
    reduce --values normal --elements 16384 --ranks-per-node 1 --algorithm ring,tree,pairwise,alltoall &&
    check "{ k = log(W) / log(2) }
        \$3 == \"ring\" { want = W / 2 + 0.5 - 1 / W }
        \$3 == \"tree\" { want = 1.5 * k - 1 + 1 / W }
        \$3 == \"pairwise\" { want = k }
        \$3 == \"alltoall\" { want = 1; if (!near(\$6, 2.4e-3, 0.1)) bad(\"not flat\") }
        { if (!near(\$5, want, 2e-3)) bad(\"K\"); law = 1.67e-3 * sqrt(want + 1)
          if (!near(\$7, law, 2e-3)) bad(\"law\"); if (!near(\$6, law, 0.1)) bad(\"error\") }" &&
    test "$(grep -c "^normal" out)" -eq 16'
test_expect_success 'all algorithms, nodes of 8: within 10% of the law counted from the order' '
    reduce --values normal --elements 16384 --ranks 8,64,256 && check "{ if (!near(\$8, 1, 0.1)) bad(\"ratio\") }" &&
    test "$(grep -c "^normal" out)" -eq 18'
test_expect_success 'fp16 and stochastic rounding follow their laws' '
    reduce --values normal --elements 16384 --ranks 64 --wire fp16 --algorithm ring,tree &&
    check "{ if (!near(\$8, 1, 0.1)) bad(\"fp16\") } \$3 == \"ring\" { if (\$6 > 2e-3) bad(\"fp16\") }" &&
    reduce --values normal --elements 16384 --ranks 128 --algorithm ring --sum bf16 --sum-rounding stochastic &&
    check "{ if (!near(\$8, 1, 0.1) || \$6 < 1.6e-2) bad(\"stochastic\") }"'

test_expect_success 'a ring loses terms of one sign: 9% at 512 ranks, 40% at 1024; a tree does not' '
    reduce --values lognormal:0.5 --elements 8192 --ranks 512,1024 --algorithm ring,tree &&
    check "\$3 == \"ring\" { if (W == 512 ? bias > -8.5 || bias < -10 : bias > -39 || bias < -41) bad(\"bias\")
                           if (lost < 25) bad(\"lost\") }
        \$3 == \"tree\" { if (bias > 0.25 || bias < -0.25) bad(\"tree\") }"'
test_expect_success '512 ones add up to exactly 256 in a ring, to 512 elsewhere' '
    reduce --values ones --elements 4096 --ranks 512 --algorithm ring,pairwise,alltoall &&
    check "{ if (\$12 != (\$3 == \"ring\" ? 256 : 512)) bad(\"sum\") }
        \$3 == \"ring\" { if (bias != -50 || \$6 != 0.5) bad(\"bias\") }"'
# The measured bias has the roundings of 128 mantissas times one factor in it: 0.01% of its own.
test_expect_success 'premultiply: +0.195% at 24, 48, 96 ranks, nothing at powers of two' '
    reduce --values normal --elements 65536 --ranks 24,32,48,64,96 --algorithm alltoall --average premultiply,divide &&
    check "\$4 == \"premultiply\" { want = W % 3 ? 0 : 0.195; if (scale != want) bad(\"scale\")
            if (bias < want - 0.02 || bias > want + 0.02) bad(\"bias\") }
        \$4 == \"divide\" { if (bias < -0.01 || bias > 0.01) bad(\"divide\") }"'

test_expect_success 'the order of an element: a ring begins after its chunk, tree sums stand in brackets' '
    reduce --ranks 8 --order 600 --algorithm ring --channels 16 && grep -x "  1 2 3 4 5 6 7 0" out &&
    grep "chunks of 1024 elements" out && grep "element 600 is in \[0, 1024)" out &&
    reduce --ranks 8 --order 600,1024 --algorithm ring --channels 16 && grep -x "  2 3 4 5 6 7 0 1" out &&
    reduce --ranks 8 --order 0 --algorithm ring --collective reduce_scatter && grep -x "  1 2 3 4 5 6 7 0" out &&
    reduce --ranks 4 --order 0 --algorithm pairwise && grep -x "  0 1 (2 3)" out'
test_expect_success 'compare: an algorithm with itself is refused, two differ in most elements' '
    reduce --compare ring,alltoall --ranks 32 --values normal --elements 4096 &&
    awk "\$1 == \"normal\" { n++; if (\$6 < 30) n = -9 } END { exit n != 1 }" out &&
    test_expect_code 2 "$BALLAST" reduce --compare ring,ring && test_expect_code 2 "$BALLAST" reduce --compare ring'
test_expect_success 'the same numbers for any number of threads' '
    reduce --ranks 16 --elements 10001 --threads 1 && mv out one && reduce --ranks 16 --elements 10001 --threads 3 &&
    cmp one out'
test_expect_success 'JSON has what the table has' '
    reduce --ranks 8 --elements 512 --values normal --algorithm ring --json r.json && grep "\"ranks\": 8" r.json &&
    grep "\"algorithm\": \"ring\"" r.json && grep "\"nccl\": \"2.30\"" r.json'
test_expect_success 'what NCCL does not have is left out of all, and refused by name' '
    reduce --ranks 8 --elements 512 --collective reduce_scatter && ! grep "^normal.*tree" out && grep "^# left out" out &&
    test_expect_code 2 "$BALLAST" reduce --ranks 8 --collective reduce_scatter --algorithm tree >out 2>err &&
    test "$(wc -l <err)" -eq 1 && test ! -s out &&
    test_expect_code 2 "$BALLAST" reduce --ranks 8 --average premultiply --algorithm nvls'
test_expect_success 'bad options: code 2, one line, nothing else' '
    for args in "--ranks 0" "--ranks a" "--ranks" "--elements 0" "--values x" "--values lognormal:x" "--wire int8" \
        "--algorithm bogus" "--average mean" "--order 70000" "--bogus 1" "--sum_rounding nearest" "word" "--protocol x" \
        "--algorithm ring,ring" "--order 3 --json o.json" "--order 3 --plot o.png"; do
        # shellcheck disable=SC2086
        test_expect_code 2 "$BALLAST" reduce $args >out 2>err && test "$(wc -l <err)" -eq 1 && test ! -s out ||
            { echo "$args"; cat err; return 1; }
    done'
if command -v gnuplot >/dev/null; then test_set_prereq GNUPLOT; fi
test_expect_success GNUPLOT 'a figure' '
    reduce --ranks 8,32 --elements 512 --plot r.png && test -s r.png && test ! -s err'

# Files of this folder only: as root a rename over a path of /dev would replace it for everybody.
mkfifo fifo && ln -s nowhere link && : >file && ln -s file linked && mkdir folder
refused() { # PATTERN OPTION FILE: code 1 and one line
    test_expect_code 1 "$BALLAST" reduce --ranks 8 --elements 64 --values normal --algorithm ring "$2" "$3" >out 2>err &&
        test "$(wc -l <err)" -eq 1 && grep -q "^ballast: error: cannot write $3: $1" err && return
    cat -v err
    return 1
}
outputs() { # OPTION
    refused "it is a device or pipe" "$1" fifo && refused "it is a symbolic link" "$1" link &&
        refused "it is a symbolic link" "$1" linked && refused "it is a folder" "$1" folder &&
        refused "No such file" "$1" none/x && test -p fifo && test -L link && test -L linked && test ! -s file &&
        test -d folder
}
test_expect_success "--json replaces no device, pipe, link or folder" "outputs --json"
test_expect_success GNUPLOT "--plot neither, and a folder that is missing gives a line" "outputs --plot"

test_done
