#!/bin/sh
# Prefill of 512 tokens end to end at --precision bf16: share of the peak of bf16 products from
# registers.
set -eu
. "$(dirname "$0")/lib.sh"

row=$(bench -np 1 -p 512 -n 0 --precision bf16 -r "$rounds")
echo "$row" | jq -r '"prefill of 512: \(.step_ms) ms, \(.tok_s_end_to_end) tok/s, peak \(.roof_gflop_s) GFLOP/s"'
verdict "$(echo "$row" | jq .roof_share)" '>=' 0.25 "prefill 512 at bf16, share of the peak"
