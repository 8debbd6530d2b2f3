#!/bin/sh
# Ids and logits hashes of all family fixtures under every policy, kernel set, precision and cache type, and of
# every type of weights: one line each, to be compared between two builds whose results must be equal.
#
#   sh tests/bench/hashes.sh                        prints the lines of the programs in bin/
#   OLD=../old/bin sh tests/bench/hashes.sh         compares them with another build; exit status 1 if any differs
#
#   FAMILIES   fixtures (all)
#   FULL       1: the product of policies, sets, precisions and cache types instead of one at a time
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-hashes.XXXXXX")
trap 'rm -rf "$work"' EXIT
policies="bmc bmc:T=1 iterative upfront paged:16 reserve segment shift headwise"
sets=$("$root/bin/bmc-gen" --version | sed -n 's/^isa: .*usable: //p' | tr -d ,)
precisions="f32 bf16x2 bf16 int8"
caches="f32 bf16 f16 q8 q4 q4h"
prompt=$(seq -s ' ' 3 2 120)

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

lines() { # BIN
    cd "$root/tests/fixtures/families"
    for name in ${FAMILIES:-*}; do
        [ -f "$name/config.json" ] || continue
        "$1/bmc-convert" "$name" -o "$work/m.bmc" -q >/dev/null 2>&1 || { echo "$name: not converted"; continue; }
        runs "$1" "$name" "$work/m.bmc"
    done
    for type in $("$1/bmc-convert" --help | tr -d '\n' | sed -n 's/.*weight matrices: auto, \([^;]*\);.*/\1/p' | sed 's/ or /, /; s/,//g'); do
        "$1/bmc-convert" "$root/models.d/grimm" --type "$type" -o "$work/m.bmc" -q >/dev/null
        runs "$1" "grimm-$type" "$work/m.bmc"
    done
}

if [ -z "${OLD:-}" ]; then
    lines "$root/bin"
    exit
fi
OLD=$(cd "$OLD" && pwd)
lines "$OLD" >"$work/old"
lines "$root/bin" >"$work/new"
wc -l <"$work/new" | sed 's/$/ runs/'
diff "$work/old" "$work/new" && echo "no difference"
