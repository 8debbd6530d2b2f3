#!/bin/sh
# Speed and memory of quantised types: one Markdown row per measure, with its target. Shares are
# relative to limits measured beside the run; ratios are medians over alternating rounds.
#
#   MEASURES   of decode, batch, prefill, attention, bf16, memory (all)
#   BIG        shape of the memory row (llama-2-7b); its model file takes 4.2 GB of WORK (a new
#              folder of TMPDIR)
#
# SHAPE, THREADS and ROUNDS as in lib.sh. The memory row takes minutes.
set -eu
. "$(dirname "$0")/lib.sh"

work=${WORK:-$(mktemp -d "${TMPDIR:-/tmp}/bmc-few.XXXXXX")}
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"

# row WHAT VALUE RELATION WANTED COMMAND [MORE]
row() {
    awk -v what="$1" -v value="$2" -v relation="$3" -v wanted="$4" -v command="$5" -v more="${6:-}" 'BEGIN {
        met = relation == ">=" ? value >= wanted : value <= wanted
        printf "| %s | %.3f | %s %s | %s | `%s` | %s |\n", what, value, relation == ">=" ? "at least" : "at most", wanted, met ? "yes" : "no", command, more }'
}

# One line of JSON for each test of a bench, and the command for people.
measure() { # TYPE OPTION ..
    type=$1
    shift
    command="bmc-prof bench --shape $shape --type $type $* -r $rounds"
    rows=$(bench --type "$type" "$@" -r "$rounds")
}
field() { echo "$rows" | jq -r "select(.batch == ${2:-1}) | .$1"; }
limit() { field "step_ms, .roof_gb_s, .roof_gflop_s" | awk '{ x[NR] = $1 } END { printf "%.1f ms, limit %.1f %s", x[1], x[2] == "null" ? x[3] : x[2], x[2] == "null" ? "Gop/s" : "GB/s" }'; }

decode() {
    for case in q8_0:0.92 q4_0:0.85 q4_1:0.85 mxfp4:0.85 nvfp4:0.85 q4_z32:0.85 q4_z128:0.85 q2_0:0.85 q1_0:0.85; do
        measure "${case%:*}" -np 1 -p 0 -n 16 -d 120
        row "decode B = 1, ${case%:*}: share of the read rate" "$(field roof_share)" '>=' "${case#*:}" "$command" "$(limit)"
    done
}

# Batches alternate within one bench.
batch() {
    for types in q8_0:f32 q8_0:q8 q4_0:f32 q4_0:q8; do
        measure "${types%:*}" -np 1,8,32 -p 0 -n 16 -d 120 --cache-type "${types#*:}"
        for case in 8:1.3 32:2.5; do
            row "step at B = ${case%:*} over the step at B = 1, ${types%:*}, cache ${types#*:}" "$(divide "$(field step_ms "${case%:*}")" "$(field step_ms)")" '<=' \
                "${case#*:}" "$command" "$(field step_ms) and $(field step_ms "${case%:*}") ms"
        done
    done
}

prefill() {
    for type in q8_0 q8_channel q4_0; do
        measure $type -np 1 -p 512 -n 0
        row "prefill 512, $type at $(field precision): share of the peak of $(field roof_kind) products" "$(field roof_share)" '>=' 0.5 "$command" "$(limit)"
    done
}

attention() {
    set -- upfront 32 4 64 44 8 1 2047 1 q8 "$threads" "$rounds"
    line=$("$(driver attention)" "$@")
    row "attention, one token, depth 2048, B = 8, cache q8: share of the read rate" "${line##* }" '>=' 0.80 "attention $*" "${line##*: }"
}

bf16() {
    measure bf16 -np 1 -p 0 -n 16 -d 120
    row "decode B = 1, bf16: share of the read rate" "$(field roof_share)" '>=' 0.92 "$command" "$(limit)"
}

# The cache is allocated for the whole context; GNU time reports peak memory.
memory() {
    big=${BIG:-llama-2-7b} context=4096
    bin/bmc-convert --synth "$big" --type q4_1 -o "$work/big.bmc" 2>/dev/null
    set -- --kv upfront --cache-type q8 -c $context --ignore-eos -t "$threads"
    echo '{"ids": [1, 2, 3, 4, 5], "n": 3}' >"$work/in"
    LC_ALL=C /usr/bin/time -v bin/bmc-gen --no-spec -q -m "$work/big.bmc" --jsonl -np 1 "$@" --stats "$work/stats" <"$work/in" >/dev/null 2>"$work/time"
    peak=$(awk '/Maximum resident/ { print $NF / 1024 }' "$work/time")
    weights=$(wc -c <"$work/big.bmc" | awk '{ print $1 / 1048576 }')
    cache=$(jq '.kv_resident_bytes / 1048576' "$work/stats")
    row "peak memory beyond weights and cache, MiB: $big, q4_1, context $context, cache q8" "$(awk -v p="$peak" -v w="$weights" -v c="$cache" 'BEGIN { print p - w - c }')" \
        '<=' 100 "/usr/bin/time -v bmc-gen $*" "peak $peak, weights $weights, cache $cache MiB"
}

echo
echo "| measure | value | target | met | command | details |"
echo "| --- | --- | --- | --- | --- | --- |"
for name in ${MEASURES:-decode batch prefill attention bf16 memory}; do
    $name
done
