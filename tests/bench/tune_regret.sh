#!/bin/sh
# Quality of T by the cost model (BMC paper VIII-A, figures 7 to 9): for every shape, context and
# batch the T that bmc-tune selects, against a fit through measured times. Prints Markdown, and
# writes all rows to OUT (tune_regret.jsonl). SHAPES, CONTEXTS, BATCHES, ATTN, KV_TYPE, ROUNDS,
# EVICT and SECONDS_A_CELL configure the run; MEASURE is put before each measurement, once per
# shape and batch. A configuration takes up to a minute, the whole about an hour. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

shapes=${SHAPES:-opt-350m opt-6.7b llama-3-8b} contexts=${CONTEXTS:-128 256 512 1024 2048 4096} batches=${BATCHES:-1 8 32}
attn=${ATTN:-blas} type=${KV_TYPE:-f32} rounds=${ROUNDS:-7} seconds=${SECONDS_A_CELL:-60} evict=${EVICT:-0} out=${OUT:-tune_regret.jsonl}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-regret.XXXXXX")
trap 'rm -rf "$work"' EXIT
: >"$out"

# The constants of a shape and batch are measured once, apart from the cells that they are to predict.
cat >"$work/tune" <<'END'
set -eu
shape=$1 batch=$2 profile=$3
shift 3
tune() { bin/bmc-tune --shape "$shape" -np "$batch" --attn "$attn" --cache-type "$type" --state cold --evict "$evict" --no-batch-knee "$@"; }
tune -N 512 --no-sweep --profile "$profile" --format csv >/dev/null
tune -N "$contexts" --constants "$profile" --rounds "$rounds" --seconds "$seconds" --dry-run --format jsonl
END
contexts=$(echo "$contexts" | tr ' ' ,)
export attn type evict contexts rounds seconds
for shape in $shapes; do
    for batch in $batches; do
        ${MEASURE:-} sh "$work/tune" "$shape" "$batch" "$work/$shape-$batch" >>"$out"
    done
done

echo "T by cost model and by fit, attention $attn, $type cache, cold, $rounds alternating rounds:"
echo
echo "| shape | N | B | run | T closed | T used | T model | T fit (90 %) | T measured | predicted ms | measured ms | regret (90 %) | raw (90 %) | iterative | upfront | reserve |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
jq -r 'def r(d): if . == null then "-" else . * d | round / d end;
    if .note then "| \(.shape) | \(.N) | \(.batch) | 0 | \(.T_closed | r(10)) | \(.T_pow2) | \(.T_model) | \(.note) | | \(.predicted_ms | r(1)) | | | | | | |"
    else "| \(.shape) | \(.N) | \(.batch) | \(.batch_run) | \(.T_closed | r(10)) | \(.T_pow2) | \(.T_model) | \(.T_fit | r(10)) (\(.T_fit_lo | r(10))..\(.T_fit_hi | r(10))) | \(.T_measured) | \(.predicted_ms | r(10)) | \(.measured_ms | r(10)) | \(.regret | r(1000)) (\(.regret_lo | r(1000))..\(.regret_hi | r(1000))) | \(.regret_raw | r(1000)) (\(.regret_raw_lo | r(1000))..\(.regret_raw_hi | r(1000))) | \(.iterative_over_bmc | r(100)) | \(.upfront_over_bmc | r(100)) | \(.reserve_over_bmc | r(100)) |" end' "$out"
echo
jq -rs '[.[] | select(.regret != null)] as $cells | ($cells | length) as $n |
    "\($n) cells measured: regret at most 1.03 in \([$cells[] | select(.regret <= 1.03)] | length), at most 1.08 in \([$cells[] | select(.regret <= 1.08)] | length), at most \([$cells[].regret] | max)"' "$out"
echo
echo "T fit when N grows fourfold:"
echo
echo "| shape | B | N | T fit | T fit at 4 N | ratio |"
echo "| --- | --- | --- | --- | --- | --- |"
jq -rs '[.[] | select(.T_fit != null)] as $c | $c[] as $a | $c[] | select(.shape == $a.shape and .batch == $a.batch and .N == 4 * $a.N) |
    "| \(.shape) | \(.batch) | \($a.N) | \($a.T_fit * 10 | round / 10) | \(.T_fit * 10 | round / 10) | \(.T_fit / $a.T_fit * 100 | round / 100) |"' "$out"
echo
echo "T fit by model; the last column is its growth for fourfold N, by linear regression of logarithms over all N:"
echo
jq -rs '([.[].N] | unique) as $N | . as $all |
    def growth: map(select(.T_fit)) | length as $n | map(.N | log) as $x | map(.T_fit | log) as $y |
        if $n < 2 then "-" else ($x | add / $n) as $mx | ($y | add / $n) as $my |
        ([range($n) | ($x[.] - $mx) * ($y[.] - $my)] | add) / ([$x[] | (. - $mx) * (. - $mx)] | add) * (4 | log) | exp * 100 | round / 100 end;
    "| shape | B | \([$N[] | "N = \(.)"] | join(" | ")) | 4 N |", "| --- | --- | \([$N[] | "---"] | join(" | ")) | --- |",
    ([.[] | [.shape, .batch]] | unique[] as $m | [$all[] | select([.shape, .batch] == $m)] as $mine |
        "| \($m[0]) | \($m[1]) | \([$N[] as $n | $mine[] | select(.N == $n) | if .T_fit then .T_fit * 10 | round / 10 | tostring else "-" end] | join(" | ")) | \($mine | growth) |")' "$out"
