#!/bin/sh
# ballast check: what a run will take, without its data and without its memory.
test_description='check'
. "${top_srcdir:-.}/tests/shell/lib.sh"

write_tiny

# bytes NAME FILE: the number of a line of check's output, 1.23M as 1230000.
bytes() {
    sed -n "s/^  $1  *\([0-9.]*\)\([kMGT]*\)B.*/\1 \2/p" "$2" | awk '{
        f["k"] = 1e3; f["M"] = 1e6; f["G"] = 1e9; f["T"] = 1e12
        printf "%.0f\n", $1 * ($2 in f ? f[$2] : 1) }'
}

# Under a sanitizer a process has far more memory than it asks for.
grep -q __asan_init "$BALLAST" || test_set_prereq PLAIN

# 1 GB holds the program and what OpenBLAS maps, and no model of a preset: the smallest takes 7.8 GB.
# shellcheck disable=SC3045 # dash, bash, busybox and ksh all have -v
limit() {
    if test_have_prereq PLAIN; then ulimit -v 1000000; fi
}
test_expect_success 'every configuration of the tree passes, without data and in little memory' '
    find "$SOURCE/configs" -name "*.cfg" >list && test "$(grep -c presets/ list)" -ge 10 &&
    while read -r cfg; do
        (limit && "$BALLAST" check --no-data "$cfg" >out 2>err) ||
            { echo "$cfg"; cat err; return 1; }
        test ! -s err || { echo "$cfg warns"; cat err; return 1; }
        grep -q "^  total  *[0-9]" out && grep -q "^# --no-data" out || { echo "$cfg"; return 1; }
    done <list && test ! -e runs'

test_expect_success 'a preset file checks the preset of its name' '
    for cfg in "$SOURCE"/configs/presets/*.cfg; do
        name=${cfg##*/} && name=${name%.cfg} &&
        "$BALLAST" check --no-data "$cfg" >out && grep "^# preset $name$" out || return 1
    done'

test_expect_success 'the seeds: batch, learning rate, decay as given' '
    "$BALLAST" check "$SOURCE/configs/presets/seed-125m.cfg" --no-data >out &&
    grep " 524288 = 256 sequences x 2048" out && grep "peak 0.0003," out &&
    grep "^    weight_decay = 0.1;" out && grep "^    layers = 24;" out && grep "^    width = 768;" out &&
    "$BALLAST" check --no-data "$SOURCE/configs/presets/seed-1.3b.cfg" >out &&
    grep " 1048576 = 512 sequences x 2048" out && grep "peak 0.0002," out &&
    grep "^    weight_decay = 0.1;" out && grep "^    layers = 48;" out && grep "^    width = 2048;" out'

test_expect_success 'missing data is refused without --no-data' '
    test_expect_code 4 "$BALLAST" check "$SOURCE/configs/presets/gpt2-124m.cfg" 2>err &&
    grep "data/train-.*matches no file" err'

test_expect_success '--no-data needs the vocabulary from the config' '
    printf "data = { train = [ \"none-*.bin\" ]; };\n" >plain.cfg &&
    test_expect_code 2 "$BALLAST" check --no-data plain.cfg 2>err && grep "model.vocab is not set" err &&
    "$BALLAST" check --no-data plain.cfg model.vocab=1000 >out && grep "epochs unknown" out'

test_expect_success 'options: anywhere; others are refused' '
    "$BALLAST" check tiny.cfg --no-data run.steps=3 >out && grep "steps = 3" out &&
    grep "entropy of the source" out && test_expect_code 2 "$BALLAST" check --nodata tiny.cfg 2>err &&
    grep "unknown option --nodata" err && test_expect_code 2 "$BALLAST" check --no-data 2>err'

test_expect_success 'keys of the preset that are changed are named' '
    "$BALLAST" check --no-data "$SOURCE/configs/presets/olmo2-7b.cfg" model.layers=2 model.width=4096 >out &&
    sed -n "/^# preset/,/^$/p" out >preset && grep "olmo2-7b, changed" preset &&
    grep "layers = 2 (preset: 32)" preset && ! grep width preset &&
    sed "/^# plugins/,\$d" out >effective.cfg && "$BALLAST" check --no-data effective.cfg >again &&
    grep "^  parameters" out >a && grep "^  parameters" again >b && cmp a b'

# 2 blocks of 12 x 32^2 and a head of 61 x 32: 26528; 6 x that, and 6 x 2 x 24 x 32 for attention.
test_expect_success 'FLOPs: the formula gives the number' '
    "$BALLAST" check tiny.cfg >out && grep "6 x 26.5k weights" out && grep " = 9.22k (causal" out &&
    grep "FLOPs  *168k a token" out'

# The run below keeps 1 and 2 checkpoints; the files have headers on top, 100 bytes a tensor.
test_expect_success 'checkpoint bytes are those on disk' '
    train disk model.width=128 run.steps=2 && "$BALLAST" check tiny.cfg model.width=128 >out &&
    want=$(bytes "one checkpoint" out) && got=$(cat runs/disk/checkpoints/2/*.safetensors | wc -c) &&
    awk -v w="$want" -v g="$got" "BEGIN { print w, g; exit !(g > 0.99 * w && g < 1.03 * w) }"'

# What a process takes beside the run: code, libraries, OpenBLAS, working space of the kernels; 8 to
# 21 MB where this was measured. It is not in the prediction.
test_expect_success PLAIN 'predicted memory is what a run takes' '
    for set in precision.plugin=fp32 precision.plugin=mixed "cluster.emulate=4" \
        "regularizers=({plugin=\"norm_softmax\";},{plugin=\"z_loss\";})"; do
        set -- data.vocab=2000 model.vocab=2000 model.width=256 model.context=96 run.threads=2 run.eval_every=0 run.checkpoint_every=1 "$set" &&
        "$BALLAST" check tiny.cfg "$@" run.steps=2 >out && train memory "$@" run.steps=2 &&
        got=$(tail -n 1 runs/memory/metrics.jsonl | sed -n "s/.*\"perf\/memory_bytes\": *\([0-9.e+]*\).*/\1/p") &&
        awk -v p="$(bytes total out)" -v g="$got" "BEGIN { print p, g; exit !(p > 55e6 && g > p && g < p + 30e6) }" ||
        return 1
    done'

# 5 arrays of the size of the weights without shards; a quarter of the two moments with 4 of them. Of
# master and moments each process writes a quarter in any case, process 0 also the working weights:
# those it does not have as whole masters, or all where they are other numbers.
test_expect_success 'one process of several: shards, the copy that is saved, messages' '
    set -- --no-data model.vocab=2000 model.width=256 batch.sequences=8 batch.micro=1 run.checkpoint_every=3 &&
    "$BALLAST" check tiny.cfg "$@" >one && ! grep "^# messages" one && w=$(bytes "weights (master)" one) &&
    "$BALLAST" check --processes 4 tiny.cfg "$@" >four && grep "^# memory of each of 4 processes" four &&
    grep "4 ranks x 2 micro-batches" four &&
    "$BALLAST" check tiny.cfg "$@" --processes 4 "cluster.shard=\"optimizer\"" >sharded &&
    "$BALLAST" check tiny.cfg "$@" --processes 4 precision.plugin=mixed >mixed &&
    for none in run.save=sync run.checkpoint_every=0 run.checkpoint_every=6; do
        "$BALLAST" check tiny.cfg "$@" --processes 4 $none >sync && ! grep "being saved" sync || return 1
    done && "$BALLAST" check tiny.cfg "$@" run.checkpoint_every=0 run.ring=2 run.ring_every=5 | grep "being saved" && awk -v w="$w" -v o="$(bytes "optimizer state" four)" \
        -v q="$(bytes "optimizer state" sharded)" -v c="$(bytes "copy that is being saved" four)" \
        -v d="$(bytes "copy that is being saved" sharded)" -v x="$(bytes "copy that is being saved" mixed)" \
        -v e="$(bytes "copy that is being saved" one)" -v m="$(bytes "sent in a step" four)" "BEGIN {
            print w, o, q, c, d, x, e, m
            exit !(near(o, 2 * w) && near(q, w / 2) && near(e, 3 * w) && c == d && c > 1.45 * w && c < 1.75 * w &&
                near(x, 1.75 * w) && near(m, 1.5 * w)) }
        function near(x, y) { return x > 0.98 * y && x < 1.02 * y }"'

test_expect_success '--processes: a number that the ranks can be spread over' '
    for n in 0 -1 x 4x "" 99999999999; do
        test_expect_code 2 "$BALLAST" check --processes "$n" tiny.cfg 2>err &&
        grep "processes wants a number from 1" err || return 1
    done && test_expect_code 2 "$BALLAST" check tiny.cfg --processes 2>err && grep "wants a number" err &&
    test_expect_code 2 "$BALLAST" check tiny.cfg --processes 3 cluster.emulate=4 2>err &&
    grep "4 ranks cannot be spread over 3 processes; start 2 or 4, or" err &&
    test_expect_code 2 "$BALLAST" check --processes 8 tiny.cfg cluster.emulate=4 2>err && grep "start 4, or another" err'

test_expect_success 'a smaller micro-batch than written is told, by train as well' '
    "$BALLAST" check tiny.cfg batch.micro=3 2>err >out && grep "batch.micro = 3 becomes 2" err &&
    "$BALLAST" train --fresh tiny.cfg run.name=micro batch.micro=3 run.steps=1 >err 2>&1 &&
    grep "batch.micro = 3 becomes 2" err && "$BALLAST" check tiny.cfg 2>err >out && test ! -s err'

test_expect_success 'a plugin_path that is not there is told' '
    "$BALLAST" check tiny.cfg "plugin_path=[\"nowhere\"]" 2>err >out && grep "no folder \"nowhere\"" err'

test_expect_success 'an override that breaks a check is named' '
    test_expect_code 2 "$BALLAST" check tiny.cfg model.heads=5 2>err &&
    grep "command line: model.heads=5: model: width 32 is not divisible by heads 5" err'

test_expect_success PLAIN 'no memory: what the model needs and what there is' '
    (ulimit -v 900000 && test_expect_code 1 "$BALLAST" train --fresh tiny.cfg run.name=none \
        model.width=4096 model.mlp_width=65536 2>err) &&
    grep "no memory for the [a-z ]* (.*B): the model needs .*B, .*B are free here" err &&
    ! grep "batch.micro" err && test ! -e runs/none'

test_expect_success 'a plugin of another kind is called by its article' '
    test_expect_code 3 "$BALLAST" check tiny.cfg schedule.plugin=adamw 2>err && grep "is an optimizer" err'

test_done
