#!/bin/sh
# Tuned bmc against bmc with fixed steps, and against reserve: tokens per second of whole models, decoding from an empty
# cache to N rows. The default model and a shape of 1.1 billion parameters; each is tuned first.
# N, BATCH, REPEAT, ATTN and MEASURE change how. Needs jq.
set -eu
cd "$(dirname "$0")/../.."

n=${N:-1024} batch=${BATCH:-1,8} repeat=${REPEAT:-5} attn=${ATTN:-blas}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-e2e.XXXXXX")
trap 'rm -rf "$work"' EXIT

compare() { # NAME ARGUMENT..
    name=$1
    shift
    ${MEASURE:-} bin/bmc-tune "$@" -N "$n" -b "$batch" --attn "$attn" --state cold --no-sweep --no-rows --profile "$work/$name" --format csv >/dev/null
    echo "$name, N = $n, attention $attn, medians of $repeat alternating rounds:"
    echo
    echo "| B | policy | T | T from | tokens/s | over tuned |"
    echo "| --- | --- | --- | --- | --- | --- |"
    ${MEASURE:-} bin/bmc-prof bench "$@" -b "$batch" -p 0 -n "$n" --attn "$attn" --profile "$work/$name" --repeat "$repeat" \
        --kv bmc,bmc:r=16,bmc:r=32,bmc:r=64,bmc:r=256,reserve --format json |
        jq -r '.rows as $rows | .rows[] | . as $row | ($rows[] | select(.policy == "bmc" and .batch == $row.batch)) as $tuned |
            "| \(.batch) | \(.policy) | \(.T) | \(.T_from) | \(.tok_s_end_to_end * 10 | round / 10) | \(.tok_s_end_to_end / $tuned.tok_s_end_to_end * 1000 | round / 1000) |"'
    echo
}

compare grimm -m models.d/grimm.bmc
compare tinyllama-1.1b --shape tinyllama-1.1b
