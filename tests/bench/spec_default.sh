#!/bin/sh
# Speculation by default against --no-spec: tokens per second of bmc-gen by the kinds of SpecBench's questions and batch size, medians of the
# ratios of alternating runs, their lowest and their geometric mean. Texts and logits of both are compared.
#
#   MODEL=smollm2.bmc sh tests/bench/spec_default.sh QUESTIONS.jsonl [OPTION ..]      options of bmc-gen, as --temp 0.8
#
# QUESTIONS.jsonl is the benchmark's question.jsonl, of which first turns are asked. CHAT=1 applies the model's chat template; LIMIT questions of
# each kind, spread over it (8), N tokens for each (512), BATCHES ("1 8") and REPEAT rounds (3) configure the run; MEASURE is put before each command.
# Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
questions=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."
model=${MODEL:?a model file} n=${N:-512} limit=${LIMIT:-8} batches=${BATCHES:-1 8} repeat=${REPEAT:-3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

jq -nc --argjson limit "$limit" --argjson n "$n" --arg chat "${CHAT:-}" '
    def kind: if IN("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities") then "mt_bench" else . end;
    [inputs] | group_by(.category | kind)[] | (length / $limit) as $step | [range([$limit, length] | min) as $i | .[$i * ([$step, 1] | max) | floor]][] |
    {kind: (.category | kind), request: ({max_tokens: $n} + if $chat == "" then {prompt: .turns[0]} else {messages: [{role: "user", content: .turns[0]}]} end)}' \
    "$questions" >"$scratch/questions"

# run NAME BATCH OPTION ..
run() {
    name=$1 batch=$2
    shift 2
    ${MEASURE:-} bin/bmc-gen -q -m "$model" --jsonl -np "$batch" -f "$scratch/in" --profile none --stats "$scratch/stats" "$@" >"$scratch/$name.text"
    jq -c --arg name "$name" '{($name): {ms: (.decode_ms + .sample_ms), all: (.prefill_ms + .decode_ms + .sample_ms), tokens: .sampled_tokens,
        hash: .logits_hash, drafted, accepted, length: .tokens_per_step, pauses, draft: (.draft_ms / (.decode_ms + .sample_ms))}}' "$scratch/stats"
}

echo "$(basename "$model"), $limit questions of each kind, $n tokens, $repeat rounds, isa $(bin/bmc-gen --version | sed -n 's/^isa: *\([a-z0-9]*\).*/\1/p')," \
    "$(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)${*:+, $*}"
echo
echo "| batch | kind | tokens | mean accepted length | accepted of drafted | pauses | share of drafting | tok/s | --no-spec | ratio | ratio with prefill |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for batch in $batches; do
    : >"$scratch/ratios"
    for kind in $(jq -r .kind "$scratch/questions" | uniq); do
        jq -c --arg kind "$kind" 'select(.kind == $kind).request' "$scratch/questions" >"$scratch/in"
        round=0
        : >"$scratch/runs"
        while [ $round -lt "$repeat" ]; do
            run plain "$batch" --no-spec "$@" >"$scratch/plain"
            run spec "$batch" "$@" >"$scratch/spec"
            jq -sc add "$scratch/plain" "$scratch/spec" >>"$scratch/runs"
            cmp -s "$scratch/plain.text" "$scratch/spec.text" || echo "spec_default.sh: $kind, batch $batch: another text" >&2
            round=$((round + 1))
        done
        jq -sr --arg kind "$kind" --arg batch "$batch" '
            def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
            def r: . * 1000 | round / 1000;
            if any(.plain.hash != .spec.hash) then error("\($kind), batch \($batch): other logits") else . end |
            "| \($batch) | \($kind) | \(.[0].spec.tokens) | \(map(.spec.length) | median | r) | \(.[0].spec | "\(.accepted) of \(.drafted)") | \(.[0].spec.pauses) | \(map(.spec.draft) | median | r) | \(
                map(.spec | .tokens / .ms * 1000) | median | round) | \(map(.plain | .tokens / .ms * 1000) | median | round) | \(
                map(.plain.ms / .spec.ms) | median | r) | \(map(.plain.all / .spec.all) | median | r) |"' "$scratch/runs"
        jq -s 'def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2; map(.plain.ms / .spec.ms) | median' "$scratch/runs" >>"$scratch/ratios"
    done
    jq -sr --arg batch "$batch" '"batch \($batch): lowest ratio \(min * 1000 | round / 1000), geometric mean \(map(log) | add / length | exp * 1000 | round / 1000)"' \
        "$scratch/ratios" >>"$scratch/summary"
done
echo
cat "$scratch/summary"
