#!/bin/sh
# Token shards as a user meets them: info, verify, the formats in a real run, files that change.
test_description='data'
. "${top_srcdir:-.}/tests/shell/lib.sh"

write_tiny

# ids WIDTH COUNT VOCAB [LAST]: little-endian ids (i * 7919 + i / 13) % VOCAB, then LAST if given.
ids() {
    awk -v w="$1" -v n="$2" -v v="$3" -v last="${4:--1}" 'BEGIN {
        for (i = 0; i < n; i++) put((i * 7919 + int(i / 13)) % v)
        if (last >= 0) put(last) }
        function put(x, k) { for (k = 0; k < w; k++) { printf "\\%03o", x % 256; x = int(x / 256) } }' >octal
    printf '%b' "$(sed 's/\\/\\0/g' octal)"
}
# word VALUE...: little-endian 32-bit words.
word() {
    for value; do
        printf '%b' "$(printf '\\0%03o\\0%03o\\0%03o\\0%03o' $((value & 255)) $((value >> 8 & 255)) \
            $((value >> 16 & 255)) $((value >> 24 & 255)))"
    done
}
zeros() { head -c "$1" /dev/zero; }
# llmc WIDTH COUNT VOCAB: a shard of llm.c with our vocabulary words; VOCAB 0: without.
llmc() {
    if [ "$1" -eq 2 ]; then word 20240520 1 "$2"; else word 20240801 7 "$2"; fi
    if [ "$3" -gt 0 ]; then word "$3" 1414745154; else word 0 0; fi
    zeros 1004
    ids "$1" "$2" "${3:-61}"
}
npy() { # WIDTH COUNT VOCAB
    printf '\223NUMPY\001\000\166\000%-117s\n' \
        "{'descr': '<u$1', 'fortran_order': False, 'shape': ($2,), }"
    ids "$1" "$2" "$3"
}

llmc 2 1000 61 >a.bin
npy 2 500 61 >b.npy
ids 2 750 61 >c.bin
ids 4 300 61 >d.npy
llmc 4 200 61 >e.bin

test_expect_success 'info: formats, counts, ids, sequences, totals' '
    "$BALLAST" data info --context 24 a.bin b.npy c.bin d.npy e.bin >out &&
    sed "s/  */ /g" out >flat &&
    grep -x "a.bin llmc 16 1000 3024 61 0 60 41" flat && grep -x "b.npy npy 16 500 1128 - 0 60 20" flat &&
    grep -x "c.bin raw16 16 750 1500 - 0 60 31" flat && grep -x "d.npy raw32 32 300 1200 - 0 60 12" flat &&
    grep -x "e.bin llmc 32 200 1824 61 0 60 8" flat &&
    grep "total: 5 files, 2750 tokens (2.75k), 8676 bytes .*, ids 0 ... 60, 112 sequences of 24" out &&
    grep "note: ids of 16 and of 32 bits" out &&
    test "$(head -n 6 out | awk "{ print length(\$0) }" | sort -u | wc -l)" -eq 1'

test_expect_success 'info: quoted globs are sorted by bytes; --quick reads no ids' '
    mkdir -p g && for n in B a _ 10 2; do cp c.bin "g/$n.bin"; done && cp c.bin "g/[x].bin" &&
    "$BALLAST" data info --quick "g/*.bin" >out && ! grep largest out && ! grep ids out &&
    sed -n "s/^g.\([^ ]*\).bin .*/\1/p" out | tr "\n" " " >order && test "$(cat order)" = "10 2 B [x] _ a " &&
    "$BALLAST" data info "g/[x].bin" >out && grep -F "g/[x].bin" out'

test_expect_success 'info: one bad file of three' '
    : >zero.bin && test_expect_code 4 "$BALLAST" data info a.bin zero.bin c.bin >out 2>err &&
    grep "zero.bin .*0 bytes" out && grep "^c.bin" out && grep "total: 2 good files" out &&
    test "$(grep -c . err)" -eq 1 && grep "1 of 3 files are bad, the first is zero.bin: 0 bytes" err'

test_expect_success 'verify: good files, and files that do not say their vocabulary' '
    "$BALLAST" data verify a.bin e.bin >out && grep -c " ok$" out >n && test "$(cat n)" -eq 2 && ! grep "how large" out &&
    "$BALLAST" data verify --vocab 61 c.bin d.npy >out && ! grep "how large" out &&
    "$BALLAST" data verify c.bin >out && grep "1 file does not say how large" out'

test_expect_success 'verify: every bad file with place and id, and one summary' '
    ids 2 750 61 61 >f.bin && cp a.bin cut.bin && truncate -s 3000 cut.bin &&
    test_expect_code 4 "$BALLAST" data verify --vocab=61 a.bin f.bin cut.bin c.bin d.npy >out 2>err &&
    grep "^f.bin .*byte 1500: token id 61, the vocabulary has 61 (1 such id)" out &&
    grep "^cut.bin .*byte 8: the header says 1000 tokens" out && test "$(grep -c " ok$" out)" -eq 3 &&
    test "$(grep -c . err)" -eq 1 && grep "2 of 5 files are bad" err &&
    test_expect_code 4 "$BALLAST" data verify --vocab 60 c.bin >out 2>err && grep "id 60" err'

test_expect_success 'info of a sparse file beyond 4 GiB' '
    { word 20240520 1 $((5 * 1024 * 1024 * 1024 / 2 - 512)) 256 1414745154; zeros 1004; } >huge.bin &&
    truncate -s 5G huge.bin && "$BALLAST" data info --quick --context 1024 huge.bin >out && rm huge.bin &&
    grep "2684354048  *5368709120  *256  *2621439$" out'

test_expect_success 'usage' '
    for c in "" info verify; do "$BALLAST" data $c --help >out && grep usage out || return 1; done &&
    test_expect_code 2 "$BALLAST" data info 2>err && grep "data info needs a FILE" err &&
    test_expect_code 2 "$BALLAST" data info --vocab 3 a.bin 2>err && grep "unknown option --vocab" err &&
    test_expect_code 2 "$BALLAST" data verify --vocab 0 a.bin 2>err && grep "vocab 0" err &&
    test_expect_code 2 "$BALLAST" data verify --format bin a.bin 2>err && grep raw16 err &&
    test_expect_code 2 "$BALLAST" data check a.bin 2>err && grep "info, pack and verify" err &&
    test_expect_code 4 "$BALLAST" data info "nowhere-*" 2>err && grep "matches no file" err &&
    test_expect_code 2 "$BALLAST" data 2>err'

tokens() { # NAME FILES [KEY=VALUE...]: a run on shards
    name=$1 files=$2
    shift 2
    train "$name" "data={source=\"tokens\";train=[$files];validation=[$files]}" model.vocab=61 "$@"
}

test_expect_success 'the same ids in every format train to the same bits' '
    llmc 2 750 61 >t1.bin && npy 2 750 61 >t2.npy && ids 4 750 61 >t4.npy && npy 4 750 61 >t5.npy && llmc 4 750 61 >t6.bin &&
    tokens t1 "\"t1.bin\"" && for n in t2.npy c.bin t4.npy t5.npy t6.bin; do
        tokens other "\"$n\"" && same t1 other || { echo "$n"; return 1; }; done'

test_expect_success 'a mixed split; the vocabulary of a header is taken' '
    tokens mixed "\"a.bin\",\"b.npy\",\"c.bin\"" model.vocab=0 && grep "vocab = 61" runs/mixed/config.cfg'

tokens_code() {
    files=$1
    shift
    "$BALLAST" train tiny.cfg run.name=refused "data={source=\"tokens\";train=[$files]}" model.vocab=61 "$@" 2>err
}

test_expect_success 'refused before a run directory is made: widths, contradicting names' '
    rm -rf runs && test_expect_code 4 tokens_code "\"a.bin\",\"d.npy\"" &&
    grep "d.npy: ids of 32 bits, those of a.bin have 16" err &&
    test_expect_code 4 tokens_code "\"c.bin\"" data.format=raw32 && grep "c.bin: not \"raw32\"" err &&
    test_expect_code 4 tokens_code "\"d.npy\"" data.format=npy && grep "d.npy: byte 0" err && test ! -e runs'

# changes NAME PATTERN COMMAND: a run whose shard live.bin is treated by COMMAND after some steps.
changes() {
    cp t1.bin live.bin
    timeout 120 "$BALLAST" train --fresh tiny.cfg run.name="$1" run.steps=1000000 "monitors=()" \
        "data={source=\"tokens\";train=[\"live.bin\"]}" model.vocab=61 >/dev/null 2>err &
    pid=$!
    await test -s "runs/$1/metrics.jsonl" || { cat err; return 1; }
    eval "$3"
    wait "$pid"
    test $? -eq 4 || { cat err; return 1; }
    test "$(grep -c "error:" err)" -eq 1 && grep "live.bin: changed while in use: $2" err
}

test_expect_success 'a shard that changes under a run stops it with exit 4: cut, grown, rewritten, replaced, removed' '
    changes cut "2000 bytes now, 2524 at the start" "truncate -s 2000 live.bin" &&
    changes grown "2526 bytes now, 2524 at the start" "printf xx >>live.bin" &&
    changes rewritten "written or replaced" "cat t1.bin 1<>live.bin >&1" &&
    changes replaced "removed or replaced" "cp t1.bin new.bin; mv new.bin live.bin" &&
    changes removed "removed or replaced" "rm live.bin"'

test_done
