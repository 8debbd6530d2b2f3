#!/bin/sh
# Quality of T and draft length chosen together (bmc-tune --spec auto): for every model, context,
# batch and acceptance rate the chosen pair, measured against all pairs of a grid of T and draft
# lengths, plain decoding included. All pairs run once, after a run that warms up; those that take
# 1.25 times as long as the fastest, other than the chosen pair and the fastest of plain decoding,
# are left out, and the others alternate in ROUNDS rounds. Times are medians, and the regret is the
# median of the rounds' ratios to the pair with the least median time. Prints Markdown.
#
#   MODELS="a.bmc b.bmc" DRAFT=draft.bmc sh tests/bench/spec_regret.sh [OPTION ...]  options of both programs
#
#   MODELS        model files (the default model); DRAFT their draft model (grimm-draft)
#   CONTEXTS, BATCHES, RATES   ("256 1024", "1 4", "0.5 0.8"): each model is measured in all of them
#   TS, LENGTHS   grid ("1 4 16 64", "0 1 2 4 6 10 16")
#   ROUNDS        alternating rounds (5)
#   RESULTS       file that rows are added to; configurations that it has already are not measured
#                 again, so that an interrupted run can be continued
# The draft's tokens are accepted at random (simulated acceptance). Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
models=${MODELS:-models.d/grimm.bmc} draft=${DRAFT:-models.d/grimm-draft.bmc} contexts=${CONTEXTS:-256 1024} batches=${BATCHES:-1 4}
rates=${RATES:-0.5 0.8} ts=${TS:-1 4 16 64} lengths=${LENGTHS:-0 1 2 4 6 10 16} rounds=${ROUNDS:-5}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-spec-regret.XXXXXX")
trap 'rm -rf "$work"' EXIT
results=${RESULTS:-$work/results}
touch "$results"

# run T LENGTH OPTION ..: ms of decoding a batch to the end of the context
run() {
    T=$1 k=$2
    shift 2
    bin/bmc-spec -q -m "$model" -d "$draft" --jsonl -np "$batch" -c "$N" --kv "bmc:T=$T" -k "$k" --ignore-eos --profile none --stats "$work/stats" \
        --simulate-acceptance "$rate" --seed "$round" "$@" <"$work/in" >/dev/null
    jq '.decode_ms + .sample_ms' "$work/stats"
}

# measure OPTION ..: a round over all pairs in $work/grid
measure() {
    while read -r T k; do
        echo "$T $k $round $(run "$T" "$k" "$@")"
    done <"$work/grid"
}

row='
def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2] + .[length / 2 - 1]) / 2 end;
def r2: . * 100 | round / 100;
[inputs | split(" ")] | group_by(.[0:2]) | map({pair: (.[0][0:2] | join(" ")), k: .[0][1], ms: (sort_by(.[2] | tonumber) | map(.[3] | tonumber))}) |
(map(select(.k == "0")) | min_by(.ms | median) | .ms) as $plain | (map(select(.pair == $chosen))[0].ms) as $ours | min_by(.ms | median) as $best |
def over(a; b): [range(a | length) as $i | a[$i] / b[$i]] | median;
over($ours; $best.ms) as $regret |
"\($name) \($chosen | sub(" "; ", ")) | \($expected | r2) | \(over($plain; $ours) | r2) | " +
"\($best.pair | sub(" "; ", ")) | \(over($plain; $best.ms) | r2) | \($regret | . * 1000 | round / 1000) |"'

# configuration OPTION ..: measures $model, $N, $batch, $rate, and prints the row $name
configuration() {
    at=".speculation[] | select(.batch == $batch)"
    chosen=$(jq -r "$at"' | "\(.T) \(.draft_tokens)"' "$work/plan")
    jq -nc --argjson b "$batch" --argjson n "$N" 'range($b) | . as $i | {ids: [range(8) | 40 + (. * 7 + $i) % 50], n: ($n - 8)}' >"$work/in"
    { for T in $ts; do for k in $lengths; do echo "$T $k"; done; done; echo "$chosen"; } | sort -u >"$work/grid"
    round=0
    run ${chosen} "$@" >/dev/null
    measure "$@" >"$work/first"
    sort -g -k 4 "$work/first" | awk -v chosen="$chosen" '{ pair = $1 " " $2; plain = $2 == 0 && !plains++ } NR == 1 { least = $4 }
        $4 <= 1.25 * least || pair == chosen || plain { print pair }' >"$work/grid"
    : >"$work/times"
    while [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        measure "$@" >>"$work/times"
    done
    jq -Rnr --arg name "$name" --arg chosen "$chosen" --argjson expected "$(jq "$at.speedup" "$work/plan")" "$row" "$work/times"
}

# plan OPTION ..: what bmc-tune chooses for all batch sizes
plan() {
    bin/bmc-tune -m "$model" -d "$draft" --spec "auto,p=$rate" -N "$N" -np "$(echo "$batches" | tr ' ' ,)" --state cold --no-sweep --no-batch-knee \
        --seconds 2 --dry-run --format json "$@" >"$work/plan" 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
}

echo "$(bin/bmc-spec --version | sed -n 's/^isa: *\([a-z0-9]*\).*/isa \1/p'), $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $rounds rounds"
echo
echo "| model | N | batch | acceptance | chosen T, k | expected speedup | speedup | best T, k | speedup | regret |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for model in $models; do
    for rate in $rates; do
        for N in $contexts; do
            planned=
            for batch in $batches; do
                name="| $(basename "$model" .bmc) | $N | $batch | $rate |"
                if ! grep -F "$name" "$results"; then
                    [ "$planned" ] || plan "$@"
                    planned=yes
                    configuration "$@" | tee -a "$results"
                fi
            done
        done
    done
done
echo
awk -F '|' '{ print $11 + 0 }' "$results" | sort -g | awk '{ x[NR] = $1 }
    END { printf "%d configurations: regret %.3f in the median (target: <= 1.05), at most %.3f (target: <= 1.10)\n", NR, (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2, x[NR] }'
