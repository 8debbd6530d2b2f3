#!/bin/sh
# Every instruction set of the machine against the next lower one: times of four layers, at the same precision.
# The yardstick blas is shown and not compared. PRECISION (f32) must be one for all: sets differ in their defaults.
set -eu
. "$(dirname "$0")/lib.sh"

sets=${SETS:-$(bin/bmc-prof --version | sed -n 's/^isa: .*usable: //p' | tr -d ,)}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-isa.XXXXXX")
trap 'rm -rf "$work"' EXIT
for round in $(seq "$rounds"); do
    for precision in ${PRECISION:-f32 bf16}; do
        for isa in $sets; do
            bench --layers "${LAYERS:-2}" --isa "$isa" --precision "$precision" -b 1,8,32 -p 64 -n 4 -d 8 -r 1 --megabytes 16
        done
    done
done | jq -r 'select(.test == "decode" or .batch == 1) | "\(.test)-\(.batch)-\(.precision) \(.isa) \(.step_ms)"' >"$work/times"

echo "| test | precision | $(echo "$sets" | sed 's/ / ms | /g') ms | worst |"
echo "$sets" | awk '{ printf "| --- | --- |"; for (i = 0; i <= NF; i++) printf " --- |"; print "" }'
cut -d ' ' -f 1 "$work/times" | sort -u | while read -r test; do
    printf '| %s | %s |' "${test%-*}" "${test##*-}"
    last='' worst=9
    for isa in $sets; do
        ms=$(awk -v t="$test" -v i="$isa" '$1 == t && $2 == i { print $3 }' "$work/times" | median)
        printf ' %.3f |' "$ms"
        if [ "$isa" != blas ] && [ -n "$last" ]; then
            worst=$(awk -v w="$worst" -v a="$last" -v b="$ms" 'BEGIN { print a / b < w ? a / b : w }')
        fi
        [ "$isa" = blas ] || last=$ms
    done
    printf ' %s |\n' "$worst"
    echo "$worst" >>"$work/worst"
done
verdict "$(sort -g "$work/worst" | head -n 1)" '>=' 0.9 "the least speed of a set over that of the next lower"
