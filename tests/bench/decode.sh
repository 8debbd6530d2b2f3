#!/bin/sh
# Decoding at context depth 128: at B = 1 the share of the read rate, measured beside every run; at
# B = 8 and B = 32 the time of a step relative to B = 1, and the lower bound by arithmetic: every
# weight times B tokens, twice with bf16x2, at the peak of bf16 products from registers. PRECISION
# overrides the default.
set -eu
. "$(dirname "$0")/lib.sh"

rows=$(bench -np "${BATCH:-1,8,32}" -p 0 -n 16 -d 120 -r "$rounds" ${PRECISION:+--precision $PRECISION})
peak=$(bin/bmc-prof roof -r 3 -t "$threads" --megabytes 64 --format json 2>/dev/null | jq '.rows[0] | .bf16_gflop_s // .f32_gflop_s')
echo "$rows" | jq -r '"B = \(.batch): step_ms \(.step_ms), read rate \(.roof_gb_s) GB/s, share of it \(.roof_share), precision \(.precision)"'
one=$(echo "$rows" | jq 'select(.batch == 1) | .step_ms')
verdict "$(echo "$rows" | jq 'select(.batch == 1) | .roof_share')" '>=' 0.92 "decode B = 1, share of the read rate"
echo "$rows" | jq -r 'select(.batch > 1) | "\(.batch) \(.step_ms)"' | while read -r batch step; do
    limit=1.7
    [ "$batch" -gt 8 ] || limit=1.25
    verdict "$(divide "$step" "$one")" '<=' $limit "decode step B = $batch / B = 1"
    echo "$rows" | jq -r --argjson peak "$peak" 'select(.batch == 1) | . as $one | ($one.roof_share * $one.step_ms * $one.roof_gb_s * 1e6 / 2) as $weights
        | if $one.precision == "bf16x2" then 2 else 1 end | "  at least \(2e-6 * $weights * . * '"$batch"' / $peak / $one.step_ms * 1000 | round / 1000) by arithmetic at \($peak | round) GFLOP/s"'
done
