#!/bin/sh
# Segment paper, figure 6: attention of 4 beams over a shared prompt, one layer of Llama-2-13B's
# shape (40 heads of 128), by batch size, under segment and with separate entries per beam:
# distinct entries per second, as a share of the read rate. Then the worst case: beams reordered at
# every token, with answers of 32, 128 and 512 tokens, against beams in fixed order; with random
# parents, and in two families without a common ancestor after the prompt. BATCHES (1 2 4 8 16 32),
# PROMPT (1024), ANSWER (32), ANSWERS (32 128 512), BEAMS (4), KV_TYPES (f16).
set -eu
SHAPE=llama-2-13b
. "$(dirname "$0")/lib.sh"

run=$(driver attention)
for type in ${KV_TYPES:-f16}; do
    for batch in ${BATCHES:-1 2 4 8 16 32}; do
        for policy in segment upfront; do
            "$run" $policy 40 40 128 1 "$batch" "${BEAMS:-4}" "${PROMPT:-1024}" "${ANSWER:-32}" "$type" "$threads" "$rounds"
        done
    done
    for swaps in any families; do
        for answer in ${ANSWERS:-32 128 512}; do
            out=$("$run" segment 40 40 128 1 4 "${BEAMS:-4}" "${PROMPT:-1024}" "$answer" "$type" "$threads" "$rounds" none segment $swaps)
            echo "$out"
            time=${out##* }
            copied=$(echo "$out" | sed -n "s/^segment, swaps $swaps:.* \([0-9.]*\) rows copied per token.*/\1/p")
            verdict "$(divide 1 "$time")" '>=' 0.9 "attention of 4 x 4 beams, $answer answer tokens, cache $type, swaps $swaps: rate over that without swaps"
            verdict "$copied" '<=' 1 "entries copied per token"
        done
    done
done
