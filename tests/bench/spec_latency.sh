#!/bin/sh
# Time per output token of the first, the last and all sequences by batch size, beside plain
# decoding: the form of tables 1 to 3 of the BASS paper. Every batch is B copies of one prompt with
# seeds of their own; all configurations of a batch alternate.
#
#   sh tests/bench/spec_latency.sh [OPTION ...]      options of bmc-spec for speculative runs; -k 0
#     is plain decoding
#   SETTINGS="bf16:bf16 q8_channel:q8" BATCHES="1 2 4 8 16" sh tests/bench/spec_latency.sh
#
# SETTINGS are types of WEIGHTS:CACHE; both models are made in each type, from their folders
# MODEL_FROM and DRAFT_FROM, or with random weights of the shapes MODEL_SHAPE and DRAFT_SHAPE (then
# add --simulate-acceptance P). Without SETTINGS the files MODEL and DRAFT are run as they are,
# with a cache of KV_TYPE. N, BATCHES, TEMP and REPEAT configure the run. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
n=${N:-128} batches=${BATCHES:-1 2 4 8} repeat=${REPEAT:-3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# make_model ROLE TYPE: the model and the draft of a setting
make_model() {
    case $1 in
    model) shape=${MODEL_SHAPE:-} from=${MODEL_FROM:-models.d/grimm} ;;
    draft) shape=${DRAFT_SHAPE:-} from=${DRAFT_FROM:-models.d/grimm-draft} ;;
    esac
    if [ -n "$shape" ]; then
        bin/bmc-convert --synth "$shape" --type "$2" -o "$scratch/$1-$2.bmc" 2>/dev/null
    else
        bin/bmc-convert "$from" --type "$2" -o "$scratch/$1-$2.bmc" 2>/dev/null
    fi
}

settings=${SETTINGS:-}
for setting in $settings; do
    for role in model draft; do
        [ -e "$scratch/$role-${setting%:*}.bmc" ] || make_model $role "${setting%:*}"
    done
done
if [ -z "$settings" ]; then
    settings=given:${KV_TYPE:-f32}
    ln -s "$(realpath "${MODEL:-models.d/grimm.bmc}")" "$scratch/model-given.bmc"
    ln -s "$(realpath "${DRAFT:-models.d/grimm-draft.bmc}")" "$scratch/draft-given.bmc"
fi

# run STATS SETTING BATCH OPTION ..
run() {
    stats=$1 weights=${2%:*} cache=${2#*:} batch=$3
    shift 3
    bin/bmc-spec -q -m "$scratch/model-$weights.bmc" -d "$scratch/draft-$weights.bmc" --cache-type "$cache" --jsonl -np "$batch" \
        --temp "${TEMP:-0.2}" --ignore-eos --stats "$stats" "$@" <"$scratch/in" >"$scratch/out"
}

# First, last and all, medians over the runs.
latency() { jq -sc 'def median(f): map(f) | sort | .[length / 2 | floor]; [median(.first_ptl_ms), median(.last_ptl_ms), median(.all_ptl_ms)]' "$scratch"/stats."$1".*; }

echo "$repeat rounds, isa $(bin/bmc-spec --version | sed -n 's/^isa: *\([a-z0-9]*\).*/\1/p'), $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1); ratios to regular decoding of the first setting"
echo
echo "| batch | weights:cache | method | first | | last | | all | |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for batch in $batches; do
    jq -nc --argjson b "$batch" --argjson n "$n" 'range($b) | {prompt: "Once upon a time", n: $n, seed: .}' >"$scratch/in"
    if [ -n "${MODEL_SHAPE:-}" ]; then # no tokenizer
        jq -nc --argjson b "$batch" --argjson n "$n" 'range($b) | . as $i | {ids: [range(16) | 40 + (. * 7 + $i) % 50], n: $n, seed: .}' >"$scratch/in"
    fi
    for round in $(seq "$repeat"); do
        for setting in $settings; do
            run "$scratch/stats.$setting.regular.$round" "$setting" "$batch" -k 0
            run "$scratch/stats.$setting.speculative.$round" "$setting" "$batch" "$@"
        done
    done
    base=$(latency "${settings%% *}.regular")
    for setting in $settings; do
        for method in regular speculative; do
            jq -nr --arg batch "$batch" --arg setting "$setting" --arg method "$method" --argjson r "$base" --argjson s "$(latency "$setting.$method")" '
                def cells($x): [range(3) as $i | "\($x[$i] * 100 | round / 100) ms | \($r[$i] / $x[$i] * 100 | round / 100)x"] | join(" | ");
                "| \($batch) | \($setting) | \($method) | \(cells($s)) |"'
        done
    done
    rm "$scratch"/stats.*
done
