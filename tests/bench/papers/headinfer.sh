#!/bin/sh
# Entries of the HeadInfer paper: sh tests/bench/papers/headinfer.sh ENTRY. DIR (/var/tmp) is the folder of offloaded heads.
set -eu
. "$(dirname "$0")/lib.sh"
export DIR="${DIR:-/var/tmp}"

# Tables 3 and 5: measured with a small model; the paper's shapes, and table 4, by arithmetic.
tab3() {
    LIMITS_MB=$(pick 200 "200 225 250") LARGEST=$(pick 16384 65536) THREADS=$threads sh tests/bench/headwise_limit.sh 2>"$work/error" | grep '^|' >"$work/measured" || fail "$(tail -n 1 "$work/error")"
    markdown <"$work/measured"
    DEPTHS=' ' PROMPTS=' ' sh tests/bench/headwise_lengths.sh 2>"$work/error" | grep '^|.*[a-z]' >"$work/small"
    DEPTHS=' ' PROMPTS=' ' MEMORY_GB=150 SHAPES=llama-3-70b:70.6 sh tests/bench/headwise_lengths.sh 2>>"$work/error" | grep '^| llama-3-70b' | sed 's/70b/70b, 150 GB/' >>"$work/small"
    head -n 7 "$work/small" | markdown
    direction "longest prompt, head by head over the whole cache, SmolLM2-135M" "$(awk -F ' *[|] *' '/^[|] 200/ { print "[" $6 / $3 "]" }' "$work/measured")" 1 measured | jq -c '.exact = true'
    note "The second table is arithmetic: weights in bf16, an entry per token and head; the paper counts activations, too (4,096,000 instead of 45,000 tokens)."
}

# Figures 5 and 8, tables 12 and 13.
fig5() {
    for round in $(seq "$(turns 3 5)"); do
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
    SIZES='4 1' PARTS=memory sh tests/bench/headwise.sh >"$work/out" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    grep '^|' "$work/out" | markdown
    awk -F ' *[|] *' '$2 ~ /^(all|8|4|1)( |$)/ && NF == 6 { print $2 "\t" $5 }' "$work/out" >"$work/cells"
    while IFS="$(printf '\t')" read -r group ratio; do
        counted "resident cache, measured over computed, heads per group: $group" "$ratio" 0.97 1.03 "$group"
    done <"$work/cells"
    # weights, cache and activations of the paper's rows, GiB
    while read -r name tokens kv type paper; do
        bin/bmc-prof memory --shape llama-3-8b -np 1 -p "$tokens" -n 1 --kv "$kv" --cache-type "$type" --megabytes 1 --profile none --format json >"$work/rows" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
        jq -c --arg name "$name" --argjson paper "$paper" '[.rows[] | select(.peak_bytes)][0] | def g: . / 1073741824 * 100 | round / 100;
            [$name, (.weight_bytes | g), ((.peak_bytes - .weight_bytes - .activation_bytes) | g), (.activation_bytes | g), (.peak_bytes | g), $paper]' "$work/rows" >>"$work/totals"
    done <<'END'
chunked-prefill-30K 30720 upfront bf16 19.46
4-bit-cache-45K 46080 upfront q4 19.30
layer-wise-45K 46080 headwise:group=8,ram=400M bf16 18.25
HeadInfer-4000K 4096000 headwise:group=1,ram=4200M bf16 19.61
END
    totals
    note "Prefill is always in chunks here, so activations are those of a chunk: the paper's standard and layer-wise rows have activations of the whole prompt."
}

# totals: of $work/totals, lines [NAME, WEIGHTS, CACHE, ACTIVATIONS, TOTAL, PAPER'S TOTAL]
totals() {
    jq -sc '{kind: "table", title: "GiB of Llama-3-8B in bf16 (bmc-prof memory)", head: ["method", "weights", "KV cache in memory", "activations", "total", "paper"], rows: .}' "$work/totals"
    while IFS="$(printf '\t')" read -r name ratio; do
        counted "total over the paper's, $name" "$ratio" 1 "" "$name"
    done <<END
$(jq -r '"\(.[0])\t\(.[4] / .[5])"' "$work/totals")
END
}

# Figure 1 and table 10: a million tokens; then a real cache of a million entries in all layers of a small model.
tab10() {
    while read -r name kv type paper; do
        bin/bmc-prof memory --shape llama-3-8b -np 1 -p 1048576 -n 1 --kv "$kv" --cache-type "$type" --megabytes 1 --profile none --format json >"$work/rows" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
        jq -c --arg name "$name" --argjson paper "$paper" '[.rows[] | select(.peak_bytes)][0] | def g: . / 1073741824 * 100 | round / 100;
            [$name, (.weight_bytes | g), ((.peak_bytes - .weight_bytes - .activation_bytes) | g), (.activation_bytes | g), (.peak_bytes | g), $paper]' "$work/rows" >>"$work/totals"
    done <<'END'
chunked-prefill upfront bf16 143
layer-wise headwise:group=8,ram=8300M bf16 23.7
HeadInfer headwise:group=1,ram=1060M bf16 16.7
END
    totals
    printf 'family llama\nlayers 4\nhidden 128\nheads 4\nkv_heads 2\nhead_dim 32\nffn 256\nvocab 580\ncontext 1100000\n' >"$work/small.shape"
    depth=$(pick 262144 1000000)
    for kv in upfront "headwise:dir=$DIR,group=1,ram=$((2 * (depth + 1024) * 128 + (12 << 20)))"; do
        bin/bmc-prof bench --shape "$work/small.shape" -np 1 -p 0 -d "$depth" -n 4 --kv "$kv" --cache-type bf16 -r 1 --warmup 0 --profile none -t "$threads" --format json >"$work/real" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
        jq -c --arg kv "${kv%%:*}" '.rows[0] | [$kv, .peak_resident_bytes, .step_ms]' "$work/real" >>"$work/decode"
    done
    jq -sc --argjson depth "$depth" '{kind: "table", title: "A decode step at a depth of \($depth), all layers of a model with 4 layers of 2 KV heads", head: ["cache", "peak bytes of the process", "ms per token"], rows: .}' "$work/decode"
    counted "resident cache over two buffers of a head" "$(jq -s --argjson all $((depth * 1024)) '(.[1][1] - (.[0][1] - $all)) / ($all / 4)' "$work/decode")" 1 1.25 "resident"
    note "The paper's standard, 4-bit and layer-wise rows have activations of the whole prompt, 64 GB; here prefill is in chunks. Layer-wise: 87 GB less those, and those of a chunk."
    note "The resident cache is the process's peak less that of the same process without entries. Two of 8 heads are a quarter."
}

# Tables 6 and 7. lengths COLUMN ROW: samples of a cell over the cell in memory
lengths() {
    cat "$work"/lengths.* | awk -F ' *[|] *' -v row="$1" -v c="$2" -v base="$3" '$2 == row && NF > 6 { a = $c; b = $base; sub(/ .*/, "", a); sub(/ .*/, "", b); if (b > 0) printf "%s%s", n++ ? "," : "[", a / b } END { print n ? "]" : "[]" }'
}
tab6() {
    prompts=$(pick 1024 "1024 10240")
    for round in $(seq "$(turns 3 3)"); do
        ROUNDS=1 DEPTHS=' ' PROMPTS=$prompts sh tests/bench/headwise_lengths.sh 2>"$work/error" | sed -n '/^Seconds for a prompt/,$p' >"$work/lengths.$round"
        [ -s "$work/lengths.$round" ] || fail "$(tail -n 1 "$work/error")"
    done
    grep '^|' "$work/lengths.1" | markdown
    claim "one head per group over in memory, 1024 tokens" "$(lengths 1024 7 3)" 1.91 "" "1K, 1 head"
    claim "8 heads per group over in memory, 1024 tokens" "$(lengths 1024 4 3)" 1.09 "" "1K, 8 heads"
    if [ "$size" = full ]; then claim "one head per group over in memory, 10240 tokens" "$(lengths 10240 7 3)" 1.03 "" "10K, 1 head"; fi
    note "Two layers of Llama-3-8B; the offloaded heads are in a file, not behind PCIe."
}
tab7() {
    depths=$(pick "10240 32768" "10240 32768 102400")
    most=${depths##* }
    for round in $(seq "$(turns 3 5)"); do
        ROUNDS=1 DEPTHS=$depths PROMPTS=' ' sh tests/bench/headwise_lengths.sh 2>"$work/error" | sed -n '/^A decode step/,/^Seconds/p' >"$work/lengths.$round"
        [ -s "$work/lengths.$round" ] || fail "$(tail -n 1 "$work/error")"
        # the memory of two buffers of a head at the largest length
        RAM=$((2 * (most + 512) * 512 + (8 << 20))) SIZES="8 4 2 1 auto" ROUNDS=1 DEPTHS="2048 $depths" PROMPTS=' ' sh tests/bench/headwise_lengths.sh 2>>"$work/error" |
            sed -n '/^| [0-9]/p' >"$work/same.$round"
    done
    grep '^|' "$work/lengths.1" | markdown
    claim "one head per group over 8, context of 10240" "$(lengths 10240 7 4)" 1.56 "" "groups, 10K"
    claim "one head per group over 8, context of 32768 (paper: 40K)" "$(lengths 32768 7 4)" 1.18 "" "groups, 32K"
    claim "offloaded over in memory, 8 heads per group, 32768 (paper: 40K)" "$(lengths 32768 4 3)" 7 "" "offload, 32K"
    if [ "$size" = full ]; then claim "one head per group over 8, context of 102400" "$(lengths 102400 7 4)" 1.08 "" "groups, 100K"; fi
    { printf '| entries | in memory | 8 heads per group | 4 | 2 | 1 | adaptive |\n| --- | --- | --- | --- | --- | --- | --- |\n' && cat "$work/same.1"; } | markdown
    for depth in 2048 $depths; do
        direction "adaptive over the fastest fixed group in the same memory, context of $depth" "$(awk -F ' *[|] *' -v depth="$depth" '
            $2 == depth { least = 1e9; for (i = 4; i < 8; i++) if ($i != "-" && $i + 0 < least) least = $i + 0; printf "%s%s", n++ ? "," : "[", $8 / least } END { print "]" }' "$work"/same.*)" 0 "adaptive, $depth"
    done
    note "Attention of a decode step in four layers; a disk instead of PCIe, no weights read. Second table: the memory of two buffers of one head at the largest length."
}

tab14() {
    for round in $(seq "$(turns 3 5)"); do
        PARTS=streaming DEPTHS=$(pick 32768 131072) SIZES=1 ROUNDS=1 sh tests/bench/headwise.sh >"$work/table.$round" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    done
    grep '^|' "$work/table.1" | markdown
    for step in "decode 1 2" "prefill 512 1.78"; do
        # shellcheck disable=SC2086 # words
        set -- $step
        for where in memory file; do
            claim "$1, all heads over half of them streaming, cache in $where" "$(cat "$work"/table.* | awk -F ' *[|] *' -v where=$where -v tokens="$2" '$2 == where && $3 == tokens { printf "%s%s", n++ ? "," : "[", $4 / $5 } END { print "]" }')" "$3" "" "$1, $where"
        done
    done
    note "Attention of one layer, of one token and of the last 512 of a prompt; 4 attention sinks and the last 256 positions."
}

# Needles: questions over the model of tests/fixtures/needle.
needle() {
    SEEDS=$(pick 1 "1 2 3") LENGTHS=$(pick "1024 4096 16000" "1024 2048 4096 8192 16000") WAYS=$1 NEEDLES=${2:-11} sh tests/bench/needle.sh >>"$work/questions" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
}
# scores KEYS: table of the share of right answers
scores() {
    jq -sc --arg title "$1" 'group_by(.way) | map(.[0].way as $way | group_by(.length) | map([$way, .[0].length, .[0].needles, (map(if .right then 1 else 0 end) | add / length * 100 | round), .[0].resident])) | add |
        {kind: "table", title: $title, head: ["cache", "context", "needles", "right, %", "bytes in memory"], rows: .}' "$work/questions"
}
score() { jq -s "map(select($1)) | map(if .right then 1 else 0 end) | add / length" "$work/questions"; }
reduced="a model of 0.7M parameters with a context of 16K, trained for the task (tests/fixtures/make_needle.py)"

fig6() {
    needle "standard headinfer"
    scores "Needles at 11 depths"
    jq -sc 'def cells($way): map(select(.way == $way)) | sort_by(.length, .seed, .depth) | map(.ids); {kind: "equal", name: "answers of the whole cache and of HeadInfer", values: [(cells("standard") | tojson), (cells("headinfer") | tojson)]}' "$work/questions"
    jq -sc '[.[] | select(.way == "headinfer")] | group_by(.length) | {kind: "figure", title: "HeadInfer: right answers by depth", x_name: "depth, percent", y_name: "percent right",
        series: map({name: "\(.[0].length) tokens", x: (group_by(.depth) | map(.[0].depth * 100)), y: (group_by(.depth) | map(map(if .right then 100 else 0 end) | add / length))})}' "$work/questions"
    counted "share of needles found by HeadInfer" "$(score '.way == "headinfer"')" 1 "" found
    counted "HeadInfer over the whole cache" "$(jq -s '(map(select(.way == "headinfer" and .right)) | length) / (map(select(.way == "standard" and .right)) | length)' "$work/questions")" 1 "" "equal accuracy"
    form "$reduced"
    note "All 11 needles are in one context: each is a distractor for the others."
}

# Tables 8 and 9: Ruler's single and multi-key retrieval.
tab9() {
    needle headinfer 1
    needle "standard headinfer" 11
    scores "Retrieval of one needle, and of one of 11 keys"
    counted "HeadInfer over the whole cache, 11 keys" "$(jq -s '(map(select(.way == "headinfer" and .needles == 11 and .right)) | length) / (map(select(.way == "standard" and .right)) | length)' "$work/questions")" 1 "" accuracy
    # the longest context of the same memory
    bytes=$(jq -s 'map(select(.way == "headinfer" and .length == 16000))[0].resident' "$work/questions")
    counted "context of the same memory, HeadInfer over standard (paper: 8)" "$(awk -v bytes="$bytes" 'BEGIN { print 16000 / (bytes / 1024) }')" 8 "" length
    form "$reduced; two of Ruler's 13 tasks. The model has 8 KV heads, so memory bounds the ratio of lengths by 4 (the paper's has 256)"
}

# Tables 1 and 2: the context cut to what fits in memory, against the whole context head by head.
tab2() {
    needle "truncated headinfer"
    scores "Key-value retrieval, the same memory"
    direction "right answers, HeadInfer over the standard cache cut to the same memory" "$(jq -sc 'def n($w): map(select(.way == $w and .length == 16000 and .right)) | length; [n("headinfer") / ([n("truncated"), 1] | max)]' "$work/questions")" 1 kv | jq -c '.exact = true'
    form "$reduced; key-value retrieval only, SCBench's texts and LongBench need the paper's model"
}

"$entry"
