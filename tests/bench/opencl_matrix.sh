#!/bin/sh
# The scope of the backend opencl on whatever device there is: families, types of weights and of the KV cache, policies,
# batches, chunks, drafts and beams. Models have random weights, in rows of 256 and 512, so that every type keeps its blocks.
# Requests of 3, 41 and 270 tokens are answered in each way; ids are compared with the CPU's in f32 of the same weights and cache
# type, hashes of logits with each other. Prints Markdown: a cell is "yes" if ids are the CPU's and logits have one hash (beams
# another one), else what differs. Ends with status 1 if a cell is not "yes".
#
#   FAMILIES   (llama decilm opt gpt2 gemma3 qwen3 mixtral)     TYPES   of weights      CACHES   of the cache
#   STRIDE     each cell runs one in so many of the ways, the next cell those beside them (89); 1: all of them
#   FIRST      the first cell's number (0), for runs in slices
#
# Needs jq, and build/gcc/tests/opencl_device (`make all tests`).
set -eu
export BMC_CONFIG=none
cd "$(dirname "$0")/../.."
bin=${BMC_BIN:-bin} families=${FAMILIES:-llama decilm opt gpt2 gemma3 qwen3 mixtral}
types=${TYPES:-f16 bf16 q8_0 q4_0 q4_k q6_k} caches=${CACHES:-f32 f16 q8} stride=${STRIDE:-89} first=${FIRST:-0}
device=$("${BUILD:-build/gcc}/tests/opencl_device" --info) || {
    [ $? -eq 77 ] || exit 1 # not built
    echo "nothing to compare: ${device#skipped: }"
    exit 0
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# What a family's shape has besides the common lines.
shape() {
    printf 'family %s\nlayers 2\nhidden 256\nheads 4\nvocab 512\ncontext 512\neos 0\n' "$1"
    [ "$1" = gpt2 ] || echo 'ffn 512'
    case $1 in
    opt | gpt2) ;;
    decilm) echo 'layer_kv_heads 2 1' ;;
    *) echo 'kv_heads 2' ;;
    esac
    case $1 in gemma3) printf 'window 64\n' ;; mixtral) printf 'experts 4\nexperts_used 2\n' ;; esac
}

for n in 3 41 270; do
    jq -nc --argjson n "$n" '{prompt_ids: [range($n) | . * . % 509 + 3], n: 8, temperature: 0, ignore_eos: true}'
done >"$work/requests"

# Each way is a line: program and options. Draft models have other weights of the same seed, so some drafts are accepted.
for chunk in 5 64 512; do
    for how in 'bmc-gen --no-spec' 'bmc-spec --lookup -k 4 --always' "bmc-spec -d $work/draft.bmc -k 3 --always" \
        "bmc-spec -d $work/draft.bmc --tree 5 --always" 'bmc-gen --beams=3'; do
        for batch in 1 3; do
            for kv in bmc bmc:T=1 bmc:r=4,grow=now iterative upfront reserve paged:16 segment headwise; do
                echo "$how -np $batch --chunk $chunk --kv $kv"
            done
        done
    done
done >"$work/ways"

# answers CACHE PROGRAM OPTION..: the ids of all answers in $work/ids, prints the hash of logits; or a refusal.
answers() {
    cache=$1 program=$2
    shift 2
    "$bin/$program" -q -m "$work/model.bmc" --jsonl -f "$work/requests" -c 288 --cache-type "$cache" --stats "$work/stats" "$@" \
        >"$work/answers" 2>"$work/error" </dev/null || {
        head -n 1 "$work/error"
        return
    }
    jq -c .ids "$work/answers" >"$work/ids"
    jq -r .logits_hash "$work/stats"
}

# reference CACHE OPTION..: the CPU's ids, which the device's have to equal, and the device's hash, unless they are there.
reference() {
    name=$work/want$2
    [ ! -e "$name.hash" ] || return 0
    answers "$1" bmc-gen --precision f32 "$2" >/dev/null
    mv "$work/ids" "$name"
    answers "$1" bmc-gen --backend opencl "$2" >"$name.hash"
    cmp -s "$work/ids" "$name" || echo 'other ids' >>"$name.hash"
}

# Prints "yes" or a difference. One way in $stride of the list, beginning with $first.
cell() {
    rm -f "$work"/want*
    awk "NR % $stride == $first % $stride" "$work/ways" >"$work/chosen"
    while read -r way; do
        case $way in *--beams*) form='--beams=3' ;; *) form='--no-spec' ;; esac
        reference "$1" "$form"
        # shellcheck disable=SC2086 # options
        found=$(answers "$1" $way --backend opencl)
        if [ "$found" != "$(cat "$work/want$form.hash")" ] || ! cmp -s "$work/ids" "$work/want$form"; then
            echo "$way: $found instead of $(tr '\n' ' ' <"$work/want$form.hash")"
            return
        fi
    done <"$work/chosen"
    echo yes
}

echo "$device; $(wc -l <"$work/ways") ways, one in $stride in each cell."
printf '\n| family | weights |'
for cache in $caches; do printf ' cache %s |' "$cache"; done
printf '\n| --- | --- |'
for cache in $caches; do printf ' --- |'; done
echo
status=0
for family in $families; do
    shape "$family" >"$work/shape"
    "$bin/bmc-convert" -q --synth "$work/shape" --type bf16 -o "$work/draft.bmc"
    for type in $types; do
        "$bin/bmc-convert" -q --synth "$work/shape" --type "$type" -o "$work/model.bmc"
        printf '| %s | %s |' "$family" "$("$bin/bmc-convert" --info --format json "$work/model.bmc" | jq -r .weight_type)"
        for cache in $caches; do
            cell=$(cell "$cache")
            [ "$cell" = yes ] || status=1
            printf ' %s |' "$cell"
            first=$((first + 1))
        done
        echo
        rm -f "$work/model.bmc"
    done
    rm -f "$work/draft.bmc"
done
exit $status
