#!/bin/sh
# Products of eager attention through oneDNN, by number of sequences, heads and length (BMC paper, VIII-E and VIII-H5): creating
# the primitive of a new length over executing it, reading the first entries of 2,048 over reading all of as many, a
# sequence at a time over a batch of all, and other orders of the entries (segment paper, figure 6). One thread, one new token
# per sequence, f32. Needs libdnnl2.
set -eu
. "$(dirname "$0")/lib.sh"

echo "| heads | B | entries | product | created ms | executed ms | created over executed | strided over contiguous | one by one over batch | [B][N][H][D] over [B][H][N][D] | [N][B][H][D] |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
while read -r name kv_heads gqa d; do
    for batch in ${BATCHES:-1 8}; do
        "$(driver eager_products)" "$batch" "$kv_heads" "$gqa" "$d" "$rounds" |
            sed "s/ / | /g; s/.*/| $name | $batch | & |/"
    done
done <<END
OPT-350M 16 1 64
OPT-2.7B 32 1 80
Llama-3-8B 8 4 128
END
