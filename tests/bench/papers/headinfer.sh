#!/bin/sh
# Entries of the HeadInfer paper: sh tests/bench/papers/headinfer.sh ENTRY. DIR (/var/tmp) is the folder of offloaded heads.
set -eu
. "$(dirname "$0")/lib.sh"
export DIR="${DIR:-/var/tmp}"

# Tables 3 to 5: arithmetic.
tab3() {
    DEPTHS='' PROMPTS='' SHAPES='llama-3-8b:8.03 mistral-7b:7.24 qwen2-7b:7.62 llama-2-7b:6.74' DEPTHS=' ' PROMPTS=' ' sh tests/bench/headwise_lengths.sh 2>"$work/error" | sed -n '/^Longest/,/^$/p' >"$work/out"
    DEPTHS=' ' PROMPTS=' ' MEMORY_GB=150 SHAPES=llama-3-70b:70.6 sh tests/bench/headwise_lengths.sh 2>>"$work/error" | sed -n '/^| llama-3-70b/p' >"$work/large"
    DEPTHS=' ' PROMPTS=' ' sh tests/bench/headwise_lengths.sh 2>>"$work/error" | awk '/^\| shape/, /^$/' >"$work/small"
    markdown <"$work/small"
    { echo "Llama-3-70B with 150 GB:"; grep -m 2 '^|' "$work/small"; cat "$work/large"; } | markdown
    counted "longest context, head by head over the whole cache, Llama-3-8B" "$(awk -F ' *[|] *' '/^\| llama-3-8b/ { print $8 / $4 }' "$work/small")" 91 "" lengths
    note "Sizes, not measured: weights in bf16, an entry per token and head; the paper counts activations, too (4,096,000 instead of 45,000 tokens)."
}

# Figures 5 and 8, tables 12 and 13.
fig5() {
    for round in $(seq "$(pick 3 5)"); do
        ROUNDS=1 DEPTHS="$(pick "1024 10240" "1024 10240 102400")" sh tests/bench/headwise_roofline.sh >"$work/table.$round" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    done
    markdown <"$work/table.1"
    for depth in $(pick 10240 "10240 102400"); do
        slow=$(cat "$work"/table.* | awk -F ' *[|] *' -v d="$depth" '/^\| decode/ && $3 == d && /groups of 1 / { printf "%s%s", n++ ? "," : "[", $(NF - 2) } END { print "]" }')
        direction "decode, offloaded over in memory, context of $depth" "$slow" 1 "decode $depth"
        flat=$(cat "$work"/table.* | awk -F ' *[|] *' -v d="$depth" '/^\| prefill/ && $3 == d && /groups of 1 / { printf "%s%s", n++ ? "," : "[", $(NF - 2) } END { print "]" }')
        direction "prefill, the same (compute-bound: 1)" "$flat" 0 "prefill $depth"
    done
    note "Attention of one layer of Llama-3-8B; the paper's decode is 77 times slower with offload over PCIe, here it depends on the disk."
}

tab11() {
    SIZES='4 1' DEPTHS='' sh tests/bench/headwise.sh >"$work/out" 2>"$work/error" || [ -s "$work/out" ] || fail "$(tail -n 1 "$work/error")"
    sed -n '/layers of/,/^every/p' "$work/out" | markdown
    awk -F ' *[|] *' '$2 ~ /^(all|8|4|1)( |$)/ && NF == 6 { print $2 "\t" $5 }' "$work/out" >"$work/cells"
    while IFS="$(printf '\t')" read -r group ratio; do
        counted "resident cache, measured over computed, heads per group: $group" "$ratio" 0.97 1.03 "$group"
    done <"$work/cells"
}

"$entry"
