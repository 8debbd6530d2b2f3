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


# score MODEL TYPE: perplexity of each text but the first, and of all of them, as JSON
score() {
    for text in "$work"/text.[2-5]; do
        bin/bmc-gen -q -m "$1" --precision f32 --cache-type "$2" --score --summary --format json -f "$text"
    done | jq -sc '{texts: map(-.mean_logprob | exp), all: ((map(.mean_logprob * .tokens) | add) / (map(.tokens) | add) | -. | exp)}'
}

# Shared quantisation parameters: perplexity, each text a sample.
shared() {
    model=models.d/grimm.bmc
    for seed in 1 2 3 4 5; do
        bin/bmc-gen -q -m $model -p 'Once upon a time' -n 400 --temp 1 --top-k 0 --top-p 1 --min-p 0 --ignore-eos --seed $seed --profile none >"$work/text.$seed"
    done
    bin/bmc-prof cache-scales -m $model --precision f32 -f "$work/text.1" -o "$work/scales" >/dev/null
    for type in f32 q8 q8:scales q4 q4:scales; do
        score $model "$(case $type in *:*) echo "$type=$work/scales" ;; *) echo $type ;; esac)" | jq -c --arg type $type '{($type): .}'
    done | jq -sc add >"$work/ours"
    # The same in PyTorch, if it is there
    echo '{}' >"$work/torch"
    if ! no_transformers; then
        for seed in 1 2 3 4 5; do
            bin/bmc-gen -q -m $model --score --format json -f "$work/text.$seed" | jq -r '[.rows[].id] | map(tostring) | join(" ")' >"$work/ids.$seed"
        done
        "$PYTHON" tests/bench/shared_scales.py models.d/grimm "$work"/ids.* >"$work/torch" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    fi
    jq -c --slurpfile torch "$work/torch" '$torch[0] as $t |
        def row($name; $eight; $four; $way): [$name, .[$eight].all, .[$four].all, $t["8 " + $way] // "", $t["4 " + $way] // ""];
        {kind: "table", title: "Perplexity of grimm, four texts", head: ["scales of K and V", "8 bits", "4 bits", "8 bits, PyTorch", "4 bits, PyTorch"],
         rows: [["none: f32", .f32.all, .f32.all, $t.exact // "", $t.exact // ""], row("per entry"; "q8"; "q4"; "entry"), row("shared by all entries"; "q8:scales"; "q4:scales"; "shared")]}' "$work/ours"
    direction "perplexity with 8 bits, shared scales over f32" "$(jq -c '[."q8:scales".texts, .f32.texts] | transpose | map(.[0] / .[1])' "$work/ours")" 0 "8 bits"
    direction "perplexity with 4 bits, shared scales over scales per entry" "$(jq -c '[."q4:scales".texts, .q4.texts] | transpose | map(.[0] / .[1])' "$work/ours")" 0 "4 bits"
    note "--cache-type q8 and q4 against q8:scales=FILE and q4:scales=FILE; scales of each layer, head and K or V from one text (bmc-prof cache-scales), perplexity of four others; the note has no measurements."
}

"$entry"
