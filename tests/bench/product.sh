#!/bin/sh
# A bare product of 512 rows with a matrix of 5632 x 2048 at --precision bf16: share of the peak from registers.
set -eu
. "$(dirname "$0")/lib.sh"

line=$("$(driver product)" 512 2048 5632 bf16 "$threads" "$rounds")
echo "$line"
verdict "${line##* }" '>=' 0.60 "product 512 x 2048 x 5632 at bf16, share of the peak"
