#!/bin/sh
# Attention with speculation by the number of allocations (BMC paper, tables I and VIII):
# Llama-2-7B, N = 4096, 26 draft tokens of which 4 or 8 are accepted. Prints the latency of one
# layer normalised to T = 1, and the prediction of eq. 9. SHAPE, N, ATTN, ROUNDS, SECONDS_A_CELL
# and MEASURE as in tune_regret.sh. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

shape=${SHAPE:-llama-2-7b} n=${N:-4096} attn=${ATTN:-blas} rounds=${ROUNDS:-7} seconds=${SECONDS_A_CELL:-60}

for m in 4 8; do
    echo "k = 26, m = $m, N = $n, batch 1, $shape, attention $attn, cold:"
    echo
    ${MEASURE:-} bin/bmc-tune --shape "$shape" -N "$n" --spec "k=26,m=$m" --attn "$attn" --state cold --no-batch-knee --dry-run --rounds "$rounds" \
        --seconds "$seconds" --format json |
        jq -r 'def r(d): . * d | round / d; .curve[0].measured_ms as $one | .curve[0].predicted_ms as $predicted |
            "| T | \([.curve[].T | tostring] | join(" | ")) |", "| --- |\([.curve[] | " --- |"] | join(""))",
            "| measured | \([.curve[] | .measured_ms / $one | r(1000) | tostring] | join(" | ")) |",
            "| predicted | \([.curve[] | .predicted_ms / $predicted | r(1000) | tostring] | join(" | ")) |", "",
            (.rows[0] | "T closed \(.T_closed | r(10)), used \(.T_pow2), fit \(.T_fit | r(10)) (\(.T_fit_lo | r(10))..\(.T_fit_hi | r(10))), measured least at \(.T_measured); regret \(.regret | r(1000))"), ""'
done
