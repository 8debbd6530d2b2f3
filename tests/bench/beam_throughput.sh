#!/bin/sh
# Segment paper, figure 9 and eq. 4: generated tokens per second at the largest batch that fits a
# cache memory budget, beam search with W = 4, the standard way (a cache per beam, reallocated for
# every token, copied when beams are reordered) against segment. Random weights of TYPE (bf16), an
# f16 cache.
#
# MEMORY_MB (4096) is the budget of the whole model; LAYERS (2) of SHAPE are run with a
# proportional share, so that batches are those of the whole. PROMPT (1024) and ANSWER (128) are
# tokens. REQUESTS: by default as many as segment admits at a time.
set -eu
. "$(dirname "$0")/lib.sh"

prompt=${PROMPT:-1024} answer=${ANSWER:-128} layers=${LAYERS:-2} beams=${BEAMS:-4} type=${TYPE:-bf16}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-throughput.XXXXXX")
trap 'rm -rf "$work"' EXIT
all=$(sed -n 's/^layers  *//p' "models.d/shapes/$shape.shape")
sed "s/^layers .*/layers $layers/" "models.d/shapes/$shape.shape" >"$work/part.shape"
bin/bmc-convert --synth "$work/part.shape" --type "$type" -o "$work/model.bmc"
budget=$((${MEMORY_MB:-4096} * 1048576 / all * layers))

fits=$(bin/bmc-prof memory --shape "$work/part.shape" -p "$prompt" -n "$answer" --beams "$beams" --cache-type f16 --kv segment \
    --memory $budget --megabytes 1 --format json | jq '.rows[] | select(.policy == "segment").fits')
id_requests "${REQUESTS:-$fits}" "$prompt" "$answer" >"$work/in"

# Tokens of results a second, eq. 4; how many were in flight, and the bytes of the cache, go to a file.
throughput() { # POLICY
    bin/bmc-gen -q -m "$work/model.bmc" -t "$threads" -c $((prompt + answer)) --ignore-eos --jsonl --beams "$beams" --cache-type f16 \
        --kv "$1" --memory $budget --n-best 1 --stats "$work/stats" <"$work/in" >"$work/out"
    jq -r --arg kv "$1" '"\($kv): \(.sequences_at_once) requests at a time, \(.kv_resident_bytes) of \(.memory_bytes) bytes"' "$work/stats" >"$work/$1.said"
    jq --argjson tokens "$(jq -s 'map(.ids | length) | add' "$work/out")" '$tokens * 1000 / (.prefill_ms + .decode_ms + .sample_ms)' "$work/stats"
}

for round in $(seq "$rounds"); do
    segment=$(throughput segment) standard=$(throughput iterative)
    echo "$segment $standard" >>"$work/pairs"
done
cat "$work/iterative.said" "$work/segment.said"
awk '{ print $1 }' "$work/pairs" | median | sed 's/^/tokens a second, segment: /'
awk '{ print $2 }' "$work/pairs" | median | sed 's/^/tokens a second, standard: /'
verdict "$(awk '{ print $1 / $2 }' "$work/pairs" | median)" '>=' 2 "throughput under a budget, $prompt + $answer tokens, $beams beams, segment over standard"
