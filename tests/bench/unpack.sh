#!/bin/sh
# How fast weights of quantised types are unpacked and multiplied with one row, by one thread: the fastest of many products from L2, in GB/s of
# the file's bytes, beside the rate at which the thread reads memory. A type is bound by unpacking if the first is not well above the second.
#
#   TYPES    (those of less common files)
set -eu
. "$(dirname "$0")/lib.sh"

echo "| type | from L2, GB/s | memory, GB/s |"
echo "| --- | --- | --- |"
for type in ${TYPES:-q8_0 q4_0 q4_k mxfp4 nvfp4 q4_z32 q4_z128 q2_k q2_0 q1_0}; do
    case $type in
    q8_0) out=96 ;;
    q2_* | iq2_* | tq*) out=320 ;;
    q1_* | iq1_*) out=480 ;;
    *) out=160 ;;
    esac
    "$(driver product)" 1 2048 $out int8 1 "$rounds" "$type" |
        sed "s/.*weights, \([0-9.]*\) in the fastest.*rate of \([0-9.]*\) .*/| $type | \1 | \2 |/"
done
