#!/bin/sh
# For authors of plugins: `plugin new` for all kinds, `plugin test` on all plugins of the build and on
# plugins with one deliberate fault each, which must be caught by the check that is meant for it.
test_description='plugin new, plugin test, plugins'
. "${top_srcdir:-.}/tests/shell/lib.sh"

kinds="regularizer precision schedule monitor optimizer guard sink source tokenizer"
flags="-O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -Wl,-z,defs"
command -v pkg-config >/dev/null && test_set_prereq PKG_CONFIG
command -v clang >/dev/null && test_set_prereq CLANG
# A sanitizer has an allocator of its own, which does not tell what is in use.
nm -D "$BALLAST" 2>/dev/null | grep -q __asan_init || test_set_prereq HEAP

# compile SOURCE PLUGIN.so
compile() {
    # shellcheck disable=SC2086
    ${CC:-gcc} -I"$SOURCE/trainer/include" $flags -o "$2" "$1" -lm
}

# caught CHECK FILE.so: exactly exit code 3, and the line of this check says FAILED, not for its time.
caught() {
    "$BALLAST" plugin test "$2" >out 2>err
    if test $? -ne 3 || ! grep "^  FAILED  *$1: " out || grep "still running" out; then
        cat out err
        return 1
    fi
}

# edited FILE SED...: each edit must change something.
edited() {
    file=$1
    shift
    for edit; do
        cp "$file" before.c && sed -i "$edit" "$file" || return 1
        ! cmp -s before.c "$file" || { echo "nothing changed by: $edit"; return 1; }
    done
}

# mutant KIND CHECK SED...: the template of a kind with edits that make it wrong.
mutant() {
    kind=$1 check=$2
    shift 2
    rm -rf wrong && "$BALLAST" plugin new "$kind" wrong >/dev/null && edited wrong/wrong.c "$@" &&
        compile wrong/wrong.c "wrong/${kind}_wrong.so" && caught "$check" "wrong/${kind}_wrong.so"
}

test_expect_success 'help' '
    "$BALLAST" plugin --help >out && grep "plugin new KIND NAME" out && grep "exit code 3\|Exit code 0" out &&
    test_expect_code 2 "$BALLAST" plugin && test_expect_code 2 "$BALLAST" plugin nwe &&
    test_expect_code 2 "$BALLAST" plugin new && test_expect_code 2 "$BALLAST" plugin test'

# ---- plugin new ---------------------------------------------------------------------------------

for kind in $kinds; do
    test_expect_success PKG_CONFIG "$kind: new compiles without a warning, passes, and its own test waits to be filled in" '
        "$BALLAST" plugin new $kind my_$kind >out && grep "make test" out &&
        test "$(ls my_$kind | tr "\n" " ")" = "Makefile README example.cfg my_$kind.c my_${kind}_test.c " &&
        ! grep -r "my_plugin\|my_kind\|MY_VERSION" my_$kind &&
        test_expect_code 2 make -C my_$kind BALLAST_BUILD="$BUILD" CC=gcc CFLAGS="-O2 -Wall -Wextra -Werror" test >made 2>&1 &&
        grep "^[0-9]* ok, 0 failed" made && grep "my_${kind}_test.c: fill in the expected value" made'
    test_expect_success PKG_CONFIG,CLANG "$kind: the same with clang" '
        make -C my_$kind BALLAST_BUILD="$BUILD" clean >made 2>&1 &&
        test_expect_code 2 make -C my_$kind BALLAST_BUILD="$BUILD" CC=clang CFLAGS="-O2 -Wall -Wextra -Werror" test >made 2>&1 &&
        grep "^[0-9]* ok, 0 failed" made && grep "fill in the expected value" made'
    test "$kind" = tokenizer || test_expect_success PKG_CONFIG "$kind: example.cfg runs" '
        (cd my_$kind && "$BALLAST" train example.cfg >out 2>&1 || { cat out; false; })'
done

# The numbers: mean square of (1, 2, 6) = 41 / 3; a quarter down from 1 to 0.2; 1 - 2/8 - 3/8;
# 2 times the usual norm 1 over 8; (sqrt(2 / 2) + sqrt(8 / 2)) / 2; 8 + 4 modulo 5; Z.
while read -r kind value; do
    test_expect_success PKG_CONFIG "$kind: its own test passes with the number filled in, fails with another" '
        sed -i "s|FILL_IN;|$value;|" my_$kind/my_${kind}_test.c &&
        make -C my_$kind BALLAST_BUILD="$BUILD" test >made 2>&1 && grep "my_${kind}_test: ok" made'
done <<'EOF'
regularizer 41.0 / 3
schedule 0.8
precision BL_BF16
optimizer 0.375
guard 0.25
monitor 1.5
sink "7 2.5\\n"
source 2
tokenizer 90
EOF
test_expect_success PKG_CONFIG 'a wrong number is told from the right one' '
    sed -i "s|= 41.0 / 3;|= 13.0;|" my_regularizer/my_regularizer_test.c &&
    test_expect_code 2 make -C my_regularizer BALLAST_BUILD="$BUILD" test >made 2>&1 && grep "expected 13" made'

test_expect_success 'new refuses: kinds, names, folders that exist or cannot be written; nothing half-written' '
    mkdir empty && cd empty &&
    test_expect_code 2 "$BALLAST" plugin new regularizr x 2>err && grep "did you mean regularizer" err &&
    for name in "" 9lives Big a-b a/b ../x "a b" auto aaaaaaaaaabbbbbbbbbbccccccccccdddddddddde; do
        test_expect_code 2 "$BALLAST" plugin new guard "$name" 2>err || return 1; grep "name" err || return 1; done &&
    mkdir there && test_expect_code 2 "$BALLAST" plugin new guard there 2>err && grep "is there already" err &&
    test_expect_code 1 "$BALLAST" plugin new guard x --dir nowhere 2>err && grep nowhere err &&
    test "$(ls -A)" = "$(printf "err\nthere")" && test -z "$(ls -A there)"'
test_expect_success 'new: a full disk leaves nothing' '
    mkdir -p full && (ulimit -f 1 && test_expect_code 1 "$BALLAST" plugin new guard x --dir full 2>err) && test -z "$(ls -A full)"'
test_expect_success 'new --dir' '
    mkdir elsewhere && "$BALLAST" plugin new sink x --dir elsewhere >out && test -f elsewhere/x/x.c &&
    test "$(stat -c %a elsewhere/x)" = "$(stat -c %a elsewhere)"'

# ---- plugin test --------------------------------------------------------------------------------

# checked FILE.so: with the options that have no default.
checked() {
    case $1 in
    *schedule_piecewise.so) set -- "$1" "updates=[0, 50]" "factors=[1.0, 0.5]" ;;
    *tokenizer_sentencepiece.so)
        set -- "$1" model="$SOURCE/tests/fixtures/tokenizer/genesis.model" ;;
    esac
    "$BALLAST" plugin test "$@"
}
test_expect_success 'test passes for every plugin of the build' '
    n=0 && for f in "$BUILD"/plugins/.libs/*_*.so; do
        case $f in */transport_*) continue ;; esac # no plugin: how processes send messages
        checked "$f" >out 2>&1 || { cat out; return 1; }
        grep "^  ok " out >lines && test "$(wc -l <lines)" -ge 4 && n=$((n + 1)) || return 1
    done && test $n -ge 20'
test_expect_success 'test: usage' '
    z="$BUILD/plugins/.libs/regularizer_z_loss.so" &&
    test_expect_code 2 "$BALLAST" plugin test nowhere.so 2>err && grep nowhere.so err &&
    test_expect_code 2 "$BALLAST" plugin test "$z" coeficient=1 2>err && grep "coefficient" err &&
    test_expect_code 2 "$BALLAST" plugin test "$z" coefficient=-1.0 2>err && grep "range\|\[0,inf)" err &&
    test_expect_code 2 "$BALLAST" plugin test "$z" --nope 2>err && test_expect_code 2 "$BALLAST" plugin test "$z" "$z" 2>err &&
    test_expect_code 2 "$BALLAST" plugin test --seconds 0 "$z" 2>err &&
    "$BALLAST" plugin test "$z" coefficient=0.0 >out'
test_expect_success 'test: a file that is no plugin is refused, the rest is not run' '
    echo "no ELF" >regularizer_text.so && test_expect_code 3 "$BALLAST" plugin test regularizer_text.so >out 2>err &&
    grep "FAILED  *file: " out && grep "not run" out && grep "1 of 1" err'
test_expect_success 'test: it leaves no files' '
    mkdir tmp && TMPDIR=$PWD/tmp "$BALLAST" plugin test "$BUILD/plugins/.libs/sink_jsonl.so" >out && test -z "$(ls -A tmp)"'

test_expect_success 'an option without a default has to be given' '
    "$BALLAST" plugin new schedule wanting >out &&
    edited wanting/wanting.c "s|BL_OPTION_FLOAT, 0, \"0.1\"|BL_OPTION_FLOAT, BL_OPTION_REQUIRED, NULL|" &&
    compile wanting/wanting.c wanting/schedule_wanting.so &&
    test_expect_code 2 "$BALLAST" plugin test wanting/schedule_wanting.so >out 2>err && grep "final=VALUE" err &&
    "$BALLAST" plugin test wanting/schedule_wanting.so final=0.5 >out'

# Faults: kind | check that must catch it | edits
while IFS='|' read -r kind check what edits; do
    prereq=
    case $what in *malloc*) prereq=HEAP ;; esac
    # shellcheck disable=SC2034 # used in the body
    oldifs=$IFS
    test_expect_success $prereq "$kind: $what is caught by \"$check\"" '
        IFS="@"; set -- $edits; IFS=$oldifs; mutant "$kind" "$check" "$@"'
done <<'EOF'
regularizer|derivatives of rows|a wrong derivative by mean|s/= 2.0 \* mean/= 2.1 * mean/
regularizer|derivatives of rows|a missing derivative by m2|/out->d_m2/d
regularizer|rows in pieces|writing outside of the range|s/uint64_t i = begin; i < end/uint64_t i = 0 * begin * end; i < stats->count/
regularizer|masked rows do not leak|reading a masked row|s/= stats->mean\[i\];/= stats->mean[i] + 0 * stats->mean[stats->count - 1];/
regularizer|coefficient finite and pure|a coefficient that is NaN|s/return o->coefficient;/return o->coefficient * (double)step \/ (double)(step - step);/
regularizer|option table|an option without a doc line|s/"weight of the term in loss\/total"/""/
schedule|factor finite and not negative|no end of the curve|s/point->update >= point->updates/point->update > point->updates + 1/
schedule|factor is pure|a count of calls|s/    const struct options \*o = self;/    static double calls;\n    const struct options *o = self;\n    calls += 1e-9;/@s/return 1.0 - /return 1.0 + calls - /
precision|table of known values|an unknown format|s/: BL_FP32;/: 9;/@s/== BF16 ?/== FP32 ?/
guard|verdicts finite for any norm|an infinite scale at norm 0|s/g->usual > 0 \&\& in->norm > limit/g->usual > 0/
guard|verdicts depend on what was seen alone|a history of all instances|s/g->usual + (g->seen - g->usual) \/ 16/g->usual + (g->seen - g->usual) * (0.0625 + 0.01 * (++calls % 3))/@s/^static void settle/static int calls;\n&/
guard|cut state refused|cut state loaded|s/bytes != sizeof usual/bytes > sizeof usual/@s/double usual;$/double usual = 0;/@s/memcpy(&usual, buffer, sizeof usual)/memcpy(\&usual, buffer, bytes)/
guard|state saved and loaded|a load that forgets|s/    g->usual = usual;/    (void)g;/
guard|small state buffer not written|save beyond the buffer|s/buffer != NULL && capacity >= sizeof g->usual/capacity > 0/
guard|instances keep apart|a history in a global|s/g->usual/usual_of_all/@s/^struct guard {/static double usual_of_all;\n&/@s/sizeof usual_of_all/sizeof(double)/
guard|destroy returns all memory|no release|s/g->host->release(g->host, g);/(void)g;/
guard|destroy returns all memory|a malloc without free|s/^static int32_t create/static void *volatile lost;\n&/@s/    g->host = host;/    lost = malloc(100);\n&/@s/#include <math.h>/&\n#include <stdlib.h>/
guard|null setting does nothing|a null setting that acts|s/ || g->options->factor == 0//
optimizer|two steps on a quadratic|going uphill|s/return -(rate/return (rate/
optimizer|same bits in any order|reading another element|s/u->gradient\[i\];/(u->gradient[i] + 1e-3f * u->weight[0]);/
optimizer|learning rate 0 and skipping leave weights|a rate that is never 0|s/= (float)u->learning_rate;/= (float)u->learning_rate + 1e-4f;/
optimizer|learning rate 0 and skipping leave weights|an update scale that is ignored|s/u->weight\[i\] + scale \* c/u->weight[i] + c + 0 * scale/
optimizer|prepare agrees with apply|another sum in prepare|s/sum += d \* d;/sum += 2 * d * d;/
monitor|metrics finite|a division by zero|s/sum \/ (double)in->targets/sum \/ (double)(in->targets - in->targets)/
monitor|metrics finite|no metric at all|s/in->targets > 0/in->targets > 100000/
monitor|changes nothing|writing to weights|s/    double sum = 0;/&\n    struct bl_tensor w = {.size = sizeof w};\n    if (host->tensor(host, 1, BL_WEIGHT, \&w) == 0)\n        ((float *)w.data)[3] += 1;/
sink|a full disk is an error|errors that are ignored|s/fflush(s->file) != 0/fflush(s->file) == 99/
sink|rows with NaN, infinities and many metrics|a refusal of NaN|s/^static int32_t write_row/static int nan_in(const struct bl_record *r)\n{\n    return r->count > 1 \&\& r->values[1] - r->values[1] != 0;\n}\n\n&/@s/    if (fflush(s->file) != 0) {/    if (fflush(s->file) != 0 || nan_in(record)) {/
source|sequences valid and reproducible|targets that are shifted by two|s/(start + t + 1) % ids/(start + t + 2) % ids/
source|sequences valid and reproducible|other tokens each time|s/start = index + s->first;/start = index + s->first + calls++;/@s/^static int32_t read_sequence/static uint64_t calls;\n&/
source|sequences valid and reproducible|ids beyond the vocabulary|s/(start + t) % ids/(start + t) % (ids + 9)/@s/(start + t + 1) % ids/(start + t + 1) % (ids + 9)/
source|ids beyond the vocabulary refused|no check of the vocabulary|s/limit > 0 && limit < ids/limit > 1 \&\& limit < ids/
tokenizer|text comes back|a decode that is off by one|s/(char)ids\[i\];/(char)(ids[i] + 1);/
tokenizer|too little room|ids written into too little room|s/capacity >= bytes/capacity > 0/
tokenizer|empty text and bad ids|an id out of range accepted|s/ids\[i\] < 0 || ids\[i\] >= VOCAB/ids[i] < 0/
EOF

# ---- what ends a process ------------------------------------------------------------------------

# crash STATEMENT: a plugin that does this in rows.
crash() {
    mutant regularizer "derivatives of rows" "s/    (void)self;/&\n    $1;/" \
        "s/#include <ballast/#include <signal.h>\n#include <stdlib.h>\n&/"
}
test_expect_success 'a crash costs one check and is named' '
    crash "raise(SIGSEGV)" &&
    grep -E "derivatives of rows: (crashed with signal 11 .* in check \"derivatives of rows\"|the plugin ended)" out &&
    grep "ok  *coefficient finite" out && grep "FAILED  *rows in pieces: " out && grep "not applicable  project_weight" out'
test_expect_success 'exit() in a plugin is a failure' '
    crash "exit(0)" && grep "ended the process with exit code 0 in check" out'
test_expect_success 'a hang ends with its time' '
    rm -rf wrong && "$BALLAST" plugin new schedule wrong >/dev/null &&
    edited wrong/wrong.c "s/    const struct options \*o = self;/&\n    for (volatile int i = 0; i < 1; i = 0)\n        ;/" &&
    compile wrong/wrong.c wrong/schedule_wrong.so &&
    test_expect_code 3 "$BALLAST" plugin test --seconds 0.3 wrong/schedule_wrong.so >out 2>err &&
    grep "FAILED  *factor is pure: still running after 0.3 seconds" out'

test_expect_success 'a signal that ends it leaves no files' '
    rm -rf tmp && mkdir tmp && { TMPDIR=$PWD/tmp "$BALLAST" plugin test wrong/schedule_wrong.so >out 2>err & } && pid=$! &&
    await grep -q "unknown option" out &&
    test -n "$(ls tmp)" && kill -TERM $pid && { wait $pid; test $? -eq 143; } && test -z "$(ls -A tmp)"'

# ---- ops that no template has -------------------------------------------------------------------

cat >weight.c <<'EOF'
#include <ballast/regularizer.h>
static double coefficient(const void *self, uint64_t step)
{
    return self == NULL && step > 0 ? 1 : 0;
}
static double weight_grad(void *self, const struct bl_host *host, const struct bl_tensor *head,
                          struct bl_tensor *gradient, double coefficient_)
{
    const float *w = head->data;
    (void)self;
    for (uint64_t i = 0; gradient != NULL && i < head->count; i++)
        ((float *)gradient->data)[i] += (float)(2 * coefficient_ * (double)w[i]);
    return host->sum_squares(host, head);
}
static int32_t project(void *self, const struct bl_host *host, struct bl_tensor *t,
                       struct bl_error *err)
{
    (void)self, (void)host, (void)err;
    for (uint64_t i = 0; i < t->count; i += 2)
        ((float *)t->data)[i] = 0;
    return 0;
}
static const struct bl_regularizer_ops ops = {.coefficient = coefficient,
                                              .weight_grad = weight_grad,
                                              .project_grad = project,
                                              .project_weight = project};
BL_PLUGIN(BL_KIND_REGULARIZER, "weight", "1.0", BL_DEVICE_CPU, ops, NULL, 0, NULL);
EOF
test_expect_success 'weight_grad and projections: right ones pass, wrong ones are caught' '
    w=regularizer_weight.so && compile weight.c $w && "$BALLAST" plugin test ./$w >out && grep "ok  *derivative of weight_grad" out &&
    sed "s/2 \* coefficient_ \*/2.1 * coefficient_ */" weight.c >x.c && compile x.c $w && caught "derivative of weight_grad" $w &&
    sed "s/\[i\] += (float)/[i] = (float)/" weight.c >x.c && compile x.c $w && caught "derivative of weight_grad" $w &&
    sed "s/\[i\] = 0;/[i] *= 0.5f;/" weight.c >x.c && compile x.c $w && caught "project_grad is a projection" $w &&
    grep "FAILED  *project_weight is a projection" out'
test_expect_success 'transforms: a wrong derivative is caught' '
    sed "s|/ (2 \* a->m2|/ (3 * a->m2|" "$SOURCE/plugins/regularizer/norm_softmax/norm_softmax.c" >x.c &&
    compile x.c regularizer_norm_softmax.so && caught "derivative of the transform" regularizer_norm_softmax.so'
test_expect_success 'a file of another name is told' '
    compile weight.c regularizer_other.so && caught file regularizer_other.so && grep "looks for regularizer_weight.so" out'

# ---- plugins ------------------------------------------------------------------------------------

test_expect_success 'plugins: by kind, one kind, one plugin, a folder of one'"'"'s own' '
    "$BALLAST" plugins >out && grep "^  regularizer  *z_loss  *1.0 *cpu .*coefficient=1e-4" out &&
    "$BALLAST" plugins schedule >out && grep cosine out && ! grep z_loss out &&
    "$BALLAST" plugins z_loss >out && grep "ops  *rows" out && grep "does nothing at *coefficient=0" out && grep "\[0,inf)" out &&
    BALLAST_PLUGIN_PATH=.:$BALLAST_PLUGIN_PATH "$BALLAST" plugins weight >out && grep "rows\|weight_grad project_grad project_weight" out &&
    test_expect_code 3 "$BALLAST" plugins adamww 2>err && grep "did you mean adamw" err'
test_expect_success 'plugins: a file that cannot be loaded says why, and hides nothing else' '
    BALLAST_PLUGIN_PATH=.:$BALLAST_PLUGIN_PATH "$BALLAST" plugins >out && grep "^  regularizer  *text  *.*refused" out && grep adamw out'
test_expect_success 'plugins: the one that is found first hides the others' '
    mkdir mine && cp "$BUILD/plugins/.libs/optimizer_sgd.so" mine &&
    BALLAST_PLUGIN_PATH=mine:$BALLAST_PLUGIN_PATH "$BALLAST" plugins optimizer >out &&
    grep "sgd .*plugins/.libs/optimizer_sgd.so, hidden by mine/optimizer_sgd.so" out'

test_done
