#!/bin/sh
# A run that saves all the time, killed a hundred times at random moments: after every kill the
# newest checkpoint opens, and in the end the bits are those of the run that nobody killed.
test_description='kill -9, a hundred times'
. "${top_srcdir:-.}/tests/shell/lib.sh"

cat >storm.cfg <<'C'
run = { name = "storm"; steps = 4000; checkpoint_every = 1; keep = 2; ring = 2; };
model = { layers = 1; width = 16; heads = 2; context = 8; tied = false; };
data = { source = "synthetic"; vocab = 31; };
batch = { sequences = 2; micro = 2; };
optimizer = { plugin = "adamw"; lr = 1e-3; };
schedule = { plugin = "constant"; warmup = 0; }; # the last attempt ends the plan early
guards = ( { plugin = "skip_step"; } );
monitors = ( ); sinks = ( { plugin = "jsonl"; every = 100; } );
C
seed=${STORM_SEED:-$(date +%s)}
say "STORM_SEED=$seed"

newest() {
    for step in runs/storm/checkpoints/[0-9]*; do
        echo "${step##*/}"
    done | grep '^[0-9]*$' | sort -n | tail -n 1
}

test_expect_success 'a hundred kills: the newest checkpoint always opens, and training never goes back behind it' '
    rm -rf runs/storm && : >storm.out && awk -v s="$seed" "BEGIN { srand(s); for (i = 0; i < 100; i++) printf \"%.3f\n\", 0.1 + 0.5 * rand() }" >pauses &&
    before=0 && while read -r pause; do
        "$BALLAST" train storm.cfg run.steps=100000000 >>storm.out 2>&1 & pid=$!
        sleep "$pause"; kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null
        now=$(newest); now=${now:-0}
        test "$now" -ge "$before" || { echo "step $now after step $before"; return 1; }
        test "$now" -eq 0 || "$BALLAST" weights runs/storm/checkpoints/$now >list 2>&1 || { cat list; return 1; }
        before=$now
    done <pauses && echo "came to step $before" && test "$before" -gt 100 && ! grep -i "warning\|error" storm.out'

test_expect_success 'the bits are those of the run that nobody killed' '
    last=$(($(newest) + 5)) && "$BALLAST" train storm.cfg run.steps=$last --replan >>storm.out 2>&1 &&
    "$BALLAST" train storm.cfg run.name=calm run.steps=$last run.checkpoint_every=0 run.ring=0 >calm.out 2>&1 &&
    "$BALLAST" weights runs/storm/checkpoints/$last runs/calm/checkpoints/$last >compare.out && tail -n 1 compare.out &&
    for f in model optimizer-1-of-1 plugins; do cmp runs/storm/checkpoints/$last/$f.safetensors runs/calm/checkpoints/$last/$f.safetensors || return 1; done &&
    ! find runs/storm -name ".tmp-*" -o -name ".old-*" -o -name ".out-*" | grep .'

test_done
