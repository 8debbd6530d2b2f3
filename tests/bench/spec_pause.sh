#!/bin/sh
# Cost of drafting where it does not pay: bmc-spec, which may pause, against its own plain
# decoding, on five prompts; medians of the ratios of alternating runs. The target is at least
# 0.97.
#
#   sh tests/bench/spec_pause.sh [OPTION ...]      options of bmc-spec: --lookup, -d DRAFT.bmc
#     (default: grimm's draft)
#
# MODEL, N tokens (200) and REPEAT pairs (20) configure the run; MEASURE is put before each
# command. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
model=${MODEL:-models.d/grimm.bmc} n=${N:-200} repeat=${REPEAT:-20}
[ $# -gt 0 ] || set -- -d models.d/grimm-draft.bmc
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$scratch/all"
for prompt in "Once upon a time" "The king said" "There was once a poor miller who" "In the dark forest" "Little Red Cap"; do
    i=0
    : >"$scratch/pairs"
    while [ $i -lt "$repeat" ]; do
        ${MEASURE:-} bin/bmc-spec -q -m "$model" "$@" -p "$prompt" -n "$n" --ignore-eos -k 0 --stats "$scratch/plain" >"$scratch/out"
        ${MEASURE:-} bin/bmc-spec -q -m "$model" "$@" -p "$prompt" -n "$n" --ignore-eos --stats "$scratch/spec" >"$scratch/out"
        jq -sc '{plain: (.[0] | .decode_ms + .sample_ms), spec: (.[1] | .decode_ms + .sample_ms), pauses: .[1].pauses, tokens: .[1].tokens_per_step}' "$scratch/plain" "$scratch/spec" >>"$scratch/pairs"
        i=$((i + 1))
    done
    jq -sr --arg prompt "$prompt" 'def median: sort | .[length / 2 | floor];
        "\(map(.plain / .spec) | median * 1000 | round / 1000)  plain \(map(.plain) | median * 100 | round / 100) ms, spec \(map(.spec) | median * 100 | round / 100) ms, \(map(.pauses) | median) pauses, \(map(.tokens) | median * 100 | round / 100) tokens per step: \($prompt)"' "$scratch/pairs"
done
