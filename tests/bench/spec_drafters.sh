#!/bin/sh
# Drafters that need no training, alone and combined with a draft model, and those trained for the
# default model (draft head, MTP layer, parallel draft model): mean accepted length, and speed
# relative to plain decoding, medians of alternating runs. First a single sequence of greedy
# text, then batches of similar requests, whose first part is the same and which a pool can learn
# from.
#
#   sh tests/bench/spec_drafters.sh [OPTION ...]      options of bmc-spec, as --always
#
# MODEL, DRAFT, WAYS (a line of options for each drafter), N tokens of the sequence (500), BATCHES
# ("1 4"), REQUESTS (16) of NB tokens (100) and REPEAT rounds (5) configure the run; MEASURE is put
# before each command. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
model=${MODEL:-models.d/grimm.bmc} draft=${DRAFT:-models.d/grimm-draft.bmc} n=${N:-500} nb=${NB:-100}
batches=${BATCHES:-1 4} requests=${REQUESTS:-16} repeat=${REPEAT:-5}
ways=${WAYS:---lookup
--suffix
--recycle
-d $draft
--lookup -d $draft
--suffix -d $draft
-d models.d/grimm-eagle.bmc
-m models.d/grimm-mtp.bmc -d self
-d models.d/grimm-pard.bmc}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# run STATS WAY OPTION ..: a run with the drafter's options
run() {
    stats=$1 way=$2
    shift 2
    case $way in -m*) ;; *) way="-m $model $way" ;; esac
    # shellcheck disable=SC2086 # words
    ${MEASURE:-} bin/bmc-spec -q $way --ignore-eos --stats "$stats" "$@" >"$scratch/out"
}

# compare TITLE OPTION ..: all drafters, each beside plain decoding
compare() {
    title=$1
    shift
    echo "$ways" | while read -r way; do
        for round in $(seq "$repeat"); do
            run "$scratch/plain.$round" "$way" "$@" -k 0
            run "$scratch/spec.$round" "$way" "$@"
        done
        for round in $(seq "$repeat"); do cat "$scratch/plain.$round" "$scratch/spec.$round"; done |
            jq -sr --arg title "$title" 'def median: sort | .[length / 2 | floor]; def ms: .decode_ms + .sample_ms;
                def rate: .sampled_tokens / ms * 1000; . as $runs | [range(0; length; 2) | [$runs[.], $runs[. + 1]]] |
                "| \($title) | \(.[0][1].drafter) | \(map(.[1].tokens_per_step) | median * 100 | round / 100) | \(map(.[1] | rate) | median | round) | \(map(.[0] | rate) | median | round) | \(map((.[0] | ms) / (.[1] | ms)) | median * 100 | round / 100) |"'
    done
}

echo "$repeat rounds, isa $(bin/bmc-spec --version | sed -n 's/^isa: *\([a-z0-9]*\).*/\1/p'), $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
echo
echo "| configuration | drafter | mean accepted length | tokens/s | plain | speedup |"
echo "| --- | --- | --- | --- | --- | --- |"
compare "1 sequence, $n tokens" -p "Once upon a time" -n "$n" "$@"
for batch in $batches; do
    jq -nc --argjson r "$requests" --argjson n "$nb" 'range($r) |
        {prompt: ("Once upon a time there was a king who had " + ["a daughter", "two daughters", "a son", "three sons"][. % 4]), n: $n}' >"$scratch/in"
    compare "$requests requests, batch $batch" --jsonl -np "$batch" -f "$scratch/in" "$@"
done
