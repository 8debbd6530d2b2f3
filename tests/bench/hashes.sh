#!/bin/sh
# Ids and logits hashes of all family fixtures under every policy, kernel set, precision and cache type, and of
# every type of weights, and what else computes with a model, on the default one and some fixtures: one line each, to be compared between two builds whose results must be equal.
#
#   sh tests/bench/hashes.sh                        prints the lines of the programs in bin/
#   OLD=../old/bin sh tests/bench/hashes.sh         compares them with another build; exit status 1 if any differs
#
#   FAMILIES   fixtures (all); none: only the rest
#   FULL       1: the product of policies, sets, precisions and cache types instead of one at a time
set -eu
export BMC_CONFIG=none # no defaults of this account
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-hashes.XXXXXX")
trap 'rm -rf "$work"' EXIT
policies="bmc bmc:T=1 iterative upfront paged:16 reserve segment shift headwise"
sets=$("$root/bin/bmc-gen" --version | sed -n 's/^isa: .*usable: //p' | tr -d ,)
precisions="f32 bf16x2 bf16 int8"
caches="f32 bf16 f16 q8 q4 q4h"
prompt=$(seq -s ' ' 3 2 120)

# The hash of a run's output, and that of its logits.
way() { # LABEL PROGRAM OPTION..
    label=$1 program=$2
    shift 2
    "$program" -q --stats "$work/stats" "$@" </dev/null 2>&1 | sed "s|$work/*||g" | cksum | sed "s|^|$label |" | tr '\n' ' '
    sed -n 's/.*"logits_hash":"\([0-9a-f]*\)".*/\1/p' "$work/stats" 2>/dev/null || echo
    rm -f "$work/stats"
}

# Drafters, beams, context shifts, chunks, batches of different lengths, streaming heads, scores, embeddings, adapters,
# experts on disk, snapshots.
ways() { # BIN
    gen=$1/bmc-gen spec=$1/bmc-spec grimm=$root/models.d/grimm
    text=$(seq -s ' ' 100 399)
    for temp in 0 0.9; do
        for draft in "-d $grimm-draft.bmc" "-d $grimm-eagle.bmc" "-d $grimm-eagle3.bmc" "-d $grimm-mtp.bmc" "-d $grimm-pard.bmc" --lookup --recycle --suffix; do
            # shellcheck disable=SC2086 # words
            way "drafts ${draft##*/} $temp" "$spec" -m "$grimm.bmc" $draft -k 4 --always -p "Once upon a time" -n 40 --temp $temp --ignore-eos --ids
        done
    done
    for beams in 2 4; do way "beams $beams" "$gen" -m "$grimm.bmc" -p "Once upon a time" -n 30 --beams $beams --n-best 2 --ids; done
    for how in slide recompute; do way "shift $how" "$gen" -m "$grimm.bmc" --prompt-ids "$(seq -s ' ' 100 199)" -n 60 -c 128 --kv shift --context-shift $how --ignore-eos --ids; done
    printf '%s\n' 'sink 4' 'recent 20' '0 0' '1 1' '5 0' '6 0' '6 1' >"$work/heads"
    for kv in headwise headwise:ram=850K,group=1; do way "heads $kv" "$gen" -m "$grimm.bmc" --prompt-ids "$text" -n 12 --kv $kv --chunk 60 --retrieval-heads "$work/heads" --ignore-eos --ids; done
    way score "$gen" -m "$grimm.bmc" --score -f "$root/LICENSE" -c 128 --stride 32 --format json
    way imatrix "$gen" -m "$grimm.bmc" --score -f "$root/LICENSE" --summary --save-imatrix "$work/imatrix"
    cksum <"$work/imatrix"
    for pooling in mean last cls; do way "embed $pooling" "$gen" -m "$grimm.bmc" --embed --pooling $pooling -f "$root/LICENSE"; done
    for n in 3 41 17 60 9; do echo "{\"prompt_ids\": [$(seq -s , 3 $((n + 3)))], \"n\": $((5 + n % 7)), \"ignore_eos\": true}"; done >"$work/ragged"
    cd "$root/tests/fixtures/families"
    for name in llama-yarn mistral gemma4 qwen35 falcon-h1 deepseek-v2-moe mixtral-fused; do
        "$1/bmc-convert" $name -o "$work/m.bmc" -q >/dev/null 2>&1
        for chunk in 1 7; do way "$name chunk $chunk" "$gen" -m "$work/m.bmc" --prompt-ids "$prompt" -n 10 --chunk $chunk --ignore-eos --ids; done
        way "$name attn" "$gen" -m "$work/m.bmc" --prompt-ids "$prompt" -n 10 --attn blas --ignore-eos --ids
        way "$name batch" "$gen" -m "$work/m.bmc" --jsonl -np 3 -f "$work/ragged"
        way "$name drafts" "$spec" -m "$work/m.bmc" --lookup -k 4 --always --jsonl -np 3 -f "$work/ragged"
        way "$name save" "$gen" -m "$work/m.bmc" --prompt-ids "$prompt" -n 10 --ignore-eos --ids --save-kv "$work/s.kv"
        way "$name load" "$gen" -m "$work/m.bmc" --load-kv "$work/s.kv" -n 10 --ignore-eos --ids
        case $name in
        llama-yarn) way "$name adapters" "$gen" -m "$work/m.bmc" --prompt-ids "$prompt" -n 10 --lora ../lora/llama --lora ../lora/second:0.5 --ignore-eos --ids ;;
        deepseek* | mixtral*) way "$name disk" "$gen" -m "$work/m.bmc" --prompt-ids "$prompt" -n 10 --experts ram=80K --ignore-eos --ids ;;
        esac
    done
}

# Prints "LABEL IDS HASH", or the error, of one run.
one() { # BIN LABEL MODEL OPTION..
    bin=$1 label=$2 model=$3
    shift 3
    ids=$("$bin/bmc-gen" -m "$model" --prompt-ids "$prompt" -n 6 --ids --ignore-eos -q -t 2 --stats "$work/stats" "$@" 2>&1 </dev/null | tr '\n' ' ' | sed "s|$work/*||g")
    echo "$label $ids$(sed -n 's/.*"logits_hash":"\([0-9a-f]*\)".*/\1/p' "$work/stats" 2>/dev/null)"
    rm -f "$work/stats"
}

runs() { # BIN NAME MODEL
    if [ "${FULL:-}" = 1 ]; then
        for kv in $policies; do for isa in $sets; do for p in $precisions; do for c in $caches; do
            one "$1" "$2 $kv $isa $p $c" "$3" --kv "$kv" --isa "$isa" --precision "$p" --cache-type "$c"
        done; done; done; done
        return
    fi
    for kv in $policies; do one "$1" "$2 --kv $kv" "$3" --kv "$kv"; done
    for isa in $sets; do one "$1" "$2 --isa $isa" "$3" --isa "$isa"; done
    for p in $precisions; do one "$1" "$2 --precision $p" "$3" --precision "$p"; done
    for c in $caches; do one "$1" "$2 --cache-type $c" "$3" --cache-type "$c"; done
}

# Quantises the default model. Types of eight weights per point need an importance matrix.
typed() { # BIN TYPE OPTION..
    bin=$1 type=$2
    shift 2
    # shellcheck disable=SC2086 # words
    "$bin/bmc-convert" "$root/models.d/grimm" $pure --type "$type" "$@" -o "$work/m.bmc" -q >/dev/null 2>&1
}

lines() { # BIN
    cd "$root/tests/fixtures/families"
    for name in ${FAMILIES:-*}; do
        [ -f "$name/config.json" ] || continue
        "$1/bmc-convert" "$name" -o "$work/m.bmc" -q >/dev/null 2>&1 || { echo "$name: not converted"; continue; }
        runs "$1" "$name" "$work/m.bmc"
    done
    "$1/bmc-convert" --help | grep -q -e --pure && pure=--pure || pure=
    "$1/bmc-gen" -q -m "$root/models.d/grimm.bmc" --score -f "$root/LICENSE" --summary --save-imatrix "$work/imatrix" >/dev/null
    for type in $types; do
        if typed "$1" "$type" || typed "$1" "$type" --imatrix "$work/imatrix"; then
            runs "$1" "grimm-$type" "$work/m.bmc"
        else
            echo "grimm-$type: not converted"
        fi
    done
    ways "$1"
}

# Types of weights; mixtures of K types are left to their base types.
types=$([ "${FAMILIES:-}" = none ] || "${OLD:-$root/bin}/bmc-convert" --help | tr -d '\n' | sed -n 's/.*weight matrices: auto, \([^;]*\);.*/\1/p' |
    sed 's/ or /, /; s/,//g; s/\(q[0-9]_k\)_[lms]/\1/g' | tr -s ' ' '\n' | sort -u)
if [ -z "${OLD:-}" ]; then
    lines "$root/bin"
    exit
fi
OLD=$(cd "$OLD" && pwd)
lines "$OLD" >"$work/old"
lines "$root/bin" >"$work/new"
wc -l <"$work/new" | sed 's/$/ runs/'
diff "$work/old" "$work/new" && echo "no difference"
