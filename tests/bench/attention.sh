#!/bin/sh
# Fused attention of one query row per sequence, context 2048, B = 8, a cache larger than 256 MB where rows are not of few
# bits: bytes of K and V, scales among them, over the time, as a share of the read rate. KV_TYPE is one type or more.
set -eu
. "$(dirname "$0")/lib.sh"

for type in ${KV_TYPE:-f32 bf16 f16 q8 q4}; do
    layers=22
    case $type in q8 | q4) layers=44 ;; esac
    line=$("$(driver attention)" upfront 32 4 64 $layers 8 1 2047 1 "$type" "$threads" "$rounds")
    echo "$line"
    verdict "${line##* }" '>=' "$(case $type in q8 | q4) echo 0.80 ;; *) echo 0.85 ;; esac)" "fused attention, cache $type, share of the read rate"
done
