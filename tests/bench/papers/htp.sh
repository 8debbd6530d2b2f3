#!/bin/sh
# Entries of the HTP note: sh tests/bench/papers/htp.sh ENTRY.
set -eu
. "$(dirname "$0")/lib.sh"

# Sizes of the rolling window: of the note, and of a real cache.
buffer() { # OPTION PAPER
    prof rows policies --shape llama-2-7b --layers 1 -N 2048 --kv "shift$1" --cache-type bf16 -r 1 --warmup 0 --profile none
    counted "bytes of 32 layers over the note's $2" "$(jq --argjson paper "$2" '.rows[0].kv_peak_bytes * 32 / $paper' "$work/rows")" 1 1 bytes
    note "Llama-7B, S = 2048, 16 bits. The real cache has whole tiles of 16 entries."
}
buffer2() { buffer "" 2146435072; }
buffer15() { buffer :slack=0.5 1609826304; }


# Shared quantisation parameters: perplexity, each text a sample.
shared() {
    ! no_transformers || skip "PYTHON=FILE: needs an interpreter with torch and transformers"
    for seed in 1 2 3 4 5; do
        bin/bmc-gen -q -m models.d/grimm.bmc -p 'Once upon a time' --ids -n 400 --temp 1 --top-k 0 --top-p 1 --min-p 0 --ignore-eos --seed $seed --profile none >"$work/text.$seed"
    done
    "$PYTHON" tests/bench/shared_scales.py models.d/grimm "$work"/text.* >"$work/result" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    jq -c '{kind: "table", title: "Perplexity of grimm", head: ["scales of K and V", "8 bits", "4 bits", "saturated, 8 bits"], rows: [["none: f32", .exact, .exact, ""], ["per entry and head", ."8 entry", ."4 entry", ""], ["shared by all entries", ."8 shared", ."4 shared", ."8 shared saturated"]]}' "$work/result"
    direction "perplexity with 8 bits, shared scales over f32" "$(jq -c '[."8 shared texts", ."exact texts"] | transpose | map(.[0] / .[1])' "$work/result")" 0 "8 bits"
    direction "perplexity with 4 bits, shared scales over a scale per entry" "$(jq -c '[."4 shared texts", ."4 entry texts"] | transpose | map(.[0] / .[1])' "$work/result")" 0 "4 bits"
    note "Scales of each layer, head and K or V from one text, perplexity of four others; the note has no measurements. In PyTorch: --cache-type has a scale per entry and head."
}

"$entry"
