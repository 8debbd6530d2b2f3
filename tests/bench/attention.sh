#!/bin/sh
# Fused attention of one query row per sequence, context 2048, B = 8, a cache larger than 256 MB: bytes of K and V over
# the time, as a share of the read rate. KV_TYPE is a list of types.
set -eu
. "$(dirname "$0")/lib.sh"

for type in ${KV_TYPE:-f32 bf16 q8}; do
    layers=22 limit=0.85
    case $type in
    q8) layers=44 limit=0.80 ;;
    q4) layers=88 limit=0.80 ;;
    esac
    line=$("$(driver attention)" 32 4 64 $layers 8 2048 "$type" "$threads" "$rounds")
    echo "$line"
    verdict "${line##* }" '>=' $limit "fused attention, cache $type, share of the read rate"
done
