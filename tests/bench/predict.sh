#!/bin/bash
# Predictions of bmc-prof predict against measurements, in turns: MODEL.bmc:TYPE.. are files and the types that their
# weights have, SHAPES names of shapes:TYPE whose whole model is made in memory. Prints a row per test, then the median
# and the largest error in percent. The shape of a file is what bmc-convert --info says of it.
set -euo pipefail
cd "$(dirname "$0")/../.."

SHAPES=${SHAPES-tinyllama-1.1b:q4_0 tinyllama-1.1b:q8_0 tinyllama-1.1b:bf16}
rounds=${ROUNDS:-3} tests=(-p "${PROMPT:-256}" -n "${GEN:-16}" -np "${BATCH:-1,8}" -d "${DEPTH:-0,1024}" -r 1 --warmup 0 --format json)
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-predict.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The medians of tok_s of all rounds, a line "KIND BATCH DEPTH TOKS" per test.
medians() {
    jq -rs '[.[].rows[]] | group_by([.test, .batch, .depth])[] |
        "\(.[0].test) \(.[0].batch) \(.[0].depth) \([.[].tok_s] | sort | .[length / 2 | floor])"' "$@"
}

compare() { # NAME TYPE SHAPE BENCH-OPTION..
    local name=$1 type=$2 shape=$3
    shift 3
    rm -f "$work"/*.json
    for ((i = 0; i < rounds; i++)); do
        bin/bmc-prof bench "$@" "${tests[@]}" >"$work/bench.$i.json" 2>/dev/null
        bin/bmc-prof predict --shape "$shape" --type "$type" "${tests[@]}" >"$work/predict.$i.json" 2>/dev/null
    done
    paste -d ' ' <(medians "$work"/bench.*.json) <(medians "$work"/predict.*.json) |
        awk -v name="$name" '{ printf "%-28s %-8s %3d %5d %10.2f %10.2f %7.1f\n", name, $1, $2, $3, $4, $8, 100 * ($8 / $4 - 1) }'
}

printf '%-28s %-8s %3s %5s %10s %10s %7s\n' model test B depth measured predicted 'error %'
{
    for model in "$@"; do
        file=${model%:*} type=${model##*:}
        bin/bmc-convert --info "$file" 2>/dev/null | sed -n '/^family /,/^$/p' | grep -v '^eos\|^$' >"$work/own.shape"
        compare "$(basename "$file")" "$type" "$work/own.shape" -m "$file"
    done
    for model in $SHAPES; do
        compare "$model" "${model##*:}" "${model%:*}" --shape "${model%:*}" --type "${model##*:}"
    done
} | tee "$work/rows"
awk '{ print $7 < 0 ? -$7 : $7 }' "$work/rows" | sort -n |
    awk '{ x[NR] = $1 } END { printf "%d tests: median error %.1f %%, largest %.1f %%\n", NR, x[int((NR + 1) / 2)], x[NR] }'
