#!/bin/sh
# Per-token latency of the first, the last and all sequences by batch size, beside regular decoding: the form of tables 1 to 3
# of the BASS paper. Every batch is B copies of one prompt with seeds of their own.
#
#   sh tests/bench/spec_latency.sh [OPTION ...]      options of bmc-spec; -k 0 is regular decoding
#
# MODEL, DRAFT, N, BATCHES, TEMP and REPEAT change what is run. Needs jq.
set -eu
cd "$(dirname "$0")/../.."
model=${MODEL:-models.d/grimm.bmc} draft=${DRAFT:-models.d/grimm-draft.bmc} n=${N:-128} batches=${BATCHES:-1 2 4 8} repeat=${REPEAT:-3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# latency BATCH OPTION..: first, last and all, medians over the runs
latency() {
    batch=$1
    shift
    jq -nc --argjson b "$batch" --argjson n "$n" 'range($b) | {prompt: "Once upon a time", n: $n, seed: .}' >"$scratch/in"
    i=0
    while [ $i -lt "$repeat" ]; do
        bin/bmc-spec -q -m "$model" -d "$draft" --jsonl -b "$batch" --temp "${TEMP:-0.2}" --ignore-eos --stats "$scratch/stats.$i" "$@" <"$scratch/in" >"$scratch/out"
        i=$((i + 1))
    done
    jq -sc 'def median(f): map(f) | sort | .[length / 2 | floor]; [median(.first_ptl_ms), median(.last_ptl_ms), median(.all_ptl_ms)]' "$scratch"/stats.*
    rm "$scratch"/stats.*
}

echo "| batch | method | first | | last | | all | |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
for batch in $batches; do
    regular=$(latency "$batch" -k 0)
    speculative=$(latency "$batch" "$@")
    jq -nr --argjson batch "$batch" --argjson r "$regular" --argjson s "$speculative" '
        def cells($x): [range(3) as $i | "\($x[$i] * 100 | round / 100) ms | \($r[$i] / $x[$i] * 100 | round / 100)x"] | join(" | ");
        "| \($batch) | regular | \(cells($r)) |", "| | speculative | \(cells($s)) |"'
done
