#!/bin/sh
# Speculation against plain decoding at a simulated acceptance rate: medians of the ratios of
# alternating runs.
#
#   MODEL=tinyllama-1.1b.bmc DRAFT=tinyllama-draft-55m.bmc sh tests/bench/spec_speed.sh [OPTION
#     ...]      options of bmc-spec
#
# Both models may be synthetic (bmc-convert --synth): draft tokens are accepted with probability P,
# whatever they are; with P=none the target decides, which with random weights accepts nothing. Each
# pair has its own seed. P (0.8), N tokens (96), BATCH (1), REPEAT pairs
# (5), PROMPT tokens (16) configure the run; MEASURE is put before each command. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
model=${MODEL:?a model file} draft=${DRAFT:?a model file} p=${P:-0.8} n=${N:-96} batch=${BATCH:-1} repeat=${REPEAT:-5} prompt=${PROMPT:-16}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
jq -nc --argjson b "$batch" --argjson n "$n" --argjson p "$prompt" 'range($b) | . as $i | {ids: [range($p) | 40 + (. * 7 + $i) % 50], n: $n}' >"$scratch/in"

# run STATS OPTION..: the same requests, to the last token
run() {
    stats=$1
    shift
    ${MEASURE:-} bin/bmc-spec -q -m "$model" -d "$draft" --jsonl -np "$batch" -c $((prompt + n)) --ignore-eos --seed "$i" --stats "$stats" "$@" <"$scratch/in" >"$scratch/out"
}

i=0
while [ $i -lt "$repeat" ]; do
    run "$scratch/plain.$i" -k 0
    if [ "$p" = none ]; then
        run "$scratch/spec.$i" "$@"
    else
        run "$scratch/spec.$i" --simulate-acceptance "$p" "$@"
    fi
    i=$((i + 1))
done
jq -sc '.' "$scratch"/plain.* >"$scratch/plain"
jq -sc '.' "$scratch"/spec.* >"$scratch/spec"
jq -nr --slurpfile a "$scratch/plain" --slurpfile b "$scratch/spec" --arg p "$p" '
    def median: sort | .[length / 2 | floor];
    def per_token: (.decode_ms + .sample_ms) / .decode_tokens;
    ($a[0]) as $plain | ($b[0]) as $spec | $spec[0] as $s |
    "batch \($s.batch), \($s.threads) threads, isa \($s.isa), precision \($s.precision), \($s.weight_type) weights, kv \($s.kv_policy), k at most \($s.k) (batch knee \($s.batch_knee), \($s.batch_knee_from)), acceptance \(if $p == "none" then "as it is" else "\($p) (simulated)" end)",
    "plain  \([$plain[] | per_token] | median * 100 | round / 100) ms per token",
    "spec   \([$spec[] | per_token] | median * 100 | round / 100) ms per token, \([$spec[].tokens_per_step] | add / length * 100 | round / 100) tokens per step (mean); draft \([$spec[] | .draft_ms / .decode_steps] | median * 100 | round / 100) ms, verify \([$spec[] | .verify_ms / .decode_steps] | median * 100 | round / 100) ms a step",
    "share  \([$spec[] | .draft_ms / .verify_ms] | median * 1000 | round / 1000) drafting over verification (median)",
    "ratio  \([range($plain | length) as $i | ($plain[$i] | per_token) / ($spec[$i] | per_token)] | median * 100 | round / 100) (median of \($plain | length) pairs)"'
