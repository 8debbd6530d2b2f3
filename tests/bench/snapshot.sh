#!/bin/sh
# Cost of snapshots: a snapshot of about SNAPSHOT_MB (256) is opened by PROCESSES (4) runs at a
# time, and the proportional set sizes of its pages are added up; then opening alone is timed, and
# --verify against one thread's crypto_generichash() of the same bytes: of the snapshot, and of a
# model file that is almost entirely one tensor. The shape is synthetic, with HEADS (4) heads, and
# its prompt computed once: more heads are fewer tokens. WORK is a folder for the files, kept for
# later runs.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

megabytes=${SNAPSHOT_MB:-256} processes=${PROCESSES:-4} heads=${HEADS:-4}
make -s build/gcc/bench/hash
if [ "${WORK:-}" ]; then
    mkdir -p "$WORK" && work=$(cd "$WORK" && pwd)
else
    work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-snapshot.XXXXXX")
    trap 'rm -rf "$work"' EXIT
fi

# 64 layers of heads of 64 values, K and V in f32: 32 KiB a head and token.
cat >"$work/deep.shape" <<END
family llama
layers 64
hidden 64
heads $heads
kv_heads $heads
head_dim 64
ffn 64
vocab 512
context 16384
norm_eps 1e-5
eos 0
END
rows=$((megabytes * 32 / heads))
# A tied embedding of 2048 values a token, in bf16: 4 KiB a token.
{
    sed 's/^layers .*/layers 1/; s/^hidden .*/hidden 2048/; s/heads .*/heads 16/; /^head_dim/d; s/^vocab .*/vocab '$((megabytes * 256))'/' "$work/deep.shape"
    echo "tied_head true"
} >"$work/wide.shape"
if [ ! -e "$work/deep.kv" ]; then
    bin/bmc-convert --synth "$work/deep.shape" -o "$work/deep.bmc"
    bin/bmc-convert --synth "$work/wide.shape" --type bf16 -o "$work/wide.bmc"
    ids=$(awk -v n="$rows" 'BEGIN { for (i = 0; i < n; i++) printf "%d ", i * 7 % 500 }')
    bin/bmc-gen --no-spec -q -m "$work/deep.bmc" --prompt-ids "$ids" -n 0 --kv bmc:r=512 -c $((rows + 1024)) --save-kv "$work/deep.kv" >/dev/null
    bin/bmc-gen --no-spec -q -m "$work/deep.bmc" --prompt-ids 1 -n 0 --save-kv "$work/short.kv" >/dev/null
fi
bytes=$(stat -c %s "$work/deep.kv")
echo "snapshot: $rows entries, $bytes bytes"

# Kilobytes of a field of smaps over the pages of the snapshot.
of_snapshot() { # PID FIELD
    awk -v file="$work/deep.kv" -v field="$2:" '/^[0-9a-f]+-/ { inside = $NF == file } inside && $1 == field { sum += $2 } END { print sum + 0 }' "/proc/$1/smaps"
}

for kv in bmc reserve; do
    pids=
    for i in $(seq "$processes"); do
        bin/bmc-gen --no-spec -q -m "$work/deep.bmc" --load-kv "$work/deep.kv" -c $((rows + 1024)) --kv $kv -t 1 -n 400 --ignore-eos --ids --temp 1 --seed "$i" >"$work/out.$i" 2>&1 &
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
        bin/bmc-gen --no-spec -q -m "$work/deep.bmc" --load-kv "$work/deep.kv" -c $((rows + 1024)) --kv $kv -n 1 --stats "$work/stats.json" >/dev/null
        jq -r --arg kv $kv '"\($kv): load_kv_ms \(.load_kv_ms), \(.kv_adopted_bytes) bytes in place, \(.kv_copied_bytes) copied"' "$work/stats.json"
    done
    # Resident memory before the first step: nothing is left to compute with -n 0.
    for name in deep short; do
        bin/bmc-gen --no-spec -q -m "$work/deep.bmc" --load-kv "$work/$name.kv" -c $((rows + 1024)) --kv $kv -n 0 --stats "$work/$name.json" >/dev/null
    done
    echo "$kv: $(jq .peak_resident_bytes "$work/deep.json") bytes resident with it open," \
        "$(jq -n 'input.peak_resident_bytes - input.peak_resident_bytes' "$work/deep.json" "$work/short.json") more than with a snapshot of one token"
done

seconds() { # COMMAND..
    start=$(date +%s%N)
    "$@" >/dev/null
    end=$(date +%s%N)
    awk -v ns=$((end - start)) 'BEGIN { printf "%.3f", ns / 1e9 }'
}
for file in deep.kv wide.bmc; do
    cat "$work/$file" >/dev/null # it is in the page cache
    for run in 1 2 3 4 5; do
        one=$(build/gcc/bench/hash "$work/$file")
        all=$(seconds bin/bmc-convert --verify "$work/$file")
        single=$(seconds bin/bmc-convert --verify -t 1 "$work/$file")
        echo "verify of $file, $(stat -c %s "$work/$file") bytes: one thread's crypto_generichash() $one s, all threads $all s, one thread $single s:" \
            "$(awk -v a="$one" -v b="$all" -v n="$(stat -c %s "$work/$file")" 'BEGIN { printf "%.2f times as fast, %.2f GB/s", a / b, n / b / 1e9 }')"
    done
done
