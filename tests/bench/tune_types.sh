#!/bin/sh
# T by cache type and GQA group size G (BMC paper, eq. 8), which change the cost of both copying
# and attention. A layer of 32 heads of 128; prints Markdown. TYPES, GROUPS_OF, N, BATCH, ATTN,
# ROUNDS, MEGABYTES and SECONDS_A_CELL configure the run. A row takes about a minute. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

types=${TYPES:-f32 bf16 f16 q8 q4} groups=${GROUPS_OF:-1 4 8} n=${N:-2048} batch=${BATCH:-1} attn=${ATTN:-fused}
rounds=${ROUNDS:-7} seconds=${SECONDS_A_CELL:-30} megabytes=${MEGABYTES:-64}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-types.XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "T by cache type and GQA group size G: a layer of 32 heads of 128, N = $n, batch $batch, attention $attn, cold, $rounds alternating rounds, isa $(bin/bmc-prof --version | sed -n 's/^isa: *\([a-z0-9]*\).*/\1/p'), $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
echo
echo "| type | G | bytes per K entry | copy, 10^9 elements/s | attention, 10^9 MAC/s | T closed | T used | T eq. 8 with G Q | T fit (90 %) | regret |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for type in $types; do
    for group in $groups; do
        printf 'family llama\nlayers 1\nhidden 4096\nheads 32\nkv_heads %d\nffn 1024\nvocab 512\ncontext %d\nnorm_eps 1e-5\neos 0\n' \
            $((32 / group)) "$n" >"$work/layer.shape"
        bin/bmc-tune --shape "$work/layer.shape" -N "$n" -np "$batch" --attn "$attn" --cache-type "$type" --state cold --no-batch-knee --dry-run --force \
            --rounds "$rounds" --seconds "$seconds" --megabytes "$megabytes" --format json 2>/dev/null |
            jq -r --arg type "$type" --argjson heads $((32 / group)) '
                def r($d): if . == null then "-" else . * $d | round / $d end;
                def bytes: {f32: 512, bf16: 256, f16: 256, q8: 132, q4: 80}[$type] * $heads;
                .rows[0] as $c |
                "| \($type) | \($c.G) | \(bytes) | \(.constants.copy_elem_s.value / 1e9 | r(100)) | \(.constants.sdpa_mac_s.value / 1e9 | r(100)) | \($c.T_closed | r(10)) | \($c.T_pow2) | \($c.T_closed_gq | r(10)) | \($c.T_fit | r(10)) (\($c.T_fit_lo | r(10))..\($c.T_fit_hi | r(10))) | \($c.regret | r(1000)) |"'
    done
done
