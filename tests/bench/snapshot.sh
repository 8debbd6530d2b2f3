#!/bin/sh
# What snapshots cost: a snapshot of about SNAPSHOT_MB (256) is opened by PROCESSES (4) runs at a time, and the
# proportional set sizes of its pages are added up; then opening alone is timed, and verifying against one thread's rate
# of BLAKE2b. SHAPE is synthetic; its prompt is computed once.
set -eu
cd "$(dirname "$0")/../.."

megabytes=${SNAPSHOT_MB:-256} processes=${PROCESSES:-4}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-snapshot.XXXXXX")
trap 'rm -rf "$work"' EXIT

# 64 layers of 4 heads of 64 values, K and V in f32: 128 KiB a token.
cat >"$work/deep.shape" <<'END'
family llama
layers 64
hidden 256
heads 4
kv_heads 4
ffn 64
vocab 512
context 16384
norm_eps 1e-5
eos 0
END
rows=$((megabytes * 8))
bin/bmc-convert --synth "$work/deep.shape" -o "$work/deep.bmc"
ids=$(awk -v n="$rows" 'BEGIN { for (i = 0; i < n; i++) printf "%d ", i * 7 % 500 }')
bin/bmc-gen -q -m "$work/deep.bmc" --prompt-ids "$ids" -n 0 --kv bmc:r=512 -c $((rows + 1024)) --save-kv "$work/deep.kv" >/dev/null
bytes=$(stat -c %s "$work/deep.kv")
echo "snapshot: $rows rows, $bytes bytes"

# Kilobytes of a field of smaps over the pages of the snapshot.
of_snapshot() { # PID FIELD
    awk -v file="$work/deep.kv" -v field="$2:" '/^[0-9a-f]+-/ { inside = $NF == file } inside && $1 == field { sum += $2 } END { print sum + 0 }' "/proc/$1/smaps"
}

for kv in bmc reserve; do
    pids=
    for i in $(seq "$processes"); do
        bin/bmc-gen -q -m "$work/deep.bmc" --load-kv "$work/deep.kv" -c $((rows + 1024)) --kv $kv -t 1 -n 400 --ignore-eos --ids --temp 1 --seed "$i" >"$work/out.$i" 2>&1 &
        pids="$pids $!"
    done
    # Once all of them have decoded a token, and so read every row.
    for i in $(seq "$processes"); do
        while [ ! -s "$work/out.$i" ]; do sleep 0.05; done
    done
    sleep 0.3
    # shellcheck disable=SC2086 # words
    kill -STOP $pids
    pss=0 dirty=0
    for pid in $pids; do
        pss=$((pss + $(of_snapshot "$pid" Pss)))
        dirty=$((dirty + $(of_snapshot "$pid" Private_Dirty)))
    done
    # shellcheck disable=SC2086
    kill -KILL $pids
    echo "$kv: $processes processes, $(wc -w <"$work/out.1") tokens each: Pss of the snapshot $pss KiB, of it written $dirty KiB," \
        "$(awk -v p="$pss" -v b="$bytes" 'BEGIN { printf "%.3f", p * 1024 / b }') of one copy"
    wait 2>/dev/null || true
done

for kv in bmc reserve; do
    for run in 1 2 3; do
        bin/bmc-gen -q -m "$work/deep.bmc" --load-kv "$work/deep.kv" -c $((rows + 1024)) --kv $kv -n 1 --stats "$work/stats.json" >/dev/null
        jq -r --arg kv $kv '"\($kv): load_kv_ms \(.load_kv_ms), \(.kv_adopted_bytes) bytes in place, \(.kv_copied_bytes) copied"' "$work/stats.json"
    done
    # Resident memory before the first step: nothing is left to compute with -n 0.
    bin/bmc-gen -q -m "$work/deep.bmc" --load-kv "$work/deep.kv" -c $((rows + 1024)) --kv $kv -n 0 --stats "$work/stats.json" >/dev/null
    with=$(jq .peak_resident_bytes "$work/stats.json")
    bin/bmc-gen -q -m "$work/deep.bmc" --prompt-ids 1 -n 0 -c $((rows + 1024)) --kv $kv --stats "$work/stats.json" >/dev/null
    echo "$kv: resident with the snapshot open $with bytes, with a prompt of one token $(jq .peak_resident_bytes "$work/stats.json") bytes"
done

cat "$work/deep.kv" "$work/deep.bmc" >/dev/null
seconds() { # COMMAND..
    start=$(date +%s%N)
    "$@" >/dev/null
    end=$(date +%s%N)
    awk -v ns=$((end - start)) 'BEGIN { printf "%.3f", ns / 1e9 }'
}
for run in 1 2 3 4 5; do
    one=$(seconds bin/bmc-convert --verify "$work/deep.kv" -t 1)
    all=$(seconds bin/bmc-convert --verify "$work/deep.kv")
    echo "verify: one thread $one s, all $all s: $(awk -v a="$one" -v b="$all" -v n="$bytes" 'BEGIN { printf "%.2f times as fast, %.2f GB/s", a / b, n / b / 1e9 }')"
done
