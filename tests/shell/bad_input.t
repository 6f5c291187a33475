#!/bin/sh
# Bad input: one line that says where and what to do, the right exit code, nothing half-written.
# The table: a line that begins with expect or damaged is a case. Values and formats of alarms, of
# data and of packing are in alarms.t, data.t and pack.t, signals and full disks in robust.t.
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
expect 'duplicate group with its line' 2 'dup.cfg:2.*the key "run"' train dup.cfg
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

# ---- text of a configuration
config twice <<'C'
run = { steps = 3;
  name = "steps = 4"; # steps = 5
  steps = 6; };
C
expect 'duplicate key: line and key' 2 'twice.cfg:3: .*the key "steps"' train twice.cfg
printf 'run = {};\nx\0y\n' >zero.cfg
expect 'a zero byte' 2 'zero.cfg:2: a zero byte' train zero.cfg
cp "$BALLAST_PLUGIN_PATH/sink_jsonl.so" binary.cfg
expect 'a binary file as config' 2 'binary.cfg:1: .*no text file' train binary.cfg
mkfifo fifo
expect 'a FIFO as config' 2 'fifo.*not a regular file' train fifo
printf '@include "absent.cfg"\n' >include1.cfg
expect 'an include that is not there' 2 'include1.cfg:1: .*absent.cfg' train include1.cfg
printf 'run = {};\n@include "include3.cfg"\n' >include2.cfg
printf '@include "include2.cfg"\n' >include3.cfg
expect 'includes in a circle' 2 'include3.cfg:1: .*includes itself' train include2.cfg
mkdir folder
printf '@include "folder"\n' >include4.cfg
expect 'an include that is a folder' 2 'include4.cfg:1: .*folder, not a regular file' train include4.cfg
printf 'run = {};\nmodel = @include "x"\n' >include5.cfg
expect 'an include inside a line' 2 "include5.cfg:2: .*'@'" train include5.cfg
{ printf 'x = '; head -c 70 /dev/zero | tr '\0' '('; } >deep.cfg
expect 'nesting without end' 2 'deep.cfg:1: .*nested deeper than 64' train deep.cfg
{ printf 'data = { train = [ "a"'; yes ',"a"' | head -n 200002; printf ' ]; };\n'; } >huge.cfg
expect 'a list of 200003' 2 'huge.cfg:[0-9]+: more than 200000 values' train huge.cfg
head -c 5000000 /dev/zero | tr '\0' ' ' >large.cfg
expect 'a file of 5 MB' 2 'large.cfg.*larger than' train large.cfg
printf 'run = { name = "a;\n};\n' >string.cfg
expect 'a string without end' 2 'string.cfg:1: .*no end on its line' train string.cfg
printf 'run = { name = "a\\x00b"; };\n' >escape.cfg
expect 'a string with a zero' 2 'escape.cfg:1: .*x00' train escape.cfg
printf 'run = {};\n/* x\n\n' >comment.cfg
expect 'a comment without end' 2 'comment.cfg:2: .*no end' train comment.cfg
printf 'run = {\n  steps = 3; ];\n' >bracket.cfg
expect 'brackets that do not match' 2 "bracket.cfg:2: .*opened at bracket.cfg:1" train bracket.cfg
printf 'run = { steps = 3; };\n};\n' >close.cfg
expect 'a bracket too many' 2 "close.cfg:2: '}' closes nothing" train close.cfg
printf 'run = { name = demo; };\n' >quotes.cfg
expect 'a string without quotes' 2 'quotes.cfg:1: .*needs quotes: "demo"' train quotes.cfg
printf 'run = { name = "a"; steps = 99999999999999999999; };\n' >wide.cfg
expect 'an integer beyond 64 bits' 2 'wide.cfg:1: .*64 bits' train wide.cfg
printf 'run = { steps = 0x; };\n' >hex.cfg
expect 'hexadecimal without digits' 2 'hex.cfg:1: .*"0x" is no number' train hex.cfg
printf 'run = { steps = 12; seed = 0xffffffff; };\n' >hex32.cfg
expect 'hexadecimal beyond 32 bits without L' 2 'hex32.cfg:1: .*0xffffffffL' train hex32.cfg
printf 'run = [ 3 ];\n' >group.cfg
expect 'a list for a group' 2 'group.cfg:1: run: expects a group' train group.cfg

# ---- overrides
expect 'override beyond 64 bits: the key is named' 2 'command line: run.steps=9+: .*64 bits' train tiny.cfg run.steps=99999999999999999999
expect 'a float that overflows' 2 'lr is inf' train tiny.cfg optimizer.lr=1e400
expect 'nan for a float' 2 'lr expects a float' train tiny.cfg optimizer.lr=nan
expect 'a negative seed' 2 'seed is -1' train tiny.cfg run.seed=-1
expect 'an empty value' 2 'steps expects an integer' train tiny.cfg run.steps=
expect 'a key below a number' 2 'run.steps is an integer.*"x"' train tiny.cfg run.steps=1 run.steps.x=2
expect 'an index of a group' 2 'run is a group, not a list' train tiny.cfg 'run[0]=3'
expect 'an index far beyond the list' 2 'no \[3\]|empty list' train tiny.cfg 'regularizers[3]={plugin="z_loss"}'
expect 'an override without a key' 2 'no override' train tiny.cfg =3
expect 'two dots' 2 'no key path' train tiny.cfg run..steps=3

# ---- shapes
# (AddressSanitizer ends the program where malloc would answer NULL.)
if ! nm -D "$BALLAST" 2>/dev/null | grep -q __asan_init; then
    expect 'a model larger than memory' 1 'memory.*TB' train tiny.cfg model.layers=1024 model.width=65536
    expect 'a batch larger than memory' 1 'no memory' train tiny.cfg model.context=1048576 batch.sequences=16777216
fi
expect 'more rows at once than there can be' 2 'batch.micro' train tiny.cfg model.context=1048576 batch.sequences=16777216 batch.micro=1048576
expect 'a width out of range' 2 'width is 1048576, outside' train tiny.cfg model.width=1048576
expect 'kv_heads that do not divide heads' 2 'kv_heads = 2 or 4' train tiny.cfg model.kv_heads=3
expect 'rotary position with an odd head' 2 'head_dim' train tiny.cfg model.position=rope model.head_dim=3
expect 'unknown preset, with the nearest' 2 'gpt2-124m' train tiny.cfg model.preset=gpt2-125m
expect 'a negative softcap' 2 'logit_softcap is -1' train tiny.cfg model.logit_softcap=-1.0
expect 'tokens that make too many sequences' 2 'at most 16777216 sequences' train tiny.cfg batch.sequences=0 batch.tokens=1099511627689L model.context=1 cluster.emulate=3
expect 'tokens that the context does not divide' 2 'tokens 100 is no multiple.*96 or 120' train tiny.cfg batch.sequences=0 batch.tokens=100
expect 'a prime number of sequences over ranks' 2 'sequences = 16777212 or 16777215' train tiny.cfg batch.sequences=16777213 cluster.emulate=3

# ---- plugins, schedules
printf '\177ELF' >stub.so
expect 'plugin of four bytes' 3 'stub.so: refused: 4 bytes' train tiny.cfg 'regularizers=({plugin="./stub.so"})'
cp -L "$BALLAST_PLUGIN_PATH/regularizer_z_loss.so" machine.so
printf '\362' | dd of=machine.so bs=1 seek=18 conv=notrunc 2>/dev/null
expect 'plugin of another machine' 3 'machine.so: refused: built for ELF machine 242' train tiny.cfg 'regularizers=({plugin="./machine.so"})'
expect 'plugin file that is not there' 3 'absent.so: No such file' train tiny.cfg 'regularizers=({plugin="./absent.so"})'
expect 'a folder as plugin' 3 'folder: refused: not a regular file' train tiny.cfg 'regularizers=({plugin="./folder"})'
expect 'a FIFO as plugin' 3 'fifo: refused: not a regular file' train tiny.cfg 'regularizers=({plugin="./fifo"})'
expect 'a plugin of another kind, by name' 3 "'cosine' is a schedule" train tiny.cfg optimizer.plugin=cosine
expect 'wsd: unknown option' 2 'did you mean "decay_share"' train tiny.cfg 'schedule={plugin="wsd";decay=0.5}'
expect 'wsd: share out of range' 2 'decay_share is 2' train tiny.cfg 'schedule={plugin="wsd";decay_share=2.0}'
expect 'wsd: exponential decay to zero' 2 'final' train tiny.cfg 'schedule={plugin="wsd";shape="exponential"}'
expect 'piecewise: points missing' 2 '"updates" is required' train tiny.cfg 'schedule={plugin="piecewise"}'
expect 'piecewise: not one factor for each' 2 'factors' train tiny.cfg 'schedule={plugin="piecewise";updates=[0,3];factors=[1.0]}'
expect 'piecewise: updates that descend' 2 'updates' train tiny.cfg 'schedule={plugin="piecewise";updates=[3,0];factors=[1.0,0.5]}'

# ---- data that is no data (formats and contents: data.t, pack.t)
expect 'a folder as data' 4 'folder: is a directory' train tiny.cfg 'data={source="tokens";train=["folder"]}' model.vocab=61
expect 'a FIFO as data' 4 'fifo: not a file' train tiny.cfg 'data={source="tokens";train=["fifo"]}' model.vocab=61
expect 'unknown format of data' 2 'raw16' train tiny.cfg 'data={source="tokens";train=["zero.bin"];format="bin"}' model.vocab=61

# ---- commands
expect 'train: unknown option' 2 'usage: ballast train' train --fresch tiny.cfg
expect 'check: option of another command' 2 'unknown option --fresh' check tiny.cfg --fresh
expect 'report without a run' 2 'usage: ballast report' report
expect 'report: unknown option' 2 'no such option' report --nope
expect 'report of a folder that is no run' 2 'folder: no metrics.jsonl.*jsonl' report folder
expect 'weights without a file' 2 'one or two checkpoints' weights
expect 'weights of three' 2 'one or two checkpoints' weights a b c
expect 'weights of a folder that is no checkpoint' 5 'folder: no model.safetensors.*checkpoints/STEP' weights folder
expect 'data: no such command' 2 'info, pack and verify' data packs
expect 'plugin: no such command' 2 'new or test' plugin tset
expect 'plugin new without a kind' 2 'KIND and NAME' plugin new
expect 'plugin new: no such kind' 2 'no kind "penalty"' plugin new penalty x
expect 'plugin new: a name that is none' 2 'plugin name "Bad"' plugin new regularizer Bad
expect 'plugin new over a folder' 2 'folder is there already' plugin new regularizer folder
expect 'plugin test of nothing' 2 'absent.so: No such file' plugin test absent.so
expect 'plugin test: unknown option' 2 'unknown key "x"' plugin test "$BALLAST_PLUGIN_PATH/regularizer_z_loss.so" x=1
expect 'help on nothing' 2 '"nosuch"' help nosuch

# ---- safetensors files that lie: length of the header, header, data
lies() { # FILE LENGTH-BYTE-7 HEADER DATA
    n=$(printf %s "$3" | wc -c)
    { printf '%b' "\\0$(printf %o "$n")\\0\\0\\0\\0\\0\\0\\0$2"; printf %s "$3$4"; } >"$1.safetensors"
}
entry() { printf '"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s]}' "$@"; }
lies length '020' "{$(entry a F32 1 0,4)}" 1234
expect 'safetensors: a header of 2^60 bytes' 5 'length.safetensors: byte 0: a header of 11529' weights length.safetensors
lies json '000' '{"a":{]}' ''
expect 'safetensors: no JSON' 5 'json.safetensors: header at byte' weights json.safetensors
lies beyond '000' "{$(entry a F32 2 0,8)}" 1234
expect 'safetensors: data beyond the file' 5 'tensor a: .*inside the file' weights beyond.safetensors
lies overlap '000' "{$(entry a F32 1 0,4),$(entry b F32 1 0,4)}" 1234
expect 'safetensors: two tensors in one place' 5 'tensor b: overlaps' weights overlap.safetensors
lies extra '000' "{$(entry a F32 1 0,4)}" 123456
expect 'safetensors: bytes that belong to nothing' 5 '2 bytes after the last tensor' weights extra.safetensors
lies shape '000' "{$(entry a F32 4294967296,4294967296 0,0)}" ''
expect 'safetensors: a shape that overflows' 5 'tensor a: its shape' weights shape.safetensors
lies dtype '000' "{$(entry a I64 1 0,8)}" 12345678
expect 'safetensors: a dtype that is not read' 5 'dtype I64 is not read' weights dtype.safetensors

# ---- checkpoints and run directories: a run is made once and damaged in a copy
test_expect_success 'a whole run to damage' 'train whole && mv runs whole.runs'

# damaged NAME PATTERN COMMANDS: exit 5 with one line, and the damaged run is left as it was.
damaged() {
    name=$1 pattern=$2 commands=$3
    test_expect_success "damaged: $name" '
        rm -rf runs before && cp -r whole.runs runs && (cd runs/whole/checkpoints/6 && eval "$commands") && cp -r runs before &&
        test_expect_code 5 "$BALLAST" train tiny.cfg run.name=whole run.steps=6 2>err &&
        test "$(grep -c . err)" -eq 1 && grep -E "$pattern" err && diff -r before/whole/checkpoints runs/whole/checkpoints'
}
damaged 'state.json is cut' 'state.json' 'head -c 100 state.json >x && mv x state.json'
damaged 'state.json is empty' 'state.json' ': >state.json'
damaged 'the model is cut' 'model.safetensors' 'head -c 3000 model.safetensors >x && mv x model.safetensors'
damaged 'the model has more bytes' 'model.safetensors' 'printf x >>model.safetensors'
damaged 'a bit of the optimizer' 'optimizer-1-of-1.safetensors' 'printf "\001" | dd of=optimizer-1-of-1.safetensors bs=1 seek=2500 conv=notrunc'
damaged 'the model is gone' 'model.safetensors' 'rm model.safetensors'
damaged 'the optimizer is a folder' 'optimizer-1-of-1.safetensors' 'rm optimizer-1-of-1.safetensors && mkdir optimizer-1-of-1.safetensors'
damaged 'files of the model and the optimizer swapped' 'safetensors' 'mv model.safetensors x && mv optimizer-1-of-1.safetensors model.safetensors && mv x optimizer-1-of-1.safetensors'

test_expect_success 'weights of a run: the folder to name' '
    rm -rf runs && cp -r whole.runs runs && test_expect_code 5 "$BALLAST" weights runs/whole 2>err &&
    grep "runs/whole: a run, not a checkpoint; name one of the folders in runs/whole/checkpoints" err'

test_expect_success 'report of a run without rows' '
    train silent "sinks=()" && test_expect_code 2 "$BALLAST" report runs/silent 2>err && test "$(grep -c . err)" -eq 1 &&
    grep "runs/silent: no metrics.jsonl.*jsonl" err && test ! -e runs/silent/report.html'

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

test_expect_success 'a guard that ends the run: exit 7, the row of that step is kept' '
    test_expect_code 7 "$BALLAST" train tiny.cfg run.name=skips run.steps=500 optimizer.lr=0.0 \
        "guards=({plugin=\"skip_step\";window=4;minimum=2;sigmas=1e-3;patience=2})" 2>err &&
    step=$(sed -n "s/.*guard skip_step: step \([0-9]*\).*/\1/p" err | tail -n 1) && cat err &&
    test -n "$step" && tail -n 1 runs/skips/metrics.jsonl >row && grep "\"step\":$step," row &&
    grep "\"spike/flag\":1" row && grep "\"loss/ce\":" row'

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
