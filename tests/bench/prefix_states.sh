#!/bin/sh
# The prefix cache on disk of a model with recurrent layers (--prefix-cache): TOKENS (16384) of a prompt are computed, found by
# a second process, and again with another token behind the middle; then bytes on disk are compared with those of the KV entries.
# The shape is synthetic: three layers of Gated DeltaNet to one of attention, or with FAMILY=mamba2 layers of Mamba-2 alone, which
# have no KV entries, LAYERS (8) of hidden size HIDDEN (256). STATES: the distance of stored states (by size).
set -eu
case ${FAMILY:=qwen35} in
mamba2) : "${SHAPE:=layers of Mamba-2}" ;;
*) : "${SHAPE:=3 layers of Gated DeltaNet to 1 of attention}" ;;
esac
: "${ROUNDS:=1}" "${LAYERS:=8}" "${HIDDEN:=256}"
. "$(dirname "$0")/lib.sh"

tokens=${TOKENS:-16384} edit=$((${TOKENS:-16384} / 2 + 200))
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-states.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/hybrid.shape" <<END
family $FAMILY
layers $LAYERS
hidden $HIDDEN
vocab 512
context $((tokens + 64))
state_value_dim 64
END
case $FAMILY in
mamba2) cat <<END ;;
state_heads $((HIDDEN / 32))
state_key_heads 1
state_key_dim 128
END
*) cat <<END ;;
heads 4
kv_heads 2
head_dim 64
rope_dim 16
ffn 768
layer_types delta delta delta full delta delta delta full
state_heads 4
state_key_heads 2
state_key_dim 64
END
esac >>"$work/hybrid.shape"
bin/bmc-convert --synth "$work/hybrid.shape" -o "$work/hybrid.bmc" >/dev/null 2>&1

# ids TOKEN: the prompt, with this token where it is edited.
ids() { awk -v n="$tokens" -v edit=$edit -v token="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%d ", i == edit ? token : 5 + i * 7 % 500 }' >"$work/ids"; }

# first_token OPTION..: milliseconds until a process has written its first token (later it synchronises its statistics to disk,
# and with them files that another process has just written), tokens computed, hash of the logits.
first_token() {
    begin=$(date +%s%N)
    bin/bmc-gen -q -m "$work/hybrid.bmc" -t "$threads" -c $((tokens + 64)) --prompt-ids "$(cat "$work/ids")" -n 1 --ignore-eos --ids --stats "$work/stats.json" "$@" |
        (
            head -c 1 >/dev/null
            date +%s%N
            cat >/dev/null
        ) >"$work/end"
    jq -r --argjson ns $(($(cat "$work/end") - begin)) '"\($ns / 1e6 | round) \(.prefill_tokens) \(.logits_hash)"' "$work/stats.json"
}

cache="$work/cache${STATES:+,states=$STATES}"
ids 3
first=$(first_token --prefix-cache "$cache")
second=$(first_token --prefix-cache "$cache")
ids 4
edited=$(first_token --prefix-cache "$cache")
plain=$(first_token)
set -- $first $second $edited $plain
echo "ms to the first token, and tokens computed: first $1 $2, second $4 $5, edited at $edit $7 $8, without the cache ${10} ${11}"
[ "$3" = "$6" ] && [ "$9" = "${12}" ] || echo "the logits DIFFER"
verdict "$(divide "$4" "$1")" '<=' 0.03 "time to the first token of the second process"
verdict $(($8 - (tokens - edit))) '<=' 512 "tokens before the edit that are computed again"
bytes=$(find "$work/cache" -name '*.kvblock' -exec cat {} + | wc -c)
all=$(find "$work/cache" -name '*.kv*' -exec cat {} + | wc -c)
if [ "$FAMILY" = mamba2 ]; then
    echo "bytes on disk: $all, those of a state $(find "$work/cache" -name '*.kvstate' -exec wc -c {} + | awk 'NR == 1 { print $1 }')"
    verdict "$(divide "$1" "${10}")" '<=' 1.1 "time of the first process of that without the cache"
else
    verdict "$(divide "$all" "$bytes")" '<=' 2 "bytes on disk of those of KV entries"
fi
