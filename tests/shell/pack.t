#!/bin/sh
# data pack as a user meets it: bytes, SentencePiece against spm_encode, what is left after a kill
# or a full disk, outputs that are there.
test_description='data pack'
. "${top_srcdir:-.}/tests/shell/lib.sh"

FIXTURES=$SOURCE/tests/fixtures/tokenizer
MODEL=$FIXTURES/genesis.model
TEXT=$FIXTURES/genesis.txt

pack() { "$BALLAST" data pack "$@"; }
for i in 1 2 3 4 5 6 7; do cat "$TEXT"; done >lines.txt

# ids FILE: one a line, after the header, which is checked.
ids() {
    words=$(od -An -v -tu4 -w20 -N20 "$1" | tr -s ' ' | sed 's/^ //') &&
        count=$(($(wc -c <"$1") / 2 - 512)) &&
        case $words in
        "20240520 1 $count $2 1414745154") ;;
        *) echo "header of $1: $words, $count ids in the file" >&2 && return 1 ;;
        esac &&
        tail -c +1025 "$1" | od -An -v -tu2 -w2 | tr -d ' '
}

# refused CODE WORD ARGUMENT...: one line on stderr, nothing on stdout, no output.
refused() {
    code=$1 word=$2
    shift 2
    test_expect_code "$code" "$BALLAST" data pack "$@" >out 2>err && test ! -s out &&
        test "$(wc -l <err)" -eq 1 && grep -E -q -- "$word" err && return
    cat out err
    return 1
}
none() { test -z "$(find . -name "$1-*")"; }

if [ -e "$BALLAST_PLUGIN_PATH/tokenizer_sentencepiece.so" ]; then
    test_set_prereq SENTENCEPIECE
    if command -v spm_encode >/dev/null; then
        test_set_prereq SPM_ENCODE
    else
        say "spm_encode is not installed (package sentencepiece): no comparison with it"
    fi
else
    say "built without SentencePiece"
fi
[ "$(id -u)" -eq 0 ] || test_set_prereq NOT_ROOT
# A small disk of its own: the mount is gone with the process.
mkdir -p small
if unshare -m mount -t tmpfs -o size=64k none small 2>/dev/null; then
    test_set_prereq TMPFS
else
    say "no tmpfs can be mounted here: no test of a full disk"
fi

test_expect_success 'bytes: the text, cut at a line end; one thread, two threads, the same' '
    pack --validation 0.3 --threads 1 one "$TEXT" >out 2>err && test ! -s err &&
    grep "wrote one-train.bin (.* tokens) and one-val.bin" out &&
    grep "^10597 tokens, 1.00 bytes a token, 1 document, .* MB/s$" out &&
    ids one-train.bin 256 >train && ids one-val.bin 256 >val && cat train val >both &&
    od -An -v -tu1 -w1 "$TEXT" | tr -d " " >wanted && cmp both wanted &&
    test "$(tail -n 1 train)" = 10 &&
    pack --validation=0.3 --threads 2 two "$TEXT" >out &&
    cmp one-train.bin two-train.bin && cmp one-val.bin two-val.bin'

test_expect_success 'outputs that are there: refused, replaced with --force, none left over' '
    cp one-train.bin before && refused 4 "one-train.bin: is there already; --force" one "$TEXT" &&
    cmp one-train.bin before && pack --force --validation 0 one "$TEXT" >out &&
    test -e one-train.bin && test ! -e one-val.bin && ! grep one-val out &&
    pack one --force --shard-tokens 4000 "$TEXT" >out &&
    grep "one-train-000000.bin ... one-train-000002.bin (3 files, " out &&
    test "$(echo one-*)" = "one-train-000000.bin one-train-000001.bin one-train-000002.bin one-val-000000.bin" &&
    ids one-train-000001.bin 256 >middle && test "$(wc -l <middle)" -eq 4000'

test_expect_success 'several inputs are joined by a line end' '
    printf "a\nb" >1 && printf c >2 && pack --validation 0 join 1 2 >out && grep "2 documents" out &&
    test "$(ids join-train.bin 256 | tr "\n" " ")" = "97 10 98 10 99 "'

test_expect_success SPM_ENCODE 'lines: the ids of spm_encode, any number of threads' '
    spm_encode --model="$MODEL" --output_format=id --extra_options=eos <lines.txt | tr " " "\n" >wanted &&
    for t in 1 2 5; do
        pack --model "$MODEL" --documents lines --validation 0 --threads $t "l$t" lines.txt >out &&
        ids "l$t-train.bin" 600 >got && cmp got wanted || return 1; done &&
    grep "$(grep -c . lines.txt) documents" out'

test_expect_success SPM_ENCODE 'JSON Lines: the same texts, the same ids' '
    sed "s/[\\\\\"]/\\\\&/g; s/.*/{\"n\": 1, \"body\": \"&\"}/" lines.txt >lines.jsonl &&
    pack --model="$MODEL" --documents json:body --validation 0 j lines.jsonl >out &&
    cmp j-train.bin l1-train.bin'

test_expect_success SPM_ENCODE 'a file of one line: its ids, then the end of the document' '
    printf "%s" "And God said, Let there be light" >light &&
    { spm_encode --model="$MODEL" --output_format=id <light | tr " " "\n" && echo 2; } >wanted &&
    pack --tokenizer sentencepiece --option model="$MODEL" --validation 0 light light >out &&
    ids light-train.bin 600 >got && cmp got wanted &&
    pack --tokenizer "$BALLAST_PLUGIN_PATH/tokenizer_sentencepiece.so" --model "$MODEL" --validation 0 path light >out &&
    cmp path-train.bin light-train.bin'

test_expect_success SENTENCEPIECE 'what was packed is trained on' '
    write_tiny && pack --model "$MODEL" --validation 0.2 sub "$TEXT" >out &&
    "$BALLAST" train --fresh tiny.cfg run.name=sub model.vocab=600 \
        "data={source=\"tokens\";train=[\"sub-train.bin\"];validation=[\"sub-val.bin\"]}" >out 2>&1 &&
    grep -q loss/val runs/sub/metrics.jsonl || { cat out; return 1; }'

test_expect_success SENTENCEPIECE 'text that is not UTF-8: file, line, byte' '
    { cat "$TEXT" && printf "good\nbad \377\n"; } >latin.txt &&
    refused 4 "latin.txt:82: in the text from byte 10602 on: byte 4 \(0xff\) is not UTF-8" --model "$MODEL" latin latin.txt &&
    none latin && pack latin latin.txt >out'

test_expect_success SENTENCEPIECE 'models that are none' '
    : >empty.model && head -c 3000 "$MODEL" >cut.model && mkdir -p folder &&
    refused 2 "empty.model: the file is empty" --model empty.model bad "$TEXT" &&
    refused 2 "cut.model: no SentencePiece model" --model cut.model bad "$TEXT" &&
    refused 2 "absent.model: No such file" --model absent.model bad "$TEXT" &&
    refused 2 "folder: not a regular file" --model folder bad "$TEXT" &&
    refused 2 "genesis.txt: no SentencePiece model" --model "$TEXT" bad "$TEXT" &&
    refused 2 "model" --tokenizer sentencepiece bad "$TEXT" &&
    cp "$MODEL" "a \"b\" \$c.model" && pack --model "a \"b\" \$c.model" quoted "$TEXT" >out && none bad'

test_expect_success SENTENCEPIECE 'killed: only temporary files, and the next run replaces them' '
    for i in 1 2 3 4; do cat lines.txt "$TEXT" "$TEXT" "$TEXT"; done >a &&
    for i in 1 2 3 4 5 6 7 8 9; do cat a a; done >b && for i in 1 2 3 4; do cat b; done >many.txt &&
    { "$BALLAST" data pack --shard-tokens 100000 --model "$MODEL" kill many.txt >out 2>&1 & } && pid=$! &&
    await test -s kill-train-000001.bin.tmp &&
    refused 4 "another process is making this" kill "$TEXT" &&
    kill -9 $pid && { wait $pid; test -e kill-train-000001.bin.tmp; } && test -z "$(find . -name "kill-*.bin")" &&
    pack kill "$TEXT" >out && test "$(echo kill-*)" = "kill-train.bin kill-val.bin"'

test_expect_success 'a limit on file sizes: one line, nothing left' '
    (ulimit -f 8 && refused 4 "limit-train.bin: not written: File too large" limit "$TEXT") && none limit'

test_expect_success TMPFS 'a full disk: one line, nothing left, the old outputs stay' '
    head -c 9000 "$TEXT" >short.txt && cat "$TEXT" "$TEXT" "$TEXT" "$TEXT" >longer.txt &&
    unshare -m sh -ec "mount -t tmpfs -o size=64k none small
        \"\$BALLAST\" data pack small/p short.txt
        cp small/p-train.bin kept
        set +e
        \"\$BALLAST\" data pack --force small/p longer.txt 2>err
        echo \$? >code
        set -e
        cmp small/p-train.bin kept
        ls small >left" &&
    test "$(cat code)" = 4 && test "$(wc -l <err)" -eq 1 && test "$(echo $(cat left))" = "p-train.bin p-val.bin" &&
    grep "small/p-train.bin: not written: No space left" err'

test_expect_success 'inputs and outputs that cannot be' '
    : >empty && mkfifo fifo && mkdir -p folder &&
    refused 4 "empty: the file is empty" no empty && refused 4 "fifo: not a regular file" no fifo &&
    refused 4 "folder: is a directory" no folder && refused 4 "absent: No such file" no absent &&
    refused 4 "nowhere/: .*No such file" nowhere/no "$TEXT" &&
    cp "$TEXT" self-train.bin && refused 4 "is an input and an output" --force self self-train.bin &&
    none no'

test_expect_success NOT_ROOT 'an unreadable input' '
    cp "$TEXT" secret && chmod 0 secret && refused 4 "secret: Permission denied" no secret'

test_expect_success 'words that cannot be' '
    refused 2 "OUT_PREFIX" only && refused 2 "unknown option --tokeniser" --tokeniser bytes x "$TEXT" &&
    refused 2 "--threads 0" --threads 0 x "$TEXT" && refused 2 "--threads x" --threads x x "$TEXT" &&
    refused 2 "--validation 0.6" --validation 0.6 x "$TEXT" && refused 2 "--validation needs" x "$TEXT" --validation &&
    refused 2 "--shard-tokens 3000000000" --shard-tokens 3000000000 x "$TEXT" &&
    refused 2 "--documents words" --documents words x "$TEXT" &&
    refused 2 "modle" --option modle=1 x "$TEXT" && refused 2 "override" --option model x "$TEXT" &&
    refused 3 "nosuch" --tokenizer nosuch x "$TEXT" &&
    refused 3 "schedule" --tokenizer "$BALLAST_PLUGIN_PATH/schedule_cosine.so" x "$TEXT" && none x'

test_expect_success 'JSON Lines that are none: file and line' '
    printf "{\"text\": \"a\"}\n{\"text\": \n" >bad.jsonl && refused 4 "bad.jsonl:2: byte " --documents json x bad.jsonl &&
    printf "{\"text\": 1}\n" >bad.jsonl && refused 4 "bad.jsonl:1: no string" --documents json x bad.jsonl && none x'

test_done
