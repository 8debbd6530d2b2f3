#!/bin/sh
# Entries of the segment paper: sh tests/bench/papers/segment.sh ENTRY.
set -eu
. "$(dirname "$0")/lib.sh"

# Sizes, and a real cache beside them.
fig4() {
    for shape in gpt-j-6b llama-2-13b opt-30b bloom-176b; do
        prof rows memory --shape $shape -np 1,8,16,32 --beams 4 -p 1024 -n 1024 --cache-type f16 --kv segment --megabytes 256
        if [ $shape = gpt-j-6b ]; then
            counted "eq. 3 over eq. 2, 32 prompts, $shape" "$(jq '[.rows[] | select(.batch == 32)] | ([.[] | select(.policy == "segment (eq. 3)")][0].kv_bytes) / ([.[] | select(.policy == "standard (eq. 2)")][0].kv_bytes)' "$work/rows")" 0.628 "" sizes
        fi
        jq -c --arg shape $shape '.rows | group_by(.batch)[] | map({(.policy): .}) | add | [$shape, .segment.batch, ."standard (eq. 2)".kv_bytes / 1e9, ."segment (eq. 3)".kv_bytes / 1e9, .segment.run_over]' "$work/rows" >>"$work/table"
    done
    jq -sc '{kind: "table", title: "GB of an f16 cache, 1024 + 1024 tokens, 4 beams", head: ["model", "prompts", "standard (eq. 2)", "segment (eq. 3)", "real cache over computed"], rows: .}' "$work/table"
    jq -sc '[.[] | select(.[0] == "gpt-j-6b")] | {kind: "figure", title: "GPT-J-6B: GB of the cache by prompts", x_name: "prompts", y_name: "GB", log2_x: true, series: [{name: "standard", x: map(.[1]), y: map(.[2])}, {name: "segment", x: map(.[1]), y: map(.[3])}]}' "$work/table"
    note "The paper has 86 GB instead of 137 GB for 32 prompts of GPT-J-6B, with 32 layers where the model has 28."
}

# Rows of beam_latency.sh, one round per run: "model | prompt + answer | beams | .." with speedups in columns 6 and 9.
latency() { # SHAPE PROMPTS BEAMS ANSWER
    for round in $(seq "$(turns 3 5)"); do
        SHAPES=$1 PROMPTS=$2 BEAMS=$3 ANSWERS=$4 ROUNDS=1 sh tests/bench/beam_latency.sh >"$work/table.$round" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    done
    grep '^|' "$work/table.1" | markdown
}
# column PROMPT BEAMS NUMBER: samples of a speedup
column() { cat "$work"/table.* | awk -F ' *[|] *' -v prompt="$1 " -v beams="$2" -v c="$3" 'index($3, prompt) == 1 && $4 == beams { printf "%s%s", n++ ? "," : "[", $c } END { print "]" }'; }

fig7() {
    latency llama-2-13b "$(pick "32 128 512" "32 128 512 1024 2048")" 4 "$(pick 8 32)"
    for prompt in $(pick "32 128 512" "32 128 512 1024 2048"); do
        claim "TTFT, standard over segment, prompt of $prompt" "$(column "$prompt" 4 7)" 4 7 "TTFT $prompt"
        direction "TPOT, standard over segment, prompt of $prompt" "$(column "$prompt" 4 10)" 1 "TPOT $prompt"
    done
    note "One layer of Llama-2-13B in bf16, 4 beams. TTFT is W by construction: the standard way computes the prompt for each beam."
}

fig8() {
    latency gpt-j-6b "$(pick 256 1024)" "1 4" "$(pick 8 32)"
    for beams in 1 4; do
        claim "TTFT, standard over segment, W = $beams" "$(column "$(pick 256 1024)" $beams 7)" "$(if [ $beams = 1 ]; then echo 1.1; else echo 4; fi)" "$(if [ $beams = 1 ]; then echo 2; else echo 7; fi)" "TTFT W $beams"
        direction "TPOT, standard over segment, W = $beams" "$(column "$(pick 256 1024)" $beams 10)" 1 "TPOT W $beams"
    done
    note "One layer of GPT-J-6B in bf16."
}

# Attention of 4 beams, each round a run of attention_beams.sh. shared POLICY SWAPS BATCH: samples of the share of the read rate
shared() {
    cat "$work"/round.* | sed -n "s/^$1, swaps $2: B = $3, .* share \([0-9.]*\)\$/\1/p" | awk '$1 > 0 { printf "%s%s", n++ ? "," : "[", $1 } END { print n ? "]" : "[]" }'
}
fig6() {
    batches=$(pick 4 "1 4 8 16") answers=$(pick 32 "32 128")
    for round in $(seq "$(turns 3 5)"); do
        ROUNDS=1 BATCHES=$batches ANSWERS=$answers PROMPT=1024 sh tests/bench/attention_beams.sh >"$work/round.$round" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
        sed -n 's/^time of the second over the first: //p' "$work/round.$round" | head -n 1 >>"$work/any"
        # the separate entries' time over segment's, of the first batch: both read the same distinct entries
        sed -n 's/^\(segment\|upfront\), swaps none: .* entries, \([0-9.]*\) ms.*/\2/p' "$work/round.$round" | head -n 2 | paste -sd ' ' >>"$work/ways"
    done
    grep '^[su]' "$work/round.1" | sed 's/^/| /; s/$/ |/; s/: /: | /; 1a | --- | --- |' | markdown
    for batch in $batches; do share "attention's share of the read rate, segment, $batch prompts" "$(shared segment none "$batch")" 0.72 0.94 "$batch prompts"; done
    direction "separate entries per beam over segment, time" "$(awk '{ printf "%s%s", n++ ? "," : "[", $2 / $1 } END { print "]" }' "$work/ways")" 1 "separate over segment"
    direction "reordered at every token over fixed order, time (4 prompts)" "$(awk '{ printf "%s%s", n++ ? "," : "[", $1 } END { print "]" }' "$work/any")" 0 reordered
    # The prompt of each sequence in one piece, or its entries between those of the others: the same products by oneDNN.
    make -s build/gcc/bench/eager_products
    for batch in 1 4 $(pick "" 16); do
        for round in $(seq "$(turns 3 5)"); do
            build/gcc/bench/eager_products "$batch" 40 4 128 3 >"$work/layout.$round" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
        done
        for product in scores values; do
            direction "[N][B][H][D] over [B][N][H][D], $product, $batch prompts" "$(awk -v p=$product '$1 == 1024 && $2 == p { print $9 / $8 }' "$work"/layout.* | jq -sc .)" "$((batch > 1))" "layout, $batch prompts, $product"
        done
    done
    note "One layer of Llama-2-13B in f16, 4 beams over 1024 + $answers entries; the order of entries in f32, by oneDNN, one thread."
}

fig9() {
    shape=$(pick tinyllama-1.1b gpt-j-6b)
    for round in $(seq "$(turns 3 3)"); do
        SHAPE=$shape TYPE=q8_0 MEMORY_MB=$(pick 128 4096) PROMPT=$(pick 256 1024) ANSWER=$(pick 16 128) ROUNDS=1 sh tests/bench/beam_throughput.sh >"$work/round.$round" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    done
    grep -E '^(iterative|segment):' "$work/round.1" | while IFS= read -r line; do note "$line"; done
    claim "tokens per second, segment over the standard way, $shape" "$(cat "$work"/round.* | awk '/^tokens a second, segment/ { a = $NF } /^tokens a second, standard/ { printf "%s%s", n++ ? "," : "[", a / $NF } END { print "]" }')" 8 27 throughput
    note "q8_0 weights, 2 layers, $(pick 128 4096) MiB for the cache of the whole model; Hugging Face's way is policy iterative."
}

"$entry"
