#!/bin/sh
# The segment paper's figure 6: attention of 4 beams over prompts in common, one layer of Llama-2-13B's shape (40 heads of 128), by
# batch, under segment and with rows of its own for each beam: what must be read once, over the time, as a share of the read rate.
# BATCHES (1 2 4 8 16 32), PROMPT (1024), ANSWER (32), BEAMS (4), KV_TYPE (f16).
set -eu
SHAPE=llama-2-13b
. "$(dirname "$0")/lib.sh"

run=$(driver attention)
for batch in ${BATCHES:-1 2 4 8 16 32}; do
    for policy in segment upfront; do
        "$run" $policy 40 40 128 1 "$batch" "${BEAMS:-4}" "${PROMPT:-1024}" "${ANSWER:-32}" "${KV_TYPE:-f16}" "$threads" "$rounds"
    done
done
