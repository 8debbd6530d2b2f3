#!/bin/sh
# Segment paper, figures 7 and 8: time to first token (TTFT) and per output token (TPOT) by prompt
# length and beam width W, the standard way (the prompt is computed W times; caches are reallocated
# for every token and copied when beams are reordered) against segment. Random weights of TYPE
# (bf16) in the models' real widths: with these, beams are reordered at nearly every token, and the
# last column counts entries copied per token in both. Medians of ROUNDS alternating rounds.
#
#   figure 7:  SHAPES=llama-2-13b PROMPTS='32 128 512 1024 2048 4096' sh
#              tests/bench/beam_latency.sh
#   figure 8:  SHAPES='gpt-j-6b llama-2-13b opt-30b' PROMPTS=1024 BEAMS='1 4' sh
#              tests/bench/beam_latency.sh
#
# LAYERS (1): layers of each shape. ANSWERS (32 128 512): generated tokens.
set -eu
SHAPE=${SHAPES:-llama-2-13b}
. "$(dirname "$0")/lib.sh"

answers=${ANSWERS:-32 128 512} layers=${LAYERS:-1} type=${TYPE:-bf16}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-beams.XXXXXX")
trap 'rm -rf "$work"' EXIT

# field PROGRAM OPTION..: of the statistics of a run over $work/in.
field() {
    program=$1
    shift
    bin/bmc-gen -q -m "$work/model.bmc" -t "$threads" -c 0 --ignore-eos --jsonl --stats "$work/stats" "$@" <"$work/in" >/dev/null
    jq "$program" "$work/stats"
}

first_token() { # PROMPT W
    id_requests "$2" "$1" 1 0 >"$work/in"
    field .prefill_ms -np 1 --prefix-cache-mb 0 --kv iterative >>"$work/standard.first"
    id_requests 1 "$1" 1 >"$work/in"
    field .prefill_ms --beams "$2" --kv segment >>"$work/segment.first"
}

next_token() { # PROMPT W
    id_requests 1 "$1" "$answer" >"$work/in"
    for kv in iterative segment; do
        name=$([ $kv = iterative ] && echo standard || echo segment)
        field '(.decode_ms + .sample_ms) / .decode_steps' --beams "$2" --kv $kv >>"$work/$name.next"
        jq '.kv_copied_rows / .decode_steps' "$work/stats" >"$work/$name.copied"
    done
}

row() { # MODEL PROMPT W, answers of $answer tokens
    rm -f "$work"/standard.* "$work"/segment.*
    for round in $(seq "$rounds"); do
        first_token "$2" "$3"
        next_token "$2" "$3"
    done
    for token in first next; do
        paste "$work/standard.$token" "$work/segment.$token" | awk '{ print $1 / $2 }' | median >"$work/ratio.$token"
        for way in standard segment; do median <"$work/$way.$token" >"$work/$way.$token.ms"; done
    done
    echo "| $1 | $2 + $answer | $3 | $(cat "$work/standard.first.ms" "$work/segment.first.ms" "$work/ratio.first" \
        "$work/standard.next.ms" "$work/segment.next.ms" "$work/ratio.next" | paste -sd '|' | sed 's/|/ | /g') | $(printf '%.1f, %.1f' "$(cat "$work/standard.copied")" "$(cat "$work/segment.copied")") |"
}

echo "$layers of the layers, $type; ms of the first token, standard, segment and ratio; of the next token, the same"
echo "| model | prompt | beams | TTFT, standard | segment | speedup | TPOT, standard | segment | speedup | copied entries |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for model in $SHAPE; do
    sed "s/^layers .*/layers $layers/; s/^context .*/context 8192/" "models.d/shapes/$model.shape" >"$work/part.shape"
    bin/bmc-convert --synth "$work/part.shape" --type "$type" -o "$work/model.bmc"
    for prompt in ${PROMPTS:-32 128 512 1024 2048 4096}; do
        for beams in ${BEAMS:-4}; do
            for answer in $answers; do row "$model" "$prompt" "$beams"; done
        done
    done
    rm -f "$work/model.bmc"
done
