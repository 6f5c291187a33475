#!/bin/sh
# Ten thousand steps: memory and the log stay as small as they were after a thousand.
test_description='a long run'
. "${top_srcdir:-.}/tests/shell/lib.sh"

cat >long.cfg <<'C'
run = { name = "long"; steps = 10000; checkpoint_every = 1000; };
model = { layers = 1; width = 16; heads = 2; context = 8; tied = false; };
data = { source = "synthetic"; vocab = 31; };
batch = { sequences = 2; micro = 2; };
optimizer = { plugin = "adamw"; lr = 1e-3; };
guards = ( { plugin = "clip_norm"; max = 1.0; } );
monitors = ( { plugin = "logits"; every = 1; }, { plugin = "norms"; every = 1; per_tensor = true; } );
sinks = ( { plugin = "jsonl"; }, { plugin = "console"; } );
alarms = ( { metric = "loss/ce"; above = 3.4; }, { metric = "grad/*/norm"; above = 0.1; } );
C

resident() { # kB of the run's process
    sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$pid/status"
}
step() { # the newest whole row's
    tail -n 2 runs/long/metrics.jsonl 2>/dev/null | sed -n '1s/.*"step":\([0-9]*\).*/\1/p'
}
# wait_for STEP: until the run is there, five minutes at most.
wait_for() {
    for _ in $(seq 3000); do
        now=$(step)
        test "${now:-0}" -ge "$1" && return 0
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# The allocator may keep a few pages more; a leak of one row (some kB a step) would be 20 MB.
test_expect_success 'memory at step 9,000 is that at step 1,000' '
    { "$BALLAST" train --fresh long.cfg >out 2>&1 & } && pid=$! &&
    wait_for 1000 && first=$(resident) && wait_for 9000 && second=$(resident) && wait $pid &&
    echo "kB: $first at 1,000, $second at 9,000" && test "$first" -gt 0 && test "$second" -le $((first + 512))'

test_expect_success 'every row is there, and the log is short although two alarms come and go all the time' '
    test "$(grep -c . runs/long/metrics.jsonl)" -eq 10000 && wc -l <runs/long/log.txt && wc -c <runs/long/log.txt &&
    grep "alarms\[1\].* times so far" runs/long/log.txt && test "$(wc -l <runs/long/log.txt)" -lt 80 && test "$(wc -c <runs/long/log.txt)" -lt 16384 &&
    echo "bytes a row: $(($(wc -c <runs/long/metrics.jsonl) / 10000))"'

test_expect_success 'every = 100 makes the file a hundredth' '
    "$BALLAST" train --fresh long.cfg run.name=sparse "sinks=({plugin=\"jsonl\";every=100})" >out 2>&1 &&
    test "$(grep -c . runs/sparse/metrics.jsonl)" -eq 101 && "$BALLAST" weights runs/long/checkpoints/10000 runs/sparse/checkpoints/10000 >/dev/null'

test_done
