#!/bin/sh
# Peak memory of KV caches with 25, 50 and 100 % of the context in use, over that of upfront with all of it. Sequences are
# decoded one token at a time. Nothing is timed.
#
#   MODEL  (the default one)   CONTEXT  tokens (512)   SEQUENCES  (1 4)
set -eu
. "$(dirname "$0")/lib.sh" >/dev/null

context=${CONTEXT:-512}
stats=$(mktemp)
trap 'rm -f "$stats"' EXIT

# Bytes with about so many tokens in each sequence.
peak() { # TOKENS SEQUENCES POLICY
    jq -nc --argjson n $(($1 - 8)) --argjson b "$2" 'range($b) | {prompt: "Once upon a time", n: $n}' |
        bin/bmc-gen ${MODEL:+-m "$MODEL"} -q --jsonl --ignore-eos --no-spec -c "$context" -np "$2" --kv "$3" --stats "$stats" >/dev/null
    jq .kv_resident_bytes "$stats"
}

for sequences in ${SEQUENCES:-1 4}; do
    whole=$(peak "$context" "$sequences" upfront)
    echo "N = $context, B = $sequences, upfront: $whole bytes"
    echo
    echo "| policy | 25 % | 50 % | 100 % |"
    echo "| --- | --- | --- | --- |"
    for kv in upfront iterative bmc:T=8 bmc:T=8,grow=now reserve paged segment headwise "shift:S=$((context / 2))"; do
        row="| $kv |"
        for part in 4 2 1; do
            row="$row $(divide "$(peak $((context / part)) "$sequences" "$kv")" "$whole") |"
        done
        echo "$row"
    done
    echo
done
