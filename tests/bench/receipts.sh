#!/bin/sh
# Receipts made on one kernel set and verified on another, forged ones, and what they cost.
#
#   MODELS   ("models.d/grimm.bmc")
#   N        receipts of each model, precision and cache type (1000), of up to TOKENS (32) tokens
#   MADE VERIFIED   kernel sets (vnni, avx2)
#   WAYS     precision and cache type ("int8/f32 f32/f32")
#   FORGED   receipts of which each member is changed (20)
#   ROUNDS   of generation with and without receipts, in turns (7)
#   BMC_BIN, THREADS
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
bin=${BMC_BIN:-bin} threads=${THREADS:-$(nproc)} n=${N:-1000} tokens=${TOKENS:-32} made=${MADE:-vnni} verified=${VERIFIED:-avx2}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-receipts.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
make -s build/gcc/tests/forge_receipt
bad=0

# Prompts of 1 to 40 ids, under every sampler, with stop strings, constraints and several answers.
jq -nc --argjson n "$n" --argjson tokens "$tokens" 'range($n) as $i |
    {ids: [range(1 + $i * 7 % 40) | 30 + (. * 7 + $i * 31) % 2000], n: (1 + $i * 5 % $tokens), seed: $i} +
    [{}, {temp: 0.8}, {temp: 1, top_k: 0, top_p: 1, min_p: 0}, {temp: 0.7, mirostat: 2}, {temp: 1, repeat_penalty: 1.3, presence_penalty: 0.5},
     {temp: 1, dry_multiplier: 0.8}, {temp: 0.9, xtc_probability: 0.5}, {temp: 1, typical_p: 0.8}, {temp: 1, dynatemp_range: 0.5},
     {temp: 1, regex: "[A-Za-z ,.]+"}, {temp: 1, stop: ["e"]}, {temp: 1, json_schema: {type: "object"}}, {temp: 1.5, logit_bias: {"50": 2}},
     {temp: 1, samplers: ["min_p", "temperature"]}, {temp: 1, ignore_eos: true}][$i % 15]' >"$work/requests"

now() { date +%s.%N; }
seconds() { echo "$1 $2" | awk '{ printf "%.1f", $2 - $1 }'; }
equal() { grep -c ': equal, ' "$1" || true; }

verify() { # MODEL FILE OPTION..: the verdicts
    model=$1 file=$2
    shift 2
    "$bin/bmc-gen" -q -m "$model" --verify-receipt "$file" -t "$threads" "$@" 2>/dev/null || true
}

for model in ${MODELS:-models.d/grimm.bmc}; do
    for way in ${WAYS:-int8/f32 f32/f32}; do
        label="$(basename "$model" .bmc) $way"
        start=$(now)
        "$bin/bmc-gen" -q -m "$model" --jsonl -f "$work/requests" -c 256 --isa "$made" --precision "${way%/*}" --cache-type "${way#*/}" -t "$threads" --receipt "$work/true" >/dev/null
        middle=$(now)
        verify "$model" "$work/true" --isa "$verified" --chunk 200 --kv paged >"$work/verdicts"
        end=$(now)
        echo "$label: $(wc -l <"$work/true") receipts made on $made in $(seconds "$start" "$middle") s, $(equal "$work/verdicts") equal on $verified in $(seconds "$middle" "$end") s"
        [ "$(equal "$work/verdicts")" -eq "$(wc -l <"$work/true")" ] || bad=1
    done

    # one character of each value, with the chain as it was
    head -n "${FORGED:-20}" "$work/true" >"$work/some"
    jq -c '. as $r | [paths(scalars)] | .[] as $p | $r | setpath($p; getpath($p) |
        if type == "number" then . + 1 elif type == "boolean" then not elif . == "" then "x"
        elif .[-1:] == "0" then .[:-1] + "1" else .[:-1] + "0" end)' "$work/some" >"$work/changed"
    cat "$work/some" "$work/changed" >"$work/forged" # the first one says which settings the session has
    verify "$model" "$work/forged" >"$work/verdicts"
    found=$(($(wc -l <"$work/verdicts") - $(equal "$work/verdicts")))
    echo "$(basename "$model" .bmc): $found of $(wc -l <"$work/changed") changed members found"
    [ "$found" -eq "$(wc -l <"$work/changed")" ] || bad=1

    # the chain computed again over another token, prompt, seed or parameter
    : >"$work/forged"
    while read -r line; do
        printf '%s\n' "$line" >"$work/one"
        answer=$(jq '.tokens | length' "$work/one")
        for at in 0 $((answer / 2)) $((answer - 1)); do
            printf '%s\n' "$line" | build/gcc/tests/forge_receipt "$model" "tokens.$at" "$(jq "(.tokens[$at] + 1) % 2000" "$work/one")" >>"$work/forged"
        done
        printf '%s\n' "$line" | build/gcc/tests/forge_receipt "$model" finish '"repetition"' >>"$work/forged"
        printf '%s\n' "$line" | build/gcc/tests/forge_receipt "$model" text '"another"' >>"$work/forged"
    done <"$work/some"
    verify "$model" "$work/forged" >"$work/verdicts"
    echo "$(basename "$model" .bmc): $(grep -vc ': equal, ' "$work/verdicts") of $(wc -l <"$work/forged") answers found that were changed with their chain computed again"
    [ "$(equal "$work/verdicts")" -eq 0 ] || bad=1

    # other requests for the same answer: true are those that give it
    : >"$work/forged"
    i=0
    while read -r line; do
        for change in 'seed 77' 'request.temp 1.7' 'request.top_p 0.3' 'request.ids [31]' 'request.n 2'; do
            printf '%s\n' "$line" | build/gcc/tests/forge_receipt "$model" "${change% *}" "${change#* }" stream $i >>"$work/forged" # its line below
            i=$((i + 1))
        done
    done <"$work/some"
    jq -c '.request + {seed: .seed}' "$work/forged" >"$work/again"
    way=$(jq -r '"--precision \(.precision) --cache-type \(.cache_type) -c \(.context)"' "$work/some" | head -n 1)
    # shellcheck disable=SC2086 # words
    "$bin/bmc-gen" -q -m "$model" --jsonl -f "$work/again" $way >"$work/results" 2>/dev/null || true
    jq -c .tokens "$work/forged" >"$work/claimed"
    jq -c .ids "$work/results" | paste -d ' ' - "$work/claimed" | awk '{ print $1 == $2 }' >"$work/true_by_generation"
    verify "$model" "$work/forged" -np 1 | awk '{ print / equal, / ? 1 : 0 }' >"$work/true_by_verification"
    cmp -s "$work/true_by_generation" "$work/true_by_verification" || bad=1
    echo "$(basename "$model" .bmc): $(grep -c 0 "$work/true_by_verification") of $(wc -l <"$work/forged") requests found that do not give the answer; the others do: $(cmp -s "$work/true_by_generation" "$work/true_by_verification" && echo yes || echo NO)"

    # time per step and batch
    for batch in 1 8; do
        jq -nc --argjson b "$batch" 'range($b) | {ids: [1, 50 + .], n: 100, ignore_eos: true}' >"$work/batch"
        for _ in $(seq "${ROUNDS:-7}"); do
            for receipt in "" "--receipt $work/cost"; do
                # shellcheck disable=SC2086 # words
                "$bin/bmc-gen" -q -m "$model" --jsonl -np "$batch" -f "$work/batch" -c 256 -t "$threads" --stats "$work/stats" $receipt >/dev/null
                jq -r --arg r "${receipt:+with}" '"\($r) \(.decode_ms) \(.sample_ms)"' "$work/stats"
            done
        done | awk -v label="$(basename "$model" .bmc)" -v batch="$batch" '
            { sample[NF == 3] += $NF; decode += $(NF - 1) / 2; rounds += 0.5 }
            END { printf "%s: batch %d: receipts take %.3f ms per step of %.3f ms, %.1f %%\n", label, batch, (sample[1] - sample[0]) / rounds / 100, decode / rounds / 100, 100 * (sample[1] - sample[0]) / decode }'
    done
done
exit $bad
