#!/bin/sh
# Tuned bmc against bmc with fixed steps, and against reserve: tokens per second of whole models,
# decoding from an empty cache to N entries. The default model and a shape of 1.1 billion
# parameters; each is tuned first. Every run is a process of its own, as bmc-gen is: in a longer
# one the allocator reuses memory, and growth costs less. MODELS, N, BATCHES, ROUNDS, ATTN and
# MEASURE configure the run. Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

models=${MODELS:-grimm tinyllama-1.1b} n=${N:-512} batches=${BATCHES:-1 8} rounds=${ROUNDS:-5} attn=${ATTN:-blas}
policies="bmc bmc:r=16 bmc:r=32 bmc:r=64 bmc:r=256 reserve"
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-e2e.XXXXXX")
trap 'rm -rf "$work"' EXIT

# One round: all policies in turns, beginning with another one each time.
cat >"$work/round" <<'END'
set -eu
round=$1 profile=$2
shift 2
order=$(echo "$policies $policies" | cut -d ' ' -f $((round % 6 + 1))-$((round % 6 + 6)))
for policy in $order; do
    bin/bmc-prof bench "$@" -p 0 -n "$n" --attn "$attn" --profile "$profile" --kv "$policy" --repeat 1 --warmup 0 --megabytes 16 --format json |
        jq -c --arg asked "$policy" --argjson round "$round" '.rows[0] + {$asked, $round}'
done
END
export n attn policies

for name in $models; do
    model="--shape $name"
    [ "$name" != grimm ] || model="-m models.d/grimm.bmc"
    : >"$work/rows"
    for batch in $batches; do
        # shellcheck disable=SC2086 # words
        ${MEASURE:-} bin/bmc-tune $model -N "$n" -np "$batch" --attn "$attn" --state cold --no-sweep --no-batch-knee \
            --profile "$work/$name" --format csv >/dev/null
        for round in $(seq "$rounds"); do
            # shellcheck disable=SC2086 # words
            ${MEASURE:-} sh "$work/round" "$round" "$work/$name" $model -np "$batch" >>"$work/rows"
        done
    done
    echo "$name, N = $n, attention $attn, medians of $rounds alternating rounds:"
    echo
    echo "| B | policy | T | T from | tokens/s (min .. max) | relative to tuned |"
    echo "| --- | --- | --- | --- | --- | --- |"
    jq -rs --arg policies "$policies" 'def median: sort | .[length / 2 | floor];
        def r(d): . * d | round / d;
        . as $rows | [$rows[] | .batch] | unique[] as $batch |
        [$rows[] | select(.batch == $batch)] as $of | ($policies | split(" "))[] as $policy |
        [$of[] | select(.asked == $policy)] as $mine |
        [$mine[] | . as $row | .tok_s_end_to_end / ($of[] | select(.asked == "bmc" and .round == $row.round) | .tok_s_end_to_end)] as $ratio |
        ($mine | map(.tok_s_end_to_end)) as $speed |
        "| \($batch) | \($policy) | \($mine[0].T) | \($mine[0].T_from) | \($speed | median | r(10)) (\($speed | min | r(10)) .. \($speed | max | r(10))) | \($ratio | median | r(1000)) |"' "$work/rows"
    echo
done
