#!/bin/sh
# Fused attention of one query token per sequence at context depth 2048, B = 8, with a cache of
# more than 256 MB unless it is quantised: bytes of K and V (scales included) per second, as a
# share of the memory read rate. KV_TYPE: one or more cache types; ALLOC: as --alloc (pool).
set -eu
. "$(dirname "$0")/lib.sh"

for type in ${KV_TYPE:-f32 bf16 f16 q8 q4}; do
    layers=22
    case $type in q8 | q4) layers=44 ;; esac
    line=$("$(driver attention)" upfront 32 4 64 $layers 8 1 2047 1 "$type" "$threads" "$rounds")
    echo "$line"
    verdict "${line##* }" '>=' "$(case $type in q8 | q4) echo 0.80 ;; *) echo 0.85 ;; esac)" "fused attention, cache $type, share of the read rate"
done
