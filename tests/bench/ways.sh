#!/bin/sh
# One sequence under every cache policy: memory, copies, padding and time per token, with bitwise
# equal logits. Prints the first table of policies.md. Memory and counters do not depend
# on the machine; times are medians of the ratios of alternating runs, with the same number of
# threads.
#
#   sh tests/bench/ways.sh
#
# MODEL, DRAFT (the default models), N (the context), GEN tokens and ROUNDS (5) configure the run.
# With SHAPE the model is synthetic, and drafts are by prompt lookup: tinyllama-1.1b needs 2.2 GB
# of disk in TMPDIR. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-ways.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
model=${MODEL:-models.d/grimm.bmc} gen=${GEN:-300} rounds=${ROUNDS:-5}
drafter="-d ${DRAFT:-models.d/grimm-draft.bmc}"
set -- -p "Once upon a time"
if [ "${SHAPE:-}" ]; then
    model=$work/synthetic.bmc drafter=--lookup
    bin/bmc-convert --synth "$SHAPE" -o "$model"
    set -- --prompt-ids "$(seq -s ' ' 11 26)"
fi
[ -z "${N:-}" ] || set -- "$@" -c "$N"

cat >"$work/ways" <<END
allocated up front, valid entries attended (equivalent to llama.cpp)|bmc-gen --no-spec --kv upfront --attend valid
allocated up front, all attended (static cache)|bmc-gen --no-spec --kv upfront
reallocated for every token (dynamic cache)|bmc-gen --no-spec --kv iterative
reallocated in steps|bmc-gen --no-spec --kv bmc
the same, one thread|bmc-gen --no-spec --kv bmc -t 1
the same, 4 draft tokens a pass in the padding|bmc-spec --kv bmc $drafter -k 4 --always
paged, blocks of 16|bmc-gen --no-spec --kv paged
reserved address space, committed on demand|bmc-gen --no-spec --kv reserve
END

for _ in $(seq "$rounds"); do
    way=0
    while IFS='|' read -r _ command; do
        way=$((way + 1))
        # shellcheck disable=SC2086 # words
        bin/$command -m "$model" --profile none "$@" -n "$gen" --ignore-eos -q --stats "$work/stats.json" >/dev/null </dev/null
        jq -c . "$work/stats.json" >>"$work/$way.jsonl"
    done <"$work/ways"
done

echo "$(basename "$model" .bmc)${SHAPE:+ ($SHAPE)}, $(jq -r '"N = \(.N), \(.threads) threads, isa \(.isa), precision \(.precision)"' "$work/stats.json")," \
    "$gen tokens, medians of $rounds alternating rounds, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1):"
echo
echo "| KV cache | command | peak MiB | KV entries copied | padding attended | passes | time per token | logits_hash |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
way=0
while IFS='|' read -r what command; do
    way=$((way + 1))
    jq -rs --slurpfile first "$work/1.jsonl" --arg what "$what" --arg command "$command" '
        def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
        def round2: . * 100 | round / 100;
        ([., $first] | transpose | map(.[0].decode_ms / .[1].decode_ms) | median | round2) as $ratio
        | .[0] | [$what, "`" + $command + "`", (.kv_resident_bytes / 1048576 | round2), .kv_copied_rows, .kv_padded_rows,
                  .decode_steps, (if $command | test(" -t ") then "" else $ratio end), .logits_hash] | "| " + (map(tostring) | join(" | ")) + " |"' "$work/$way.jsonl"
done <"$work/ways"
