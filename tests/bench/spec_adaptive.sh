#!/bin/sh
# Draft lengths that adapt against fixed ones at a simulated acceptance rate: ms per token, medians of
# alternating runs, and the ratio of the adaptive length to the best fixed one.
#
#   MODEL=tinyllama-q8_0.bmc DRAFT=pard-q4_0.bmc sh tests/bench/spec_adaptive.sh [OPTION ...]
#
# Tokens are counted as expected from the lengths of the steps and the acceptance rate, since a run
# of a few hundred tokens may be lucky by 10 %. Options are those of bmc-spec. P (0.8), N tokens (256),
# BATCH (1), REPEAT rounds (3), LENGTHS ("0 3 4 5 6 7 8"; 0 is plain decoding) configure the run; MEASURE
# is put before each command. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
model=${MODEL:?a model file} draft=${DRAFT:?a model file} p=${P:-0.8} n=${N:-256} batch=${BATCH:-1} repeat=${REPEAT:-3} lengths=${LENGTHS:-0 3 4 5 6 7 8}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
jq -nc --argjson b "$batch" --argjson n "$n" 'range($b) | . as $i | {ids: [range(16) | 40 + (. * 7 + $i) % 50], n: $n}' >"$scratch/in"
round=0
while [ $round -lt "$repeat" ]; do
    for k in $lengths auto; do
        ${MEASURE:-} bin/bmc-spec -q -m "$model" -d "$draft" --jsonl -np "$batch" -c $((16 + n)) --ignore-eos --seed "$round" -k "$k" --simulate-acceptance "$p" \
            --profile none --stats "$scratch/stats" "$@" <"$scratch/in" >/dev/null
        jq -c --arg k "$k" --argjson p "$p" '
            def expected($k): if $p == 0 then 1 else $k | (1 - pow($p; . + 1)) / (1 - $p) end;
            {k: $k, ms: ((.decode_ms + .sample_ms) / ([.draft_length_history[] | expected(.)] | add) / .batch), draft: (.draft_ms / .decode_steps), verify: (.verify_ms / .decode_steps),
             pauses, history: .draft_length_history}' "$scratch/stats" >>"$scratch/runs"
    done
    round=$((round + 1))
done
jq -rs --arg p "$p" --arg b "$batch" '
    def median: sort | .[length / 2 | floor];
    def r: . * 100 | round / 100;
    group_by(.k) | map({k: .[0].k, ms: (map(.ms) | median), draft: (map(.draft) | median), verify: (map(.verify) | median), share: (map(.draft / .verify) | median),
        lengths: (map(.history[]) | (add / length))}) as $rows |
    ($rows | map(select(.k != "auto")) | min_by(.ms)) as $best | ($rows[] | select(.k == "auto")) as $auto |
    "acceptance \($p), batch \($b)", "| -k | ms per token | draft ms | verify ms | share | mean length |", "| --- | --- | --- | --- | --- | --- |",
    ($rows[] | "| \(.k) | \(.ms | r) | \(.draft | r) | \(.verify | r) | \(.share * 1000 | round / 1000) | \(.lengths | r) |"),
    "adaptive over the best fixed length (\($best.k)): \($auto.ms / $best.ms * 1000 | round / 1000)"' "$scratch/runs"
