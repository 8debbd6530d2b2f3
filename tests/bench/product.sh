#!/bin/sh
# A single matrix product of 512 rows with a matrix of 5632 x 2048 at --precision bf16: share of
# the peak from registers. The same at int8, and for few rows, for every quantised type that can be
# made (TYPES).
set -eu
. "$(dirname "$0")/lib.sh"

line=$("$(driver product)" 512 2048 5632 bf16 "$threads" "$rounds")
echo "$line"
verdict "${line##* }" '>=' 0.60 "product 512 x 2048 x 5632 at bf16, share of the peak"

for type in ${TYPES:-q8_0 q8_channel q4_1 q4_0}; do
    for rows in 1 8 32; do
        "$(driver product)" "$rows" 2048 5632 int8 "$threads" "$rounds" "$type"
    done
    line=$("$(driver product)" 512 2048 5632 int8 "$threads" "$rounds" "$type")
    echo "$line"
    verdict "${line##* }" '>=' 0.50 "product 512 x 2048 x 5632 of $type at int8, share of the peak"
done
