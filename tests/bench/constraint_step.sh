#!/bin/sh
# Cost of a constraint in a decoding step: constraint_step.sh MODEL.bmc [ROUNDS (5)] [OPTION..]. Alternates runs of 40 tokens without and with
# each constraint, greedy; prints milliseconds per token (decode_ms and sample_ms of --stats), and the median ratio of pairs.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
model=$1 rounds=${2:-5}
shift $(($# > 1 ? 2 : 1))
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# step OPTION..: milliseconds per token
step() {
    bin/bmc-gen --no-spec -q -m "$model" --ignore-eos -p "Once upon a time" -n 40 --stats "$dir/stats" "$@" >/dev/null
    jq '(.decode_ms + .sample_ms) / .decode_tokens' "$dir/stats"
}

step >/dev/null # reads the file
for schema in '{"type": "string", "minLength": 400}' \
    '{"type": "array", "minItems": 30, "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}}, "required": ["name", "age"]}}'; do
    : >"$dir/pairs"
    i=0
    while [ $((i += 1)) -le "$rounds" ]; do
        echo "$(step "$@") $(step "$@" --json-schema "$schema")" >>"$dir/pairs"
    done
    awk '{ print $2 / $1, $1, $2 }' "$dir/pairs" | sort -n |
        awk -v schema="$schema" '{ r[NR] = $1; a[NR] = $2; b[NR] = $3 } END { m = int((NR + 1) / 2); printf "%s: ratio %.3f (%.3f to %.3f), %.2f and %.2f ms in that pair\n", schema, r[m], r[1], r[NR], a[m], b[m] }'
done
