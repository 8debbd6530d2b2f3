#!/bin/sh
# Beam search and shared prefixes with random weights. Medians of ratios of alternating runs:
#   - time per output token with W = 4 against W = 1, and under iterative (copying) against
#     segment, for one prompt and for MANY (8);
#   - answers of 512 tokens under segment against bmc and paged, and the entries that beam search
#     copies;
#   - time to first token against W prompts; entries computed by a batch of requests with a common
#     prefix.
# PROMPT (1024) and ANSWER (32) are tokens; LAYERS (4) layers of the shape are run with weights of
# TYPE (bf16).
set -eu
. "$(dirname "$0")/lib.sh"

prompt=${PROMPT:-1024} answer=${ANSWER:-32} layers=${LAYERS:-4} many=${MANY:-8} type=${TYPE:-bf16}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-beam.XXXXXX")
trap 'rm -rf "$work"' EXIT
sed "s/^layers .*/layers $layers/" "models.d/shapes/$shape.shape" >"$work/part.shape"
bin/bmc-convert --synth "$work/part.shape" --type "$type" -o "$work/model.bmc"

# One run; `field` of its statistics is printed.
field() { # JQ-PROGRAM OPTION..
    program=$1
    shift
    bin/bmc-gen -q -m "$work/model.bmc" -t "$threads" -c $((prompt + answer < 600 ? 600 : prompt + answer)) --ignore-eos --jsonl --stats "$work/stats" "$@" <"$work/in" >/dev/null
    jq "$program" "$work/stats"
}

# request PROMPT-TOKENS ANSWER-TOKENS TIMES: lines with other ends of one beginning.
request() {
    jq -nc --argjson p "$1" --argjson n "$2" --argjson times "$3" \
        'range($times) as $i | {ids: ([range($p - 2) | 5 + . * 7 % 300] + [40 + $i, 17]), n: $n}' >"$work/in"
}

# ratio PROGRAM 'OPTIONS OF A' 'OPTIONS OF B': median over the rounds of A over B.
ratio() {
    for round in $(seq "$rounds"); do
        # shellcheck disable=SC2086 # lists of options
        a=$(field "$1" $2) b=$(field "$1" $3)
        divide "$a" "$b"
        echo
    done | median
}

step='(.decode_ms + .sample_ms) / .decode_steps'
request "$prompt" "$answer" 1
verdict "$(ratio "$step" '--beams 4 --kv segment' '--beams 1 --kv segment')" '<=' 1.15 "next token, 4 beams over 1, segment"
verdict "$(ratio "$step" '--beams 4 --kv iterative' '--beams 4 --kv segment')" '>=' 3 "next token, 4 beams, copying way over segment"
id_requests "$many" "$prompt" "$answer" >"$work/in" # without a shared prefix
verdict "$(ratio "$step" "--beams 4 --kv iterative -np $many" "--beams 4 --kv segment -np $many")" '>=' 3 "next token, 4 beams of each of $many prompts, copying way over segment"

# Long answers: beams are reordered at nearly every token, and index selection has the most to read.
long=512
request 64 $long 1
prompt_was=$prompt answer_was=$answer prompt=64 answer=$long
for other in bmc paged; do
    verdict "$(ratio "$step" '--beams 4 --kv segment' "--beams 4 --kv $other")" '<=' 1.0 "next token, 4 beams, 64 + $long tokens, segment over $other"
done
rows=$(field "[.kv_copied_bytes, .kv_copied_rows] | join(\" \")" --beams 4 --kv segment)
echo "copied by beam search under segment, 64 + $long tokens (bytes, rows): $rows"
verdict "$(divide "${rows##* }" $long)" '<=' 1 "entries copied per emitted token, segment"
prompt=$prompt_was answer=$answer_was

request "$prompt" 1 4
verdict "$(ratio .prefill_ms '-b 1 --prefix-cache-mb 0' '-b 4 --kv segment')" '>=' 3.5 "first token, 4 prompts over what they have in common once"

request 514 2 64
echo "64 requests with 512 tokens in common: $(field .prefill_tokens -np 16 --kv segment) tokens computed, $((512 + 64 * 2)) at least"
