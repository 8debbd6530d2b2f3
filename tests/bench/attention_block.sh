#!/bin/sh
# The attention block under every policy (BMC paper, table IV), and page faults by page size (table
# V). Prints both tables in Markdown, normalised to iterative as in the paper, and the ratios of
# iterative and upfront to the best bmc. SHAPE, N, BATCH and REPEAT configure the run. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

shape=${SHAPE:-opt-6.7b} n=${N:-512} batch=${BATCH:-8} repeat=${REPEAT:-3}
policies=iterative,upfront,bmc:T=4,bmc:T=8,bmc:T=16,paged:16,paged:32,reserve
grown=iterative,upfront,bmc:T=4,bmc:T=8,bmc:T=16

prof() { bin/bmc-prof policies --attn "${ATTN:-blas}" --shape "$shape" --layers 1 -N "$n" -np "$batch" --repeat "$repeat" --format json "$@" 2>/dev/null; }

table4='(.rows[0].total_ms) as $whole | "| policy | allocation | copying | SDPA | total | total ms | min..max | peak MB |",
"| --- | --- | --- | --- | --- | --- | --- | --- |",
(.rows[] | "| \(.policy) | \(.alloc_ms / $whole * 1e4 | round / 1e4) | \(.copy_ms / $whole * 1e4 | round / 1e4) | \(.sdpa_ms / $whole * 1e4 | round / 1e4) | \(.total_ms / $whole * 1e4 | round / 1e4) | \(.total_ms | round) | \(.total_ms_min | round)..\(.total_ms_max | round) | \(.kv_peak_bytes / 1e6 | round) |"),
"", ([.rows[] | select(.policy | startswith("bmc")) | .total_ms] | min) as $best |
"iterative / best bmc = \($whole / $best * 100 | round / 100), upfront / best bmc = \((.rows[] | select(.policy == "upfront") | .total_ms) / $best * 100 | round / 100)"'

echo "$shape, one layer, N = $n, B = $batch, f32, $(bin/bmc-prof --version | sed -n 's/^libraries: .*for blas \(OpenBLAS\), .*-r\([0-9.]*\)\.so$/\1 \2/p'), medians of $repeat alternating rounds"
echo
echo "Sequences are reallocated one by one:"
echo
prof --kv "$policies" | jq -r "$table4"
echo
echo "The batch is reallocated as one tensor, as in the paper (--lockstep):"
echo
prof --kv "$grown" --lockstep | jq -r "$table4"
echo
echo "Page faults by page size, batch as one tensor:"
echo
echo "| pages | policy | minor faults | major faults | DTLB misses | total ms |"
echo "| --- | --- | --- | --- | --- | --- |"
for alloc in mmap thp; do
    prof --kv iterative,upfront,bmc:T=8 --lockstep --alloc $alloc --repeat 1 |
        jq -r --arg pages $alloc '.rows[] | "| \($pages) | \(.policy) | \(.minor_faults) | \(.major_faults) | \(.dtlb_misses // "not counted") | \(.total_ms | round) |"'
done
