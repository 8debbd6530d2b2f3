#!/bin/sh
# Against llama.cpp and programs like it, built for the same machine: the same shape, bf16, threads, flash attention
# on, one run of each in turn. Nothing is fetched or built here:
#
#   PEER_MODEL     a GGUF file of SHAPE in bf16
#   PEERS          folders that hold llama-bench and llama-batched-bench
#   PEER_OPTIONS   more options for both, e.g. "-rtr 1"
set -eu
. "$(dirname "$0")/lib.sh"

[ -n "${PEERS:-}" ] && [ -n "${PEER_MODEL:-}" ] || { echo "skipped: no peer given (PEERS, PEER_MODEL)"; exit 0; }
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-peers.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Each prints its tok/s of one test: decode-1, decode-8, decode-32 (at a context of 128) or prefill.
ours() {
    case $1 in
    prefill) bench -b 1 -p 512 -n 0 --precision bf16 -r 1 ;;
    decode-1) bench -b 1 -p 0 -n 32 -r 1 ;;
    *) bench -b "${1#*-}" -p 0 -n 16 -d 120 -r 1 ;;
    esac | jq .tok_s
}
peer() { # FOLDER TEST
    # shellcheck disable=SC2086 # options
    case $2 in
    prefill) "$1/llama-bench" -m "$PEER_MODEL" -t "$threads" -fa 1 -p 512 -n 0 -r 1 -o json ${PEER_OPTIONS:-} 2>/dev/null | jq '.[0].avg_ts' ;;
    decode-1) "$1/llama-bench" -m "$PEER_MODEL" -t "$threads" -fa 1 -p 0 -n 32 -r 1 -o json ${PEER_OPTIONS:-} 2>/dev/null | jq '.[0].avg_ts' ;;
    *) "$1/llama-batched-bench" -m "$PEER_MODEL" -t "$threads" -tb "$threads" -fa ${PEER_FA:-} -c 8192 -b 2048 -ub 512 -npp 120 -ntg 16 \
        -npl "${2#*-}" ${PEER_OPTIONS:-} 2>/dev/null | awk -F '|' '$2 + 0 == 120 { print $9 + 0 }' ;;
    esac
}

number=0
for folder in $PEERS; do
    number=$((number + 1))
    echo "peer $number: $("$folder/llama-bench" -m "$PEER_MODEL" -p 1 -n 0 -r 1 -o json 2>/dev/null | jq -r '.[0] | "build \(.build_commit) \(.build_number)"') ($folder)"
done
for test in ${TESTS:-decode-1 decode-8 decode-32 prefill}; do
    for round in $(seq "$rounds"); do
        ours "$test" >>"$work/$test.0"
        number=0
        for folder in $PEERS; do
            number=$((number + 1))
            peer "$folder" "$test" >>"$work/$test.$number"
        done
    done
    own=$(median <"$work/$test.0")
    number=0
    for folder in $PEERS; do
        number=$((number + 1))
        other=$(median <"$work/$test.$number")
        [ -n "$other" ] || { echo "$test: peer $number gave no figure"; continue; }
        echo "$test: ours $own tok/s, peer $number $other tok/s, ratio $(divide "$own" "$other")"
    done
done
