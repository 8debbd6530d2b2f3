#!/bin/sh
# Longest prompt by method whose process stays below a peak of resident memory (weights, cache, activations, programs): the form of
# tables 3 to 5 of the HeadInfer paper, measured, with the shape of SmolLM2-135M, q8_0 weights and a context of a million.
#
#   LIMITS_MB  ("200 225 250")
#   METHODS    POLICY/CACHE TYPE, headwise with the number of heads per group ("upfront/bf16 upfront/q4 headwise:3/bf16 headwise:1/bf16")
#   LARGEST    entries that are tried at most, 23 KB each in DIR with head-wise offload (65536)
#   DIR        folder of the file (/var/tmp)
#
# A length fits if the last 64 tokens of the prompt are computed behind entries for the others. Lengths are found to 3 %, from 128 on.
set -eu
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-limit.XXXXXX") dir=${DIR:-/var/tmp} largest=${LARGEST:-65536}
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
printf 'family llama\nlayers 30\nhidden 576\nheads 9\nkv_heads 3\nffn 1536\nvocab 49152\ncontext 1100000\n' >"$work/smol.shape"
head=$((2 * 64 * 2)) # bytes of K and V of a head in bf16

# fits LENGTH: true if the process stays within the limit
fits() {
    kv=$policy
    case $policy in headwise:*) kv="headwise:dir=$dir,group=${policy#*:},ram=$((2 * ${policy#*:} * ($1 + 600) * head + (2 << 20)))" ;; esac
    bin/bmc-prof bench --shape "$work/smol.shape" --type q8_0 -np 1 -d $(($1 - 64)) -p 64 -n 0 -N "$1" --kv "$kv" --cache-type "$type" -r 1 --warmup 0 \
        --megabytes 1 --profile none -t "$threads" --format json >"$work/rows" 2>"$work/error" || { cat "$work/error" >&2; exit 1; }
    jq -e --argjson limit "$limit" '.rows[0].peak_resident_bytes <= $limit * 1e6' "$work/rows" >/dev/null
}

echo "| limit, MB |$(for method in ${METHODS:-upfront/bf16 upfront/q4 headwise:3/bf16 headwise:1/bf16}; do printf ' %s |' "$method"; done)"
echo "| --- |$(for method in ${METHODS:-upfront/bf16 upfront/q4 headwise:3/bf16 headwise:1/bf16}; do printf ' --- |'; done)"
for limit in ${LIMITS_MB:-200 225 250}; do
    printf '| %s |' "$limit"
    for method in ${METHODS:-upfront/bf16 upfront/q4 headwise:3/bf16 headwise:1/bf16}; do
        policy=${method%/*} type=${method#*/} low=128 high=1024
        while [ "$high" -le "$largest" ] && fits "$high"; do low=$high high=$((high * 2)); done
        if [ "$high" -gt "$largest" ]; then printf ' %s or more |' "$low" && continue; fi
        while [ $((high - low)) -gt $((high / 32)) ] && [ $((high - low)) -gt 64 ]; do
            middle=$(((low + high) / 2))
            if fits "$middle"; then low=$middle; else high=$middle; fi
        done
        printf ' %s |' "$low"
    done
    echo
done
