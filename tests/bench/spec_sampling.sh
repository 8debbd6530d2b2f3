#!/bin/sh
# What sampling pays for texts that do not depend on drafts: acceptance and mean accepted length of --spec-sampling coupled beside
# rejection, of draft models and chains and trees of several sizes, over the same requests; the mean of SEEDS runs, since texts differ.
#
#   sh tests/bench/spec_sampling.sh [OPTION ...]      options of bmc-spec, as --top-k 0
#
# MODEL (grimm), DRAFTS, SHAPES (a line of options each), REQUESTS (a file for --jsonl; default: 12 prompts of 100 tokens), TEMP (0.7), NP (12)
# and SEEDS ("1 2 3") configure the run. A requantised draft: bmc-convert MODEL.gguf --type q4_0 -o DRAFT. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
model=${MODEL:-models.d/grimm.bmc} drafts=${DRAFTS:-models.d/grimm-draft.bmc models.d/grimm-eagle.bmc}
shapes=${SHAPES:--k 1
-k 4
-k 8
--tree 16}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ "${REQUESTS:-}" ]; then cp "$REQUESTS" "$scratch/in"; else
    jq -nc 'range(12) | {max_tokens: 100, prompt: ("Once upon a time there was " + ["a king", "a queen", "a poor woodcutter", "a fox"][. % 4] + [" who", ", and", " in the"][. % 3])}' >"$scratch/in"
fi

# run SAMPLING DRAFT SHAPE OPTION ..: mean accepted length, share of accepted drafts, and that at the first position
run() {
    how=$1 draft=$2 shape=$3
    shift 3
    for seed in ${SEEDS:-1 2 3}; do
        # shellcheck disable=SC2086 # words
        bin/bmc-spec -q -m "$model" -d "$draft" --jsonl -f "$scratch/in" -np "${NP:-12}" --temp "${TEMP:-0.7}" --seed "$seed" --ignore-eos --always $shape \
            --spec-sampling "$how" --stats "$scratch/stats" "$@" >"$scratch/out"
        cat "$scratch/stats"
    done | jq -sr '[(map(.decode_tokens) | add) / (map(.decode_tokens / .tokens_per_step) | add), (map(.accepted) | add) / (map(.drafted) | add), (map(.acceptance_by_position[0]) | add / length)] |
        map(. * 1000 | round / 1000 | tostring) | join(" ")'
}

echo "| draft | shape | mean accepted length: coupled | rejection | ratio | acceptance: coupled | rejection | first draft token: coupled | rejection |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for draft in $drafts; do
    echo "$shapes" | while read -r shape; do
        echo "$(run coupled "$draft" "$shape" "$@")" "$(run rejection "$draft" "$shape" "$@")" |
            awk -v draft="$(basename "$draft" .bmc)" -v shape="$shape" '{ printf "| %s | %s | %s | %s | %.3f | %s | %s | %s | %s |\n", draft, shape, $1, $4, $1 / $4, $2, $5, $3, $6 }'
    done
done
