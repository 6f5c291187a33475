#!/bin/sh
# What a run directory is sure of: its plan, its plugins, who ran when; rows and clocks.
test_description='identity of a run'
. "${top_srcdir:-.}/tests/shell/lib.sh"

write_tiny
resume() {
    name=$1
    shift
    "$BALLAST" train tiny.cfg run.name="$name" "$@" >"$name.out" 2>&1
}
# stopped NAME [KEY=VALUE...]: a run with checkpoints at 3 and 6, as it was after step 3.
stopped() {
    name=$1
    shift
    train "$name" run.checkpoint_every=3 run.keep=9 "$@" && rm -r "runs/$name/checkpoints/6"
}

test_expect_success 'another plan: the key and both values' '
    train plan && test_expect_code 5 resume plan optimizer.lr=1e-3 &&
    grep "runs/plan/config.cfg holds another plan: optimizer.lr is 0.01 there, 0.001 now; .*--fresh" plan.out &&
    test_expect_code 5 resume plan run.steps=7 && grep "run.steps is 6 there, 7 now" plan.out &&
    test_expect_code 5 resume plan optimizer.plugin=sgd && grep "optimizer.plugin is \"adamw\" there, \"sgd\" now" plan.out &&
    test_expect_code 5 resume plan "guards=()" && grep "guards is a list of 1 there, a list of 0 now" plan.out &&
    test_expect_code 5 resume plan "guards[0].max=2.0" && grep "guards\[0\].max is 1.0 there, 2.0 now" plan.out'

test_expect_success 'config.cfg removed by hand: the checkpoint knows its plan, and nothing is written for the wrong one' '
    stopped lost && rm runs/lost/config.cfg &&
    test_expect_code 5 resume lost optimizer.lr=1e-3 && grep "checkpoints/3 belongs to another plan" lost.out &&
    test ! -e runs/lost/config.cfg &&
    test_expect_code 5 resume lost optimizer.plugin=sgd && grep "made with optimizer.adamw, which this config does not load" lost.out &&
    test_expect_code 5 resume lost "guards=()" && grep "made with guard.clip_norm, which" lost.out &&
    test_expect_code 5 resume lost "regularizers=({plugin=\"z_loss\"})" && grep "made without regularizer.z_loss, which this config loads" lost.out &&
    resume lost && grep "resuming from" lost.out && train whole && same whole lost && test -s runs/lost/config.cfg'

test_expect_success 'a damaged config.cfg: file and line' '
    train damaged && printf "run = {\n" >runs/damaged/config.cfg && test_expect_code 5 resume damaged && grep "runs/damaged/config.cfg:[12].*--fresh" damaged.out'

test_expect_success 'name, folder, threads, sinks and what watches the clock are no plan' '
    stopped free && mkdir -p other && mv runs/free other/moved &&
    "$BALLAST" train tiny.cfg run.name=moved run.dir=other run.threads=1 run.keep=1 run.eval_every=2 \
        "sinks=({plugin=\"console\"})" >out 2>err && grep "resuming from" err &&
    "$BALLAST" weights other/moved/checkpoints/6 runs/whole/checkpoints/6 >/dev/null'

test_expect_success 'a plugin file that changed: a warning with both checksums, kept in attempts and header.json' '
    stopped repaired && mkdir -p patched && cp -L "$BALLAST_PLUGIN_PATH/guard_clip_norm.so" patched/ && printf x >>patched/guard_clip_norm.so &&
    resume repaired "plugin_path=[\"patched\"]" && same whole repaired &&
    grep "warning: guard.clip_norm: .*patched/guard_clip_norm.so is not the file that the checkpoint was made with: XXH64 [0-9a-f]\{16\} then, [0-9a-f]\{16\} now" repaired.out &&
    test "$(grep -c "is not the file" repaired.out)" -eq 1 &&
    grep "\"was\": \"[0-9a-f]\{16\}\"" runs/repaired/attempts/2 && grep "\"is\": \"[0-9a-f]\{16\}\"" runs/repaired/header.json &&
    ! grep "\"changed\"" runs/repaired/attempts/1'

test_expect_success 'a plugin that is gone at the resume: exit 3, named' '
    mkdir -p mine && cp -L "$BALLAST_PLUGIN_PATH/regularizer_z_loss.so" mine/ &&
    stopped gone "regularizers=({plugin=\"./mine/regularizer_z_loss.so\"})" && rm mine/regularizer_z_loss.so &&
    test_expect_code 3 resume gone "regularizers=({plugin=\"./mine/regularizer_z_loss.so\"})" && grep "mine/regularizer_z_loss.so" gone.out'

test_expect_success 'attempts: who, when, from which step, with which plugins' '
    stopped who && resume who && for k in started program host pid "optimizer.adamw" "source.synthetic"; do
        grep "\"$k\": " runs/who/attempts/2 || return 1; done &&
    grep "\"resumed_step\": 0" runs/who/attempts/1 && grep "\"resumed_step\": 3" runs/who/attempts/2 &&
    test "$(grep -c "\"resumed_step\"" runs/who/header.json)" -eq 2'

test_expect_success 'header.json shows the newest sixteen attempts; empty and damaged files among them are only numbers' '
    train many && : >runs/many/attempts/2 && head -c 40 runs/many/attempts/1 >runs/many/attempts/3 && mkdir runs/many/attempts/4 &&
    for i in 5 6 7 8 9 10 11 12 13 14 15 16 17; do cp runs/many/attempts/1 runs/many/attempts/$i || return 1; done &&
    resume many && test "$(grep -c "\"attempt\": " runs/many/header.json)" -eq 16 && test -s runs/many/attempts/18'

test_expect_success '--fresh, wherever it stands, removes what the old run and its sinks wrote, and nothing else' '
    sinks="sinks=({plugin=\"jsonl\"},{plugin=\"csv\"})" && train again "$sinks" && : >runs/again/notes &&
    "$BALLAST" train tiny.cfg run.name=again "$sinks" --fresh 2>/dev/null && test -e runs/again/notes &&
    test "$(wc -l <runs/again/metrics.csv)" -eq 7 && test "$(wc -l <runs/again/metrics.jsonl)" -eq 6 &&
    test_expect_code 2 "$BALLAST" train tiny.cfg --frehs 2>err && grep "unknown option --frehs" err'

test_expect_success 'jsonl every: a part of the rows, the first and the last among them' '
    "$BALLAST" train --fresh tiny.cfg run.name=part run.steps=11 run.eval_every=7 "monitors=()" "sinks=({plugin=\"jsonl\";every=4})" 2>/dev/null &&
    sed "s/.*\"step\":\([0-9]*\).*/\1/" runs/part/metrics.jsonl >found && printf "1\n4\n7\n8\n11\n" >wanted && test_cmp wanted found'

# A clock on the wall that is set back by an hour now and then: rows go on, durations are real.
cat >shim.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
int flock(int fd, int operation) /* as on Lustre without the mount option "flock" */
{
    if (getenv("NO_LOCKS") == NULL)
        return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(fd, operation);
    errno = ENOSYS;
    return -1;
}
static int calls;
int clock_gettime(clockid_t id, struct timespec *t)
{
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, t);
    if (id == CLOCK_REALTIME)
        t->tv_sec -= 3600 * (__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 5);
    return rc;
}
C
shim() {
    LD_PRELOAD=./shim.so "$@"
}
if ${CC:-cc} -shared -fPIC -o shim.so shim.c -ldl 2>/dev/null && shim "$BALLAST" --version >/dev/null 2>&1; then
    test_expect_success 'a wall clock that jumps: time rises from row to row, step_seconds and rates are those of the monotonic clock' '
        shim "$BALLAST" train --fresh tiny.cfg run.name=jump run.steps=40 "sinks=({plugin=\"jsonl\"},{plugin=\"console\"})" >out 2>err &&
        sed "s/.*\"time\":\([0-9.]*\).*\"perf\/step_seconds\":\([-0-9.e]*\).*\"perf\/tokens_per_second\":\([-0-9.e]*\).*/\1 \2 \3/" runs/jump/metrics.jsonl >rows &&
        awk "{ if (NR > 1 && (\$1 < t || \$1 > t + 60)) bad = 1; t = \$1; if (!(\$2 > 0 && \$2 < 60 && \$3 > 1)) bad = 1 }
             END { exit bad || NR != 40 }" rows &&
        cut -c 12-13 runs/jump/log.txt | sort -u | wc -l >hours && test "$(cat hours)" -gt 1'
    test_expect_success 'a file system without locks: a warning, and the run goes on' '
        NO_LOCKS=1 shim "$BALLAST" train --fresh tiny.cfg run.name=lockless 2>err && grep "runs/lockless.*has no locks" err &&
        train locked && ! grep locks locked.out && same locked lockless'
else
    test_expect_success 'SKIP a wall clock that jumps: no C compiler, or this build takes no LD_PRELOAD' 'true'
fi

test_done
