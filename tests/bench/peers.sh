#!/bin/sh
# Against llama.cpp and its forks, built for the same machine, on the same GGUF files: same
# threads, flash attention on, alternating runs; medians, and the median of the rounds' ratios.
# llama-batched-bench gives all sequences the same tokens, and so the same experts: to measure
# mixtures of experts, let it call common_batch_add(batch, std::rand() % vocabulary, ..).
# Prints Markdown. Nothing is downloaded or built here:
#
#   PEERS             folders with llama-bench and llama-batched-bench
#   PEER_MODELS       GGUF files; make_bench_gguf.py makes files of TinyLlama-1.1B's shape with
#                     random weights
#   PEER_BENCH_n, PEER_BATCHED_n
#                     more options for the two programs of peer n (from 1), e.g. PEER_BENCH_2="-rtr
#                     1" PEER_BATCHED_2="-rtr"
#   CONVERTED         folder with NAME.bmc of the files NAME.gguf, if they are converted already
#   PEER_FA_n         a value for -fa of llama-batched-bench, if that of peer n takes one, e.g.
#                     PEER_FA_2=on
#   CACHES, PEER_CACHES
#                     cache types, of which each program's fastest counts in the test of depth (f16 q8 q4;
#                     f16 q8_0 q4_0); other tests
#                     use f16 caches
#   DEPTH             context depth of that test (4096)
#   TESTS             of decode-1 decode-8 decode-32 (at context depth 128, separate prompts)
#                     prefill depth
set -eu
. "$(dirname "$0")/lib.sh"

models=${PEER_MODELS:-${PEER_MODEL:-}}
[ -n "${PEERS:-}" ] && [ -n "$models" ] || { echo "skipped: no peer given (PEERS, PEER_MODELS)"; exit 0; }
depth=${DEPTH:-4096} caches=${CACHES:-f16 q8 q4} peer_caches=${PEER_CACHES:-f16 q8_0 q4_0}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-peers.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Each prints its tok/s of one test with a cache of one type.
ours() { # TEST CACHE
    case $1 in
    prefill) set -- -np 1 -p 512 -n 0 --cache-type "$2" $prefill_options ;;
    depth) set -- -np 1 -p 0 -n 16 -d "$depth" --cache-type "$2" ;;
    *) set -- -np "${1#*-}" -p 0 -n 16 -d 120 --cache-type "$2" ;;
    esac
    # An unmeasured round first: the peers read all weights with the prompt.
    bin/bmc-prof bench -m "$work/model.bmc" -t "$threads" --warmup 1 -r 1 --format jsonl "$@" 2>/dev/null | jq .tok_s
}
peer() { # NUMBER FOLDER MODEL TEST CACHE
    eval "more_bench=\${PEER_BENCH_$1:-} more_batched=\${PEER_BATCHED_$1:-} fa=\${PEER_FA_$1:-}"
    rows=120 batch=${4#*-}
    [ "$4" != depth ] || rows=$depth batch=1
    # shellcheck disable=SC2086,SC2154 # options
    case $4 in
    prefill) "$2/llama-bench" -m "$3" -t "$threads" -fa 1 -ctk "$5" -ctv "$5" -p 512 -n 0 -r 1 -o json $more_bench 2>/dev/null | jq '.[0].avg_ts' ;;
    *) "$2/llama-batched-bench" -m "$3" -t "$threads" -tb "$threads" -fa $fa -ctk "$5" -ctv "$5" -c $((depth + 4096)) -b 2048 -ub 512 \
        -npp "$rows" -ntg 16 -npl "$batch" $more_batched 2>&1 | awk -F '|' -v rows="$rows" '$2 + 0 == rows { print $9 + 0 }' ;;
    esac
}

# Of files of tok/s, one for each cache: "MEDIAN FILE" of the fastest.
fastest() {
    for file in "$@"; do
        echo "$(median <"$file") $file"
    done | sort -g | tail -n 1
}

# The median of the rounds' ratios of two files.
median_ratio() { paste "$1" "$2" | awk 'NF == 2 && $2 > 0 { print $1 / $2 }' | median; }

# All rounds of one test, and its line for every peer.
compare() { # MODEL TEST
    own_caches=f16 their_caches=f16
    [ "$2" != depth ] || own_caches=$caches their_caches=$peer_caches
    rm -f "$work"/times.*
    for round in $(seq "$rounds"); do
        for cache in $own_caches; do
            ours "$2" "$cache" >>"$work/times.0.$cache"
        done
        number=0
        for folder in $PEERS; do
            number=$((number + 1))
            for cache in $their_caches; do
                peer $number "$folder" "$1" "$2" "$cache" >>"$work/times.$number.$cache"
            done
        done
    done
    own=$(fastest "$work"/times.0.*)
    number=0
    for folder in $PEERS; do
        number=$((number + 1))
        other=$(fastest "$work/times.$number".*)
        echo "| $(basename "$1") | $2 | ${own%% *} (${own##*.}) | $number | ${other%% *} (${other##*.}) | $(median_ratio "${own#* }" "${other#* }") |"
    done
}

number=0
for folder in $PEERS; do
    number=$((number + 1))
    echo "peer $number: $("$folder/llama-bench" -m "${models%% *}" -p 1 -n 0 -r 1 -o json 2>/dev/null | jq -r '.[0] | "build \(.build_commit) \(.build_number)"')"
done
echo
echo "| file | test | ours, tok/s (cache) | peer | tok/s (cache) | ours / peer |"
echo "| --- | --- | --- | --- | --- | --- |"
for model in $models; do
    if [ -n "${CONVERTED:-}" ]; then
        ln -s "$(realpath "$CONVERTED")/$(basename "$model" .gguf).bmc" "$work/model.bmc"
    else
        bin/bmc-convert "$model" -o "$work/model.bmc" 2>/dev/null
    fi
    prefill_options=
    [ "$(bin/bmc-convert --info "$work/model.bmc" | awk '$1 == "weight_type" { print $2 }')" != bf16 ] || prefill_options='--precision bf16'
    for test in ${TESTS:-decode-1 decode-8 decode-32 prefill depth}; do
        compare "$model" "$test"
    done
    rm "$work/model.bmc"
done
