#!/bin/sh
# Decoding at a context of 128: at B = 1 the share of the read rate, measured beside every run; at B = 8 and B = 32
# the time of a step over that of B = 1.
set -eu
. "$(dirname "$0")/lib.sh"

rows=$(bench -b "${BATCH:-1,8,32}" -p 0 -n 16 -d 120 -r "$rounds")
echo "$rows" | jq -r '"B = \(.batch): step_ms \(.step_ms), read rate \(.roof_gb_s) GB/s, share of it \(.roof_share), precision \(.precision)"'
one=$(echo "$rows" | jq 'select(.batch == 1) | .step_ms')
verdict "$(echo "$rows" | jq 'select(.batch == 1) | .roof_share')" '>=' 0.92 "decode B = 1, share of the read rate"
echo "$rows" | jq -r 'select(.batch > 1) | "\(.batch) \(.step_ms)"' | while read -r batch step; do
    limit=1.7
    [ "$batch" -gt 8 ] || limit=1.25
    verdict "$(divide "$step" "$one")" '<=' $limit "decode step B = $batch / B = 1"
done
