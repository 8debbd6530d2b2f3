#!/bin/sh
# Validates sampled runs: times of every T, sampled and with every step, at N up to 512,
# alternating; prints the median of the ratios. SHAPE, CONTEXTS, ROUNDS, PAIRS, EVICT and MEASURE
# configure the run. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

shape=${SHAPE:-opt-350m} contexts=${CONTEXTS:-128 256 512} rounds=${ROUNDS:-7} pairs=${PAIRS:-3} evict=${EVICT:-0}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-sampling.XXXXXX")
trap 'rm -rf "$work"' EXIT
${MEASURE:-} bin/bmc-tune --shape "$shape" -N 128 --no-sweep --no-batch-knee --profile "$work/constants" --format csv >/dev/null

echo "$shape, one layer, hot and cold; sampled / exact:"
echo
echo "| N | state | T | exact ms | sampled / exact |"
echo "| --- | --- | --- | --- | --- |"
# A sampled run and a whole one, right after another.
cat >"$work/pair" <<'END'
set -eu
tune() { bin/bmc-tune --shape "$shape" -N "$n" --no-batch-knee --dry-run --constants "$work/constants" --rounds "$rounds" --evict "$evict" --format json "$@"; }
tune | jq -c .curve >>"$work/sampled"
tune --exact | jq -c .curve >>"$work/exact"
END
export shape rounds evict work n
for n in $contexts; do
    : >"$work/sampled"
    : >"$work/exact"
    for _ in $(seq "$pairs"); do
        ${MEASURE:-} sh "$work/pair"
    done
    jq -nr --slurpfile a "$work/sampled" --slurpfile b "$work/exact" '
        def median: sort | .[length / 2 | floor];
        range($a[0] | length) as $i | ([$b[][$i].measured_ms] | median) as $y |
        ([range($a | length) as $p | $a[$p][$i].measured_ms / $b[$p][$i].measured_ms] | median) as $ratio |
        "| \($a[0][$i].N) | \($a[0][$i].state) | \($a[0][$i].T) | \($y * 100 | round / 100) | \($ratio * 1000 | round / 1000) |"'
done
