#!/bin/sh
# What few bits cost: perplexity of the small models, by type and precision, over that of their f32 weights.
#
#   perplexity.sh [FOLDER]        folders of grimm and andersen (../shared/models)
#   MODELS="grimm andersen"       those that are measured
#   PYTHON=python perplexity.sh   measures Q4_0 too, as the package gguf makes it: a GGUF file of grimm, converted and scored here
#
# Texts: "written" is the reference's (tests/fixtures/reference), prompts and what the model itself makes of them with it;
# "told" is TOLD (4) stories of 900 tokens that the f32 model tells at temperature 1, so that its own perplexity is the
# entropy of what it means and every ratio is what rounding adds.
set -eu
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
    for text in written told; do
        case $text in written) base=$base_written ;; told) base=$base_told ;; esac
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

texts() { # of the model: the texts' folders, and what the source's perplexity is
    rm -rf "$work/written" "$work/told"
    mkdir "$work/written" "$work/told"
    jq -r '.scores[].text' "tests/fixtures/reference/$model.json" >"$work/written/text"
    jq -r '.cases[] | .prompt + .greedy_text' "tests/fixtures/reference/$model.json" >"$work/written/more"
    bin/bmc-convert "$models/$model" --type f32 -o "$work/f32.bmc"
    for seed in $(seq "$told"); do
        bin/bmc-gen -q -m "$work/f32.bmc" --precision f32 -p 'Once upon a time' --echo -n 900 --temp 1 --top-k 0 --top-p 1 --min-p 0 \
            --ignore-eos --seed "$seed" >"$work/told/$seed"
    done
    cat "$work"/told/* >"$work/calibration" # the weights of importance are those of the text that is told
    bin/bmc-gen -q -m "$work/f32.bmc" --score --summary -f "$work/calibration" --save-importance "$work/importance" >/dev/null
    base_written=$(perplexity "$work/f32.bmc" written f32) base_told=$(perplexity "$work/f32.bmc" told f32)
}

for model in ${MODELS:-grimm andersen}; do
    texts
    echo
    echo "$model: perplexity $(ratio "$base_written" 1) written, $(ratio "$base_told" 1) told; over that:"
    echo
    echo '| type | MiB | written, f32 | written, int8 | told, f32 | told, int8 |'
    echo '| --- | --- | --- | --- | --- | --- |'
    made bf16 --type bf16
    for type in q8 q8c q4 q4s; do
        made $type --type $type
    done
    for type in q4 q4s; do
        made "$type, --importance" --type $type --importance "$work/importance"
        made "$type, --keep-head" --type $type --keep-head
    done
    [ -n "${PYTHON:-}" ] && [ $model = grimm ] || continue
    "$PYTHON" tests/bench/make_q4_0.py "$models/$model" "$work/q4_0.gguf"
    bin/bmc-convert "$work/q4_0.gguf" -o "$work/q4_0.bmc"
    row "Q4_0 of gguf" "$work/q4_0.bmc"
done
