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

"$entry"
