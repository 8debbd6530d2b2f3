#!/bin/sh
# Fused attention of one query row per sequence, context 2048, B = 8, a cache larger than 256 MB: bytes of K and V over
# the time, as a share of the read rate. KV_TYPE is f32 or bf16.
set -eu
. "$(dirname "$0")/lib.sh"

for type in ${KV_TYPE:-f32 bf16}; do
    line=$("$(driver attention)" 32 4 64 22 8 2048 "$type" "$threads" "$rounds")
    echo "$line"
    verdict "${line##* }" '>=' 0.85 "fused attention, cache $type, share of the read rate"
done
