#!/bin/sh
# Latency spikes of POLICY (bmc; or reserve) where its cache grows (BMC paper, figure 16), with growth
# in advance, the default, and at once (grow=now). Each step's time is the minimum of ROUNDS (5) alternating runs,
# since load from other processes hits different steps in each.
# Prints a Markdown table:
#
#   spike    step at a multiple of r over the median of the 8 steps around it; median and maximum
#            over the multiples
#   slowest  slowest step of a growth step's second half, in which growth is prepared, over the
#            median of that half; median over the growth steps
#   total    time of all steps, ahead over now
#
# LAYERS (4) of SHAPE (tinyllama-1.1b) with TYPE (q8_0) weights; TYPES ("f32 q8") of the cache,
# BATCHES ("1 8"), STEPS ("32 64 128") list r; decoding starts at DEPTH (768) and continues for
# GROWTHS (4) growth steps. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

shape=${SHAPE:-tinyllama-1.1b} layers=${LAYERS:-4} depth=${DEPTH:-768} rounds=${ROUNDS:-5}
threads=${THREADS:-$(nproc)} policy=${POLICY:-bmc}

figures='def median: sort | if length == 0 then null else (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2 end;
def short: . * 100 | round / 100;
. as $rows | ["\($policy):r=\($r)", "\($policy):r=\($r),grow=now"] | map(. + "_ms" | . as $key |
    ($rows | map({key: (.n | tostring), value: (.samples[$key] | min)}) | from_entries) as $at |
    def at($n): $at[$n | tostring];
    [range($depth + 2 * $r; $depth + $growths * $r; $r) + 1 | . as $n |
        {spike: (at($n) / ([range(-4; 5) | select(. != 0) | at($n + .)] | median)),
         slowest: ([range($n - $r / 2; $n) | at(.)] | max / median)}] as $events |
    {spike: ($events | map(.spike) | median), most: ($events | map(.spike) | max),
     slowest: ($events | map(.slowest) | median), total: ($at | add), step: ([$at[]] | median)}) |
"| \($type) | \($batch) | \($r) | \(.[0].step | short) | \(.[1].spike | short), \(.[1].most | short) | \(.[0].spike | short), \(.[0].most | short) | \(.[1].slowest | short) | \(.[0].slowest | short) | \(.[0].total / .[1].total | short) |"'

echo "$policy, $shape, $layers layers, ${TYPE:-q8_0}, $threads threads, $(bin/bmc-prof --version | sed -n 's/^isa: *\([a-z0-9]*\).*/isa \1/p'), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
echo
echo "| cache | B | r | step ms | spike, now | spike, ahead | slowest, now | slowest, ahead | total |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for type in ${TYPES:-f32 q8}; do
    for batch in ${BATCHES:-1 8}; do
        for r in ${STEPS:-32 64 128}; do
            growths=${GROWTHS:-4}
            bin/bmc-prof latency --shape "$shape" --layers "$layers" --type "${TYPE:-q8_0}" --depth "$depth" -N "$((depth + growths * r))" \
                -np "$batch" --kv "$policy:r=$r,$policy:r=$r,grow=now" --cache-type "$type" -t "$threads" --every 1 -r "$rounds" --warmup 0 --format jsonl 2>/dev/null |
                jq -s -r --arg policy "$policy" --arg type "$type" --argjson batch "$batch" --argjson r "$r" --argjson depth "$depth" --argjson growths "$growths" "$figures"
        done
    done
done
