#!/bin/sh
# Speculation under two cache policies: attention time, with and without cache growth, and total
# decoding time; medians of the ratios of alternating runs.
#
#   MODEL=SYNTHETIC.bmc sh tests/bench/spec_policy.sh [OPTION ...]      options of bmc-spec
#
# MODEL has random weights (bmc-convert --synth): a shape file of llama-2-7b with 4 layers, for
# instance. Every step drafts K (26) tokens with a tiny random model that is made here, and accepts
# them with probability P (0.75), about four tokens per step. BASE (iterative) is compared with KV
# (bmc); N (4096) is the context, PROMPT (64) the prompt tokens, REPEAT (1) the pairs. MEASURE is
# put before each command. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
model=${MODEL:?a model file} k=${K:-26} p=${P:-0.75} n=${N:-4096} base=${BASE:-iterative} kv=${KV:-bmc} repeat=${REPEAT:-1} prompt=${PROMPT:-64}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/draft.shape" <<END
family llama
layers 1
hidden 64
heads 1
kv_heads 1
ffn 64
vocab $(bin/bmc-convert --info --format json "$model" | jq .vocab)
context $n
norm_eps 1e-5
eos 2
END
bin/bmc-convert --synth "$scratch/draft.shape" -o "$scratch/draft.bmc" >"$scratch/out"
ids=$(jq -nr --argjson p "$prompt" '[range($p) | 40 + . % 8] | map(tostring) | join(" ")')

run() { # STATS KV OPTION..
    stats=$1 policy=$2
    shift 2
    ${MEASURE:-} bin/bmc-spec -q -m "$model" -d "$scratch/draft.bmc" -k "$k" --kv "$policy" -c "$n" --prompt-ids "$ids" --ids --ignore-eos --simulate-acceptance "$p" --stats "$stats" "$@" >"$scratch/out"
}

i=0
while [ $i -lt "$repeat" ]; do
    run "$scratch/base.$i" "$base" "$@"
    run "$scratch/kv.$i" "$kv" "$@"
    i=$((i + 1))
done
jq -sc '.' "$scratch"/base.* >"$scratch/base"
jq -sc '.' "$scratch"/kv.* >"$scratch/kv"
jq -nr --slurpfile a "$scratch/base" --slurpfile b "$scratch/kv" '
    def median: sort | .[length / 2 | floor];
    def two: . * 100 | round / 100;
    def grown: .attention_ms + .kv_alloc_ms + .kv_copy_ms;
    def whole: .decode_ms + .sample_ms;
    def row: "\(.kv_policy) (T \(.T)): \(.steps) steps, \(.tokens_per_step | two) tokens and \(.drafted / .steps | two) draft tokens per step; attention \(.attention_ms | round) ms, growth \(.kv_alloc_ms + .kv_copy_ms | round) ms, decoding \(whole | round) ms";
    ($a[0]) as $base | ($b[0]) as $kv |
    "N \($kv[0].N), batch \($kv[0].batch), \($kv[0].threads) threads, isa \($kv[0].isa), precision \($kv[0].precision), cache \($kv[0].kv_type), attended \($kv[0].attended); acceptance simulated",
    ($base[0] | row), ($kv[0] | row),
    "attention with growth \([range($base | length) as $i | ($base[$i] | grown) / ($kv[$i] | grown)] | median | two), attention alone \([range($base | length) as $i | $base[$i].attention_ms / $kv[$i].attention_ms] | median | two), end to end \([range($base | length) as $i | ($base[$i] | whole) / ($kv[$i] | whole)] | median | two) (medians of \($base | length) pairs)"'
