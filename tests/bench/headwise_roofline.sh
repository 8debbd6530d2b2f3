#!/bin/sh
# Attention alone, with the cache in memory and offloaded to a file: HeadInfer paper, figures 5 and
# 8, tables 12 and 13. bf16 entries of llama-3-8b's heads; per layer a decode step (one query
# token) and a chunk of a prompt (the last CHUNK tokens).
#
#   DEPTHS  context depths ("1024 10240 102400")
#   CHUNK   query tokens of a prompt's chunk (512, the default of --chunk)
#   DIR     folder of the file (/var/tmp): 16 KiB per entry, 64 KiB up to 2048 tokens
#
# Operations are counted (a multiplication and an addition each), times are measured; "read" is
# reading all K and V from the file without computing. Intensity is operations per byte of K and V.
# A step is compute-bound if offloading does not slow it down, and I/O-bound if it takes as long as
# reading.
set -eu
SHAPE=llama-3-8b
. "$(dirname "$0")/lib.sh"
depths=${DEPTHS:-1024 10240 102400} chunk=${CHUNK:-512} dir=${DIR:-/var/tmp}
headwise=$(driver headwise)
row=$((2 * 128 * 2))   # bytes of K and V of a head
spare=$((2 << 20)) # entries in transit to the file, of a layer

bin/bmc-prof roof -t "$threads" --repeat 3 --format json 2>/dev/null | jq -r '.rows[0] | "rooflines: read \(.read_gb_s * 10 | round / 10) GB/s, f32 \(.f32_gflop_s | round) GFLOP/s (\(.f32_isa))"'
printf '\n| step | tokens | cache | operations | MB of K and V | operations per byte | ms | GFLOP/s | GB/s | over memory | over reading |\n'
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"

# measure CACHE_NAME ROWS QUERIES POLICY
measure() {
    "$headwise" "$2" "$layers" "$4" "$threads" "$rounds" - "$3" >"$work/now"
    [ "$1" != memory ] || cp "$work/now" "$work/memory"
    jq -r --arg name "$1" --argjson layers "$layers" --slurpfile memory "$work/memory" '
        def r(d): . * d | round / d;
        (.operations / $layers) as $ops | (.bytes / $layers) as $bytes | (.step_ms / $layers) as $ms |
        "| \(if .queries == 1 then "decode" else "prefill, \(.queries) tokens" end) | \(.rows + (if .queries == 1 then 0 else .queries end)) | \($name) | " +
        "\(if $ops > 1e9 then "\($ops / 1e9 | r(10))G" else "\($ops / 1e6 | r(10))M" end) | \($bytes / 1e6 | r(10)) | \($ops / $bytes | r(1)) | \($ms | r(100)) | \($ops / $ms / 1e6 | r(10)) | \($bytes / $ms / 1e6 | r(10)) | " +
        "\(.step_ms / $memory[0].step_ms | r(100)) | \(if .read_ms == 0 then "" else .step_ms / .read_ms | r(100) end) |"' "$work/now"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for queries in $chunk 1; do
    for depth in $depths; do
        rows=$depth layers=4
        [ "$depth" -gt 2048 ] || layers=16 # a cache of a few megabytes stays in memory
        [ "$queries" = 1 ] || rows=$((depth - queries))
        measure memory "$rows" "$queries" "headwise:ram=$((2 * (depth + 1024) * 8 * layers * row + layers * spare))"
        for group in 8 1; do
            ram=$((2 * group * (depth + 512) * row + layers * spare)) # two buffers of a group
            measure "file, groups of $group" "$rows" "$queries" "headwise:dir=$dir,ram=$ram,group=$group"
        done
    done
done
