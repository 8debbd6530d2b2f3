#!/bin/bash
# The rolling KV cache of policy `shift` against growing caches (HTP note).
#
#   append: attention and cache growth of one layer, from the first token to the last of a window
#     of S, and for S tokens
#           beyond it, by policy; limit for a window: 1.05 of bmc with its best T.
#   steps:  decode steps beyond the window, each the median of STEP_ROUNDS (7): other load hits
#           different steps in each round, the
#           cache's own work the same ones. Limit, except for steps that copy the window: 1.1 of
#           the median of all. 4-bit weights
#           minimise the rest of a step.
#
# The layer is llama-2-7b's. S (2048), BATCHES ("1 8"), TYPE (bf16), STEPS (S) of the second part;
# OTHERS (iterative) are measured too; T, if known, saves the search. PARTS ("append steps")
# selects what is run.
set -euo pipefail
SHAPE=${SHAPE:-llama-2-7b}
# shellcheck source=tests/bench/lib.sh
source "$(dirname "$0")/lib.sh"
S=${S:-2048} others=${OTHERS-iterative} known_T=${T:-} type=${TYPE:-bf16} steps=${STEPS:-${S:-2048}} parts=${PARTS:-append steps}

block() { # N POLICIES B: "policy total_ms copy+alloc_ms peak_bytes" of each
    bin/bmc-prof policies --shape "$shape" --layers 1 -N "$1" -np "$3" --kv "$2" --cache-type "$type" --attend valid -t "$threads" \
        -r "$rounds" --format jsonl 2>/dev/null | jq -r '[.policy, .T, .r, .total_ms, .alloc_ms + .copy_ms, .kv_peak_bytes] | @tsv'
}

# T of bmc with the least time.
best_T() { # B
    bin/bmc-prof sweep --shape "$shape" --layers 1 -N "$S" -np "$1" --cache-type "$type" --attend valid -t "$threads" -r 1 --format jsonl 2>/dev/null |
        jq -s -r 'min_by(.total_ms) | .T'
}

append() { # B
    local b=$1 T
    T=${known_T:-$(best_T "$b")}
    echo "== append, B = $b, $S rows: policy, T, r, total ms, growth ms, bytes"
    block "$S" "${others:+$others,}bmc:T=$T,shift,shift:slack=0.5" "$b" | tee "/tmp/shift.$$"
    bmc=$(awk '$1 ~ /^bmc/ { print $4 }' "/tmp/shift.$$")
    for kind in shift shift:slack=0.5; do
        verdict "$(divide "$(awk -v k="$kind" '$1 == k { print $4 }' "/tmp/shift.$$")" "$bmc")" '<=' 1.05 "$kind over bmc:T=$T, B = $b"
    done
    rm -f "/tmp/shift.$$"
    echo "== the same with $S more rows behind the window, which rolls over"
    block "$((2 * S))" "shift:S=$S,shift:S=$S,slack=0.5,shift:S=$S,slack=0" "$b"
}

steps() { # B
    echo "== steps beyond the window, B = $1: median, slowest, how many are above 1.1 of the median, ms, and which rows those are"
    for kind in shift:S=$S shift:S=$S,slack=0.5; do
        bin/bmc-prof latency --shape "$shape" --layers 1 --type q4_0 --depth "$((S - 1))" -N "$((S + steps))" -np "$1" --kv "$kind" --cache-type "$type" \
            -t "$threads" --every 1 -r "${STEP_ROUNDS:-7}" --format jsonl 2>/dev/null | jq -s -r --arg kind "$kind" \
            'map([.n, .[$kind + "_ms"]]) | (map(.[1]) | sort) as $all | $all[length / 2 | floor] as $m | map(select(.[1] > 1.1 * $m)) as $slow |
            [$kind, $m, $all[-1], ($slow | length), ($slow | map(.[0]) | join(" "))] | @tsv'
    done
}

for b in ${BATCHES:-1 8}; do
    for part in $parts; do "$part" "$b"; done
done
