#!/bin/sh
# The papers' experiments on a GPU, in small form, with the backend opencl: figure 15 and tables VIII and IX of the BMC
# paper, tables 12 to 14 of the HeadInfer paper (head-wise KV cache against one in memory), batched speculation of the BASS
# paper. Ends with status 0 and a sentence where no driver is that of a GPU; ANY=1 measures whatever device there is.
#
#   MODEL    model file (models.d/grimm.bmc)     DRAFT    its draft model (models.d/grimm-draft.bmc)
#   N        context (1024)                      TOKENS   tokens decoded behind a short prompt (N - 64)
#   ROUNDS   alternating rounds, medians (3)     SECONDS_IN_ALL   what is left out then is said (540)
#
# Prints Markdown tables. Needs jq, and build/gcc/tests/opencl_device (`make tests`).
set -eu
export BMC_CONFIG=none
cd "$(dirname "$0")/../.."

model=${MODEL:-models.d/grimm.bmc} draft=${DRAFT:-models.d/grimm-draft.bmc} n=${N:-1024} rounds=${ROUNDS:-3}
tokens=${TOKENS:-$((n - 64))}
device=$("${BUILD:-build/gcc}/tests/opencl_device" --info) || {
    echo "nothing to measure: $device"
    exit 0
}
case $device in
'device of a CPU'*)
    if [ -z "${ANY:-}" ]; then
        echo "nothing to measure: the only OpenCL driver is that of a CPU ($device); ANY=1 measures it"
        exit 0
    fi
    ;;
esac
began=$(date +%s)
stats=$(mktemp) requests=$(mktemp)
trap 'rm -f "$stats" "$requests"' EXIT
trap 'exit 1' HUP INT TERM

median() { sort -g | awk '{ x[NR] = $1 } END { if (NR) print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2; else print "failed" }'; }

# time_is_left WHAT
time_is_left() {
    [ $(($(date +%s) - began)) -lt "${SECONDS_IN_ALL:-540}" ] && return
    echo "left out, as the time is over: $1"
    return 1
}

# measure FIELDS PROGRAM ARGUMENT..: the sum of fields of --stats.
measure() {
    fields=$1
    shift
    timeout 300 "$@" -q --temp 0 --ignore-eos --backend opencl --stats "$stats" <"$requests" >/dev/null 2>&1 || return 0
    jq -r "$fields" "$stats"
}

# batch B TOKENS PROGRAM..: B sequences at once.
batch() {
    jq -nc --argjson b "$1" --argjson n "$2" 'range($b) | {prompt: "Once upon a time \(.)", n: $n}' >"$requests"
    b=$1
    shift 2
    measure '.prefill_ms + .decode_ms' "$@" -m "$model" -c "$n" --jsonl -np "$b"
}

run() { measure '.prefill_ms + .decode_ms' bin/bmc-gen -m "$model" -p 'Once upon a time' "$@"; }

# row NAME COMMAND..: the median of ROUNDS runs, as a row.
row() {
    name=$1
    shift
    time_is_left "$name" || return 0
    echo "| $name | $(for _ in $(seq "$rounds"); do "$@"; done | median) |"
}

echo "$device; $(bin/bmc-gen --version | head -n 1); $model, N = $n, $tokens tokens, medians of $rounds; ms"
echo
echo '| BMC figure 15: T | time |'
echo '| --- | --- |'
for t in 1 2 4 8 16 32 64; do row "$t" run -c "$n" -n "$tokens" --kv "bmc:T=$t,grow=now"; done
echo
echo '| BMC table IX: policy, batch | time |'
echo '| --- | --- |'
for b in 1 4; do
    for kv in iterative upfront bmc paged:16; do row "$kv, $b" batch "$b" "$((tokens / 4))" bin/bmc-gen --kv "$kv"; done
done
echo
echo '| BMC table VIII: T, with drafts of 8 tokens | time |'
echo '| --- | --- |'
speculate() { measure '.prefill_ms + .decode_ms' bin/bmc-spec -m "$model" -md "$draft" -p 'Once upon a time' "$@"; }
for t in 1 4 16 64; do row "$t" speculate -c "$n" -n "$((tokens / 2))" --draft-max 8 --kv "bmc:T=$t,grow=now"; done
echo
echo '| HeadInfer tables 12 to 14: cache | time |'
echo '| --- | --- |'
for kv in upfront headwise; do row "$kv" run -c "$n" -n "$((tokens / 4))" --kv "$kv"; done
echo
echo '| BASS: sequences, with and without speculation | time |'
echo '| --- | --- |'
for b in 1 2 4 8; do
    row "$b, plain" batch "$b" "$((tokens / 8))" bin/bmc-gen
    row "$b, speculation" batch "$b" "$((tokens / 8))" bin/bmc-spec -md "$draft"
done
