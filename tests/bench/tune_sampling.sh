#!/bin/sh
# Is a sampled run what a whole run is? Times of every T, sampled and with every step, at N up to 512, in turns; prints the ratio of
# the medians. SHAPE, CONTEXTS, ROUNDS, PAIRS, EVICT and MEASURE change what is run. Needs jq.
set -eu
cd "$(dirname "$0")/../.."

shape=${SHAPE:-opt-350m} contexts=${CONTEXTS:-128 256 512} rounds=${ROUNDS:-7} pairs=${PAIRS:-3} evict=${EVICT:-0}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-sampling.XXXXXX")
trap 'rm -rf "$work"' EXIT
${MEASURE:-} bin/bmc-tune --shape "$shape" -N 128 --no-sweep --no-rows --profile "$work/constants" --format csv >/dev/null

echo "$shape, one layer, hot and cold; sampled / exact:"
echo
echo "| N | state | T | exact ms | sampled / exact |"
echo "| --- | --- | --- | --- | --- |"
for n in $contexts; do
    : >"$work/sampled"
    : >"$work/exact"
    for pair in $(seq "$pairs"); do
        for how in sampled exact; do
            ${MEASURE:-} bin/bmc-tune --shape "$shape" -N "$n" --no-rows --dry-run --constants "$work/constants" --rounds "$rounds" --evict "$evict" \
                --format json $([ $how = sampled ] || echo --exact) | jq -c .curve >>"$work/$how"
        done
    done
    jq -nr --slurpfile a "$work/sampled" --slurpfile b "$work/exact" '
        def median: sort | .[length / 2 | floor];
        range($a[0] | length) as $i | ([$a[][$i].measured_ms] | median) as $x | ([$b[][$i].measured_ms] | median) as $y |
        "| \($a[0][$i].N) | \($a[0][$i].state) | \($a[0][$i].T) | \($y * 100 | round / 100) | \($x / $y * 1000 | round / 1000) |"'
done
