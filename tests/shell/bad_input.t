#!/bin/sh
# Bad input: one line that says where and what to do, the right exit code, nothing half-written.
test_description='bad input'
. "${top_srcdir:-.}/tests/shell/lib.sh"

write_tiny
printf 'hello world\n' >text.txt

# bad CODE PATTERN COMMAND...: the exit code, one line of error with the pattern, no run directory.
bad() {
    code=$1 pattern=$2
    shift 2
    rm -rf runs
    timeout 60 "$BALLAST" "$@" >out 2>err
    got=$?
    if [ "$got" -ne "$code" ]; then echo "exit $got, not $code"; cat err; return 1; fi
    if [ "$(grep -c . err)" -ne 1 ]; then echo "not one line:"; cat err; return 1; fi
    grep -qE "$pattern" err || { echo "no /$pattern/ in:"; cat err; return 1; }
    [ ! -e runs ] || { echo "left behind:"; find runs; return 1; }
}

expect() { # NAME CODE PATTERN ARGUMENT...
    name=$1
    shift
    printf '%s\n' "$@" >args
    test_expect_success "$name" '
        set --
        while IFS= read -r word; do set -- "$@" "$word"; done <args
        bad "$@"'
}
config() { # a config whose text is standard input, NAME.cfg
    cat >"$1.cfg"
}

expect 'no command of that name' 2 'no command "trian"' trian
expect 'train without a config' 2 'usage: ballast train' train
expect 'config that is not there' 2 'missing.cfg' train missing.cfg
expect 'a folder as config' 2 'folder' train .
: >empty.cfg
expect 'unknown key, with the nearest' 2 'unknown key "learning_rate"|"lr"' train tiny.cfg optimizer.lrr=1
expect 'unknown group' 2 'optimiser.*optimizer' train tiny.cfg optimiser.lr=1
expect 'wrong type' 2 'steps' train tiny.cfg run.steps=many
expect 'out of range' 2 'steps' train tiny.cfg run.steps=0
expect 'float for an integer' 2 'layers' train tiny.cfg model.layers=1.5
expect 'unknown choice' 2 'layernorm' train tiny.cfg model.norm=batchnorm
expect 'not an assignment' 2 '=' train tiny.cfg nonsense
expect 'heads that do not divide the width' 2 'heads' train tiny.cfg model.heads=5
expect 'batch that ranks do not divide' 2 'emulate|ranks' train tiny.cfg cluster.emulate=3
expect 'tokens and sequences both' 2 'tokens' train tiny.cfg batch.tokens=96
expect 'unsafe run name' 2 'no name of a folder' train tiny.cfg run.name=../x
expect 'unknown plugin, with the nearest' 3 'z_loss' train tiny.cfg 'regularizers=({plugin="z_los"})'
expect 'unknown option of a plugin' 2 'coefficient' train tiny.cfg 'regularizers=({plugin="z_loss";coefficent=1.0})'
expect 'option of a plugin out of range' 2 'coefficient' train tiny.cfg 'regularizers=({plugin="z_loss";coefficient=-1.0})'
expect 'two instances of one name' 2 'name' train tiny.cfg 'regularizers=({plugin="z_loss"},{plugin="z_loss"})'
expect 'a name that is a metric of the trainer' 2 'loss/total' train tiny.cfg 'regularizers=({plugin="z_loss";name="total"})'
expect 'a dial of the head with tied weights' 2 'precision.embedding.wire' train tiny.cfg model.tied=true precision.head.wire=bf16
expect 'plugin of the wrong kind' 3 'kind|guard' train tiny.cfg "regularizers=({plugin=\"$BALLAST_PLUGIN_PATH/guard_clip_norm.so\"})"
cp text.txt fake.so
expect 'an optimizer that refuses its options' 2 'betas' train tiny.cfg 'optimizer.betas=[0.9]'
expect 'a list that does not parse' 2 'quotes|nan' train tiny.cfg 'optimizer.rules=({match="*";lr_scale=nan})'
expect 'a dial for a group of dials' 2 'precision.head: expects a group' train tiny.cfg precision.head=bf16
expect 'a prefix without a name' 2 'OUT_PREFIX' data pack ./ text.txt
expect 'plugin that is not ELF' 3 'ELF' train tiny.cfg 'regularizers=({plugin="./fake.so"})'
head -c 3000 "$BALLAST_PLUGIN_PATH/regularizer_z_loss.so" >cut.so
expect 'plugin that is cut' 3 'cut' train tiny.cfg 'regularizers=({plugin="./cut.so"})'
expect 'eps rule for an optimizer without eps' 2 'eps' train tiny.cfg optimizer.plugin=sgd 'optimizer.rules=({match="*";eps=1e-6})'
expect 'rule that matches nothing' 2 'blocks' train tiny.cfg 'optimizer.rules=({match="blocks.*";lr_scale=0.5})'
expect 'stochastic rounding of a store that nothing rounds' 2 'master' train tiny.cfg precision.rounding=stochastic
expect 'data that is not there' 4 'nowhere' train tiny.cfg 'data={source="tokens";train=["nowhere-*.bin"]}' model.vocab=256
expect 'no data files named' 4 'data.train' train tiny.cfg 'data={source="tokens"}' model.vocab=256
expect 'not a shard' 4 'text.txt' train tiny.cfg 'data={source="tokens";train=["text.txt"]}' model.vocab=256
: >zero.bin
expect 'an empty shard' 4 'zero.bin' train tiny.cfg 'data={source="tokens";train=["zero.bin"]}' model.vocab=256
expect 'text shorter than one sequence' 4 'text.txt' train tiny.cfg 'data={source="text";train=["text.txt"]}'
expect 'vocabulary smaller than the source' 2 'vocab' train tiny.cfg model.vocab=7
expect 'check: as train' 2 'layers' check tiny.cfg model.layers=0
expect 'report of nothing' 2 'metrics.jsonl' report nowhere
expect 'pack of a file that is not there' 4 'nothere' data pack packed nothere.txt
expect 'pack of an empty file' 4 'empty.cfg' data pack packed empty.cfg
expect 'weights of a file that is not there' 5 'nothere' weights nothere.safetensors
expect 'weights of something else' 5 'text.txt' weights text.txt
expect 'plugins: unknown name' 3 'nosuch' plugins nosuch

config dup <<'C'
run = { name = "x"; };
run = { name = "y"; };
C
expect 'duplicate group with its line' 2 'dup.cfg:2' train dup.cfg
config big <<'C'
run = {
  seed = 5000000000;
};
C
expect 'integer beyond 32 bits without L' 2 'big.cfg:2.*L' train big.cfg
config syntax <<'C'
run = { name = "x"
C
expect 'syntax error with file and line' 2 'syntax.cfg:[12]' train syntax.cfg
config inc <<'C'
@include "inc_part.cfg"
C
config inc_part <<'C'
run = { name = "x";
  setps = 3; };
C
expect 'error inside an included file' 2 'inc_part.cfg:2.*steps' train inc.cfg

test_expect_success 'an id beyond the vocabulary: file and offset, exit 4' '
    "$BALLAST" data pack p "$SOURCE/README.md" &&
    rm -rf runs && test_expect_code 2 "$BALLAST" train tiny.cfg "data={source=\"tokens\";train=[\"p-train.bin\"]}" model.vocab=50 2>err &&
    grep "ids up to 255" err && dd if=/dev/zero of=p-train.bin bs=1 seek=12 count=8 conv=notrunc 2>/dev/null &&
    test_expect_code 4 "$BALLAST" train tiny.cfg "data={source=\"tokens\";train=[\"p-train.bin\"]}" model.vocab=50 2>err &&
    grep "p-train.bin: byte [0-9]" err'

test_expect_success 'a run directory that cannot be written' '
    rm -rf runs && : >runs && test_expect_code 1 "$BALLAST" train tiny.cfg 2>err && grep runs err && rm runs'

test_expect_success 'another plan in the same directory' '
    train plan && test_expect_code 5 "$BALLAST" train tiny.cfg run.name=plan optimizer.lr=1e-3 2>err &&
    grep fresh err'

test_expect_success 'a damaged checkpoint' '
    printf x | dd of=runs/plan/checkpoints/6/model.safetensors bs=1 seek=200 conv=notrunc 2>/dev/null &&
    test_expect_code 5 "$BALLAST" train tiny.cfg run.name=plan 2>err && grep model.safetensors err'

test_expect_success 'an edited state.json' '
    train state && sed -i "s/\"updates\": 6/\"updates\": 5/" runs/state/checkpoints/6/state.json &&
    test_expect_code 5 "$BALLAST" train tiny.cfg run.name=state 2>err && grep "state.json.*remove" err'

test_expect_success 'a config that a plugin refuses leaves the old run alone, --fresh or not' '
    train old && cp -r runs/old saved &&
    test_expect_code 2 "$BALLAST" train --fresh tiny.cfg run.name=old "optimizer.betas=[0.9]" && diff -r saved runs/old'

test_expect_success 'another plugin under the name of one' '
    mkdir swapped && cp -L "$BALLAST_PLUGIN_PATH/regularizer_mean_logit.so" swapped/regularizer_z_loss.so &&
    test_expect_code 3 "$BALLAST" train tiny.cfg "plugin_path=[\"swapped\"]" "regularizers=({plugin=\"z_loss\"})" 2>err &&
    grep "mean_logit, not z_loss" err'

test_expect_success 'no plugins anywhere' '
    { BALLAST_PLUGIN_PATH=nowhere "$BALLAST" plugins >out 2>err; test $? -eq 3 -o -s out; }'

test_expect_success 'a limit on file sizes: an error, no signal' '
    (ulimit -f 4; test_expect_code 1 "$BALLAST" train --fresh tiny.cfg run.name=limit 2>err) && grep "too large" err'

test_expect_success 'divergence: exit 7, cause named, the row is kept' '
    test_expect_code 7 "$BALLAST" train tiny.cfg run.name=boom optimizer.plugin=sgd optimizer.lr=1e30 "guards=()" 2>err &&
    grep "diverged at step" err && tail -n 1 runs/boom/metrics.jsonl | grep -E "nan|inf"'

test_expect_success 'weights that are not finite are no checkpoint, and no finished run' '
    test_expect_code 7 "$BALLAST" train tiny.cfg run.name=last run.steps=1 optimizer.plugin=sgd optimizer.lr=1e39 "guards=()" 2>err &&
    grep "diverged at step 1: the update" err && ! ls runs/last/checkpoints/1 2>/dev/null'

test_expect_success 'closed standard output' '
    train closed "sinks=({plugin=\"jsonl\"},{plugin=\"console\"})" &&
    "$BALLAST" train --fresh tiny.cfg run.name=closed2 "sinks=({plugin=\"jsonl\"},{plugin=\"console\"})" 2>err >&-;
    grep -c step runs/closed2/metrics.jsonl >n && echo 6 >six && test_cmp six n'

test_expect_success 'every standard descriptor closed: what is printed lands in no file' '
    "$BALLAST" train --fresh tiny.cfg run.name=closed3 "sinks=({plugin=\"jsonl\"},{plugin=\"console\"})" <&- >&- 2>&- &&
    wc -l <runs/closed3/metrics.jsonl >n && test "$(cat n)" -eq 6 && ! grep -v "^{.*}$" runs/closed3/metrics.jsonl'

test_expect_success 'help that cannot be printed' '
    test_expect_code 1 "$BALLAST" --help >/dev/full'

test_done
