#!/bin/sh
# Cache types where keys have outlier channels: perplexity over that with an f32 cache, of grimm as it is and with a pair of
# key channels of each head multiplied by FACTORS, that of the queries divided (make_outlier_keys.py), which is the same in f32.
#
#   PYTHON=python outlier_keys.sh [FOLDER]      folder of grimm (../shared/models); needs numpy and safetensors
#
#   FACTORS ("4 8 16 32"), CACHES ("q8_channel q4_1 q4h"); TOLD (3) stories of 900 tokens that the model generates at temperature 1
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
models=${1:-../shared/models}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-outliers.XXXXXX")
trap 'rm -rf "$work"' EXIT

loss() { # MODEL CACHE: mean over the tokens
    for text in "$work"/told.*; do
        bin/bmc-gen -q -m "$1" --precision f32 --cache-type "$2" --score --summary --format json -f "$text"
    done | jq -s '(map(.mean_logprob * .tokens) | add) / (map(.tokens) | add) | -.'
}

bin/bmc-convert -q "$models/grimm" --type f32 -o "$work/1.bmc"
for seed in $(seq "${TOLD:-3}"); do
    bin/bmc-gen -q -m "$work/1.bmc" --precision f32 -p 'Once upon a time' --echo -n 900 --temp 1 --top-k 0 --top-p 1 --min-p 0 --ignore-eos --seed "$seed" >"$work/told.$seed"
done
echo "| factor |$(for cache in ${CACHES:-q8_channel q4_1 q4h}; do printf ' %s |' "$cache"; done)"
echo "| --- |$(for cache in ${CACHES:-q8_channel q4_1 q4h}; do printf ' --- |'; done)"
for factor in 1 ${FACTORS:-4 8 16 32}; do
    if [ "$factor" != 1 ]; then
        "${PYTHON:?}" tests/bench/make_outlier_keys.py "$models/grimm" "$work/outliers" "$factor"
        bin/bmc-convert -q "$work/outliers" --type f32 -o "$work/$factor.bmc"
        rm -r "$work/outliers"
    fi
    f32=$(loss "$work/$factor.bmc" f32)
    echo "| $factor |$(for cache in ${CACHES:-q8_channel q4_1 q4h}; do awk -v a="$(loss "$work/$factor.bmc" "$cache")" -v b="$f32" 'BEGIN { printf " %.4f |", exp(a - b) }'; done)"
done
