#!/bin/sh
# The scope of the backend opencl on whatever device there is: families, types of weights and of the KV cache. Prints a Markdown
# table: a cell is "yes" if the token ids are those of the CPU in f32, and one hash of logits comes of two policies, three
# lengths of chunks and a batch; else what differs.
#
#   MODELS   folders or files (the fixtures of scope)      TYPES    of weights       CACHES    of the cache
#
# Needs jq.
set -eu
export BMC_CONFIG=none
cd "$(dirname "$0")/../.."
bin=${BMC_BIN:-bin} fixtures=tests/fixtures
models=${MODELS:-"$fixtures/models/llama-3-like $fixtures/families/decilm $fixtures/models/opt-350m-like $fixtures/families/gpt2 $fixtures/families/gemma3 $fixtures/families/qwen3 $fixtures/families/mixtral"}
types=${TYPES:-f16 bf16 q8_0 q4_0 q4_k q6_k} caches=${CACHES:-f32 f16 q8}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# trace CACHE ARGUMENT..: the ids in $work/ids, prints the hash of logits; or a refusal.
trace() {
    cache=$1
    shift
    "$bin/bmc-gen" -q -m "$work/model.bmc" --prompt-ids 3,5,7,9,11,13,15,17,19,21,23 -n 8 --temp 0 --ignore-eos --ids \
        --cache-type "$cache" --stats "$work/stats" "$@" >"$work/ids" 2>"$work/error" || {
        head -n 1 "$work/error"
        return
    }
    jq -r .logits_hash "$work/stats"
}

cell() {
    trace "$1" --precision f32 >/dev/null
    mv "$work/ids" "$work/want"
    hash=$(trace "$1" --backend opencl)
    cmp -s "$work/ids" "$work/want" || {
        echo "other ids: $hash"
        return
    }
    for how in '--chunk 3' '--chunk 1 --kv iterative' '--chunk 5 --kv paged:16'; do
        # shellcheck disable=SC2086
        [ "$(trace "$1" --backend opencl $how)" = "$hash" ] || {
            echo "other logits with $how"
            return
        }
    done
    echo yes
}

printf '| model | weights |'
for cache in $caches; do printf ' cache %s |' "$cache"; done
printf '\n| --- | --- |'
for cache in $caches; do printf ' --- |'; done
echo
for model in $models; do
    for type in $types; do
        printf '| %s | %s |' "$(basename "$model")" "$type"
        if "$bin/bmc-convert" -q "$model" --type "$type" -o "$work/model.bmc" 2>"$work/error"; then
            for cache in $caches; do printf ' %s |' "$(cell "$cache")"; done
        else
            printf ' %s |' "$(head -n 1 "$work/error")"
        fi
        echo
        rm -f "$work/model.bmc"
    done
done
