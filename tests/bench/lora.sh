#!/bin/sh
# Speed of a batch with LoRA adapters: none, one for all requests, and one of four for each request, in turn or in blocks.
#   MODEL=tinyllama-q8_0.bmc ADAPTERS=DIR [BATCH=8] [TOKENS=24] [ROUNDS=3] sh tests/bench/lora.sh
# DIR has adapter0 .. adapter3: make_bench_lora.py. Prints decoded tokens per second of each round.
set -eu
export BMC_CONFIG=none # no defaults of this account
gen=${BMC_BIN:-$(dirname "$0")/../../bin}/bmc-gen
batch=${BATCH:-8} tokens=${TOKENS:-24}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
requests() { # LORA: an expression of the number i
    jq -nc "range($batch) as \$i | {id: \$i, prompt_ids: [1, (\$i + 300), 450], n: $tokens, ignore_eos: true, lora: ($1)}"
}
requests '[]' >"$dir/none"
requests '[0]' >"$dir/same"
requests '[$i % 4]' >"$dir/mixed"
requests "[(\$i * 4 / $batch) | floor]" >"$dir/blocks"
for a in 0 1 2 3; do set -- "$@" --lora "$ADAPTERS/adapter$a"; done
i=0
while [ "$i" -lt "${ROUNDS:-3}" ]; do
    i=$((i + 1))
    for way in none same blocks mixed; do
        "$gen" -q -m "$MODEL" --jsonl -np "$batch" "$@" --stats "$dir/stats" <"$dir/$way" >/dev/null
        printf '%s %s\n' "$way" "$(jq '.decode_tokens / .decode_ms * 1000' "$dir/stats")"
    done
done
