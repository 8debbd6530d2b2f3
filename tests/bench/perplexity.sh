#!/bin/sh
# Quality of quantised types: perplexity of the small models by type and precision, relative to
# their f32 weights.
#
#   perplexity.sh [FOLDER]        folders of grimm and andersen (../shared/models)
#   MODELS="grimm andersen"       models to measure
#   PYTHON=python perplexity.sh   also Q4_0 as quantised by the Python package gguf: a GGUF file of
#     grimm, converted and scored here; and caches of grimm with outlier channels in its keys
#
# Texts: "reference" is tests/fixtures/reference, prompts with the model's own continuations;
# "sampled" is TOLD (4) stories of 900 tokens that the f32 model generates at temperature 1, whose
# perplexity under it is the entropy of its distribution, so that every ratio is due to rounding.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

models=${1:-../shared/models} told=${TOLD:-4}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-perplexity.XXXXXX")
trap 'rm -rf "$work"' EXIT

# perplexity MODEL TEXT PRECISION: texts of a folder, each by itself; the tokens' mean.
perplexity() {
    for text in "$work/$2"/*; do
        bin/bmc-gen -q -m "$1" --precision "$3" --score --summary --format json -f "$text"
    done | jq -s '(map(.mean_logprob * .tokens) | add) / (map(.tokens) | add) | -. | exp'
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", a / b }'; }

# row NAME MODEL-FILE: ratios for both texts and both precisions.
row() {
    printf '| %s | %s |' "$1" "$(awk -v b="$(wc -c <"$2")" 'BEGIN { printf "%.2f", b / 1048576 }')"
    for text in reference sampled; do
        case $text in reference) base=$base_reference ;; sampled) base=$base_sampled ;; esac
        for precision in f32 int8; do
            printf ' %s |' "$(ratio "$(perplexity "$2" $text $precision)" "$base")"
        done
    done
    echo
}

# made NAME OPTION..: the row of what bmc-convert makes with these options.
made() {
    name=$1
    shift
    bin/bmc-convert "$models/$model" "$@" -o "$work/made.bmc" 2>/dev/null
    row "$name" "$work/made.bmc"
}

# The row of the model in f32 with each quantised cache, on the sampled texts.
caches() {
    for cache in q8 q4 q4h; do
        found=$(for text in "$work"/sampled/*; do
            bin/bmc-gen -q -m "$work/f32.bmc" --cache-type $cache --score --summary --format json -f "$text"
        done | jq -s '(map(.mean_logprob * .tokens) | add) / (map(.tokens) | add) | -. | exp')
        echo "| cache $cache | $(ratio "$found" "$base_sampled") |"
    done
}

texts() { # of the model: the texts' folders, and what the source's perplexity is
    rm -rf "$work/reference" "$work/sampled"
    mkdir "$work/reference" "$work/sampled"
    jq -r '.scores[].text' "tests/fixtures/reference/$model.json" >"$work/reference/text"
    jq -r '.cases[] | .prompt + .greedy_text' "tests/fixtures/reference/$model.json" >"$work/reference/more"
    bin/bmc-convert "$models/$model" --type f32 -o "$work/f32.bmc"
    for seed in $(seq "$told"); do
        bin/bmc-gen -q -m "$work/f32.bmc" --precision f32 -p 'Once upon a time' --echo -n 900 --temp 1 --top-k 0 --top-p 1 --min-p 0 \
            --ignore-eos --seed "$seed" >"$work/sampled/$seed"
    done
    cat "$work"/sampled/* >"$work/calibration" # the importance matrix is of the sampled text
    bin/bmc-gen -q -m "$work/f32.bmc" --score --summary -f "$work/calibration" --save-imatrix "$work/importance" >/dev/null
    base_reference=$(perplexity "$work/f32.bmc" reference f32) base_sampled=$(perplexity "$work/f32.bmc" sampled f32)
}

for model in ${MODELS:-grimm andersen}; do
    texts
    echo
    echo "$model: perplexity $(ratio "$base_reference" 1) reference, $(ratio "$base_sampled" 1) sampled; relative to that:"
    echo
    echo '| type | MiB | reference, f32 | reference, int8 | sampled, f32 | sampled, int8 |'
    echo '| --- | --- | --- | --- | --- | --- |'
    made bf16 --type bf16
    for type in q8_0 q8_channel q4_1 q4_0; do
        made $type --pure --type $type
    done
    for type in q4_1 q4_0; do
        made "$type, --imatrix" --pure --type $type --imatrix "$work/importance"
        made "$type, --leave-output-tensor" --pure --type $type --leave-output-tensor
    done
    caches
    [ -n "${PYTHON:-}" ] && [ $model = grimm ] || continue
    for factor in 8 16 32; do
        "$PYTHON" tests/bench/make_outlier_keys.py "$models/$model" "$work/outliers" $factor
        bin/bmc-convert "$work/outliers" --type f32 -o "$work/f32.bmc"
        echo "A pair of key channels of each head times $factor:"
        caches
    done
    "$PYTHON" tests/bench/make_q4_0.py "$models/$model" "$work/q4_0.gguf"
    bin/bmc-convert "$work/q4_0.gguf" -o "$work/q4_0.bmc"
    row "Q4_0 of gguf" "$work/q4_0.bmc"
done
