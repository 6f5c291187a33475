#!/bin/sh
# The commands of a first hour: check, train, report, plugins, data, weights.
test_description='commands'
. "${top_srcdir:-.}/tests/shell/lib.sh"

write_tiny

test_expect_success 'help of every command' '
    "$BALLAST" --help >out && grep train out && "$BALLAST" --version | grep ABI &&
    for c in train check plugins plugin report data weights; do "$BALLAST" $c --help >out || return 1; grep usage out || return 1; done'

test_expect_success 'check: config, plugins, parameters, work, memory; and it writes nothing' '
    "$BALLAST" check tiny.cfg >out && grep "layers = 2" out && grep "precision_fp32.so" out &&
    grep "layers.1.mlp.down.weight" out && grep "tokens per update  *192" out && grep "FLOPs" out &&
    grep "entropy of the source" out && grep "optimizer state" out && test ! -e runs'

test_expect_success 'check prints a config that runs to the same bits' '
    train base && "$BALLAST" check tiny.cfg run.name=base | sed "/^# plugins/,\$d" >effective.cfg &&
    "$BALLAST" train --fresh effective.cfg run.name=effective >/dev/null 2>&1 && same base effective'

test_expect_success 'train: run directory as documented' '
    for f in config.cfg header.json metrics.jsonl log.txt checkpoints/6/state.json checkpoints/6/model.safetensors; do
        test -s runs/base/$f || return 1; done &&
    test "$(grep -c . runs/base/metrics.jsonl)" -eq 6'

test_expect_success 'metrics: names of the interface' '
    tail -n 1 runs/base/metrics.jsonl >row &&
    for m in loss/ce loss/aux loss/total optim/lr optim/weight_decay optim/grad_norm optim/grad_norm_clipped optim/param_norm \
        optim/update_norm optim/skipped logits/norm logits/mean logits/abs_mean logits/centered_rms logits/max \
        logits/log_z logits/log_z_sq logits/gauge logits/gauge_ratio logits/gauge_leak loss/val \
        loss/val_perplexity perf/tokens_per_second grad/head.weight/share update/head.weight/ratio; do
        grep -q "\"$m\":" row || { echo "no $m"; return 1; }; done'

test_expect_success 'a finished run says complete and exits 0' '
    "$BALLAST" train tiny.cfg run.name=base >out 2>&1 && grep complete out'

test_expect_success 'a run directory may move' '
    mkdir elsewhere && cp -r runs/base elsewhere/ &&
    "$BALLAST" train tiny.cfg run.name=base run.dir=elsewhere >out 2>&1 && grep complete out'

test_expect_success 'header.json: dials, decay groups, plugins with checksums' '
    grep -q "\"warmup_convention\": \"next\"" runs/base/header.json && grep -q "\"xxh64\"" runs/base/header.json &&
    grep -q "\"decay_groups\"" runs/base/header.json && grep -q "\"accumulate\": \"fp32\"" runs/base/header.json'

test_expect_success 'plugins: lists, and prints an option table' '
    "$BALLAST" plugins >out && grep "regularizer .*z_loss" out && grep "optimizer .*adamw" out &&
    "$BALLAST" plugins z_loss >out && grep coefficient out && "$BALLAST" plugins precision/mixed >out && grep mixed out'

test_expect_success 'one plugin of every kind' '
    for k in regularizer precision schedule monitor optimizer guard sink source tokenizer; do
        "$BALLAST" plugins | grep -q "^  $k " || { echo "no $k"; return 1; }; done'

test_expect_success 'text source, learned positions, tied weights, bf16' '
    "$BALLAST" train --fresh tiny.cfg run.name=text "data={source=\"text\";train=[\"$SOURCE/README.md\"];validation=[\"$SOURCE/HACKING.md\"]}" \
        model.tied=true model.vocab=0 precision.plugin=mixed "monitors=({plugin=\"logits\"})" >out 2>&1 &&
    grep -q loss/val runs/text/metrics.jsonl'

test_expect_success 'the loss falls towards the entropy of a synthetic source, never below' '
    "$BALLAST" train --fresh tiny.cfg run.name=learn run.steps=150 batch.sequences=16 "monitors=()" optimizer.lr=5e-3 >out 2>&1 &&
    H=$(sed -n "s/.*\"source_entropy\": *\([0-9.]*\).*/\1/p" runs/learn/header.json) &&
    first=$(sed -n "1s/.*\"loss\/ce\": *\([0-9.]*\).*/\1/p" runs/learn/metrics.jsonl) &&
    last=$(sed -n "\$s/.*\"loss\/val\": *\([0-9.]*\).*/\1/p" runs/learn/metrics.jsonl) &&
    awk -v h="$H" -v a="$first" -v b="$last" "BEGIN { print h, a, b; exit !(h > 0 && b > h - 0.05 && b - h < 0.5 * (a - h)) }"'

test_expect_success 'data pack, then tokens' '
    cat "$SOURCE"/README.md "$SOURCE"/HACKING.md >book.txt && "$BALLAST" data pack --validation 0.2 book book.txt &&
    "$BALLAST" train --fresh tiny.cfg run.name=book "data={source=\"tokens\";train=[\"book-train.bin\"];validation=[\"book-val.bin\"]}" model.vocab=256 >out 2>&1 &&
    grep -q loss/val runs/book/metrics.jsonl'

test_expect_success 'weights: lists and compares' '
    "$BALLAST" weights runs/base/checkpoints/6 >out && grep head.weight out &&
    "$BALLAST" weights runs/base/checkpoints/6 runs/effective/checkpoints/6 >out && grep identical out &&
    train other run.seed=9 && test_expect_code 1 "$BALLAST" weights runs/base/checkpoints/6 runs/other/checkpoints/6'

test_expect_success 'perplexity saturates to inf and stops nothing' '
    "$BALLAST" train --fresh tiny.cfg run.name=inf "model.init_std=3000.0" optimizer.lr=0.0 run.steps=1 >out 2>&1 &&
    grep "\"loss/val_perplexity\": *\"inf\"" runs/inf/metrics.jsonl'

test_expect_success 'SIGTERM: checkpoint, exit 75; the same command goes on' '
    { "$BALLAST" train --fresh tiny.cfg run.name=term run.steps=100000 "monitors=()" >out 2>&1 & } && pid=$! &&
    await test -s runs/term/metrics.jsonl &&
    kill -TERM $pid && { wait $pid; test $? -eq 75; } && ls runs/term/checkpoints/*/state.json &&
    { timeout -s INT 3 "$BALLAST" train tiny.cfg run.name=term run.steps=100000 "monitors=()" >out 2>&1; test $? -eq 124 -o $? -eq 130; } &&
    grep "resuming from" out'

test_expect_success 'two runs in one directory: the second is refused' '
    { "$BALLAST" train --fresh tiny.cfg run.name=two run.steps=100000 "monitors=()" >out1 2>&1 & } && pid=$! &&
    await test -s runs/two/metrics.jsonl &&
    test_expect_code 1 "$BALLAST" train tiny.cfg run.name=two run.steps=100000 "monitors=()" 2>err && grep another err;
    rc=$?; kill -INT $pid; { wait $pid; test $? -eq 130; } && test $rc -eq 0'

if command -v gnuplot >/dev/null; then
    test_expect_success 'report: PNG figures and one page with them inside' '
        "$BALLAST" report runs/base >out && for f in loss learning_rate gradient_norm logits; do
            head -c 8 runs/base/figures/$f.png | od -An -tx1 | grep -q "89 50 4e 47" || return 1; done &&
        test "$(grep -o "src=\"data:image/" runs/base/report.html | wc -l)" -ge 4 && ! grep -q "http" runs/base/report.html'
    test_expect_success 'report of a run without a finite number, and of constant curves: no word of gnuplot' '
        test_expect_code 7 "$BALLAST" train tiny.cfg run.name=nan model.init_std=1e30 &&
        "$BALLAST" report runs/nan >out 2>err && test ! -s err && test -s runs/nan/report.html &&
        train flat schedule.plugin=constant schedule.warmup=0 && "$BALLAST" report runs/flat >out 2>err && test ! -s err'
    test_expect_success 'report of a run with quotes in its name' '
        train "it'"'"'s \"one\"" && "$BALLAST" report runs/it* >out && grep "/figures/logits.png" out'
else
    test_expect_success 'report without gnuplot: one clear line' '
        test_must_fail "$BALLAST" report runs/base 2>err && grep gnuplot-nox err'
fi

test_done
