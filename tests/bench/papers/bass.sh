#!/bin/sh
# Entries of the BASS paper: sh tests/bench/papers/bass.sh ENTRY. Models have the shapes of the paper's and random
# weights; acceptance is simulated, at the paper's rates where it states them (tables 4 and 5).
# shellcheck disable=SC2016 # programs of jq
set -eu
. "$(dirname "$0")/lib.sh"

# tables TABLE SCALE FULL_SCALE PROMPT N BATCHES: rows of spec_tables.sh as samples in $work/samples and a table of the page
tables() {
    SAMPLES=$work/samples ROUNDS=$(turns 3 3) SCALE=$(pick "$2" "$3") PROMPT=$4 N=$5 BATCHES=$6 SETTINGS=$(pick q8_channel:q8 "") \
        sh tests/bench/spec_tables.sh "$1" >"$work/table" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    sed -n '/^|/p' "$work/table" | markdown
    sed -n '/^- /s/^- //p' "$work/table" | sort -u | while IFS= read -r line; do note "$line"; done
}

# ratios FILTER A B: one ratio per round; FILTER selects a cell, A and B are lists of values of it
ratios() { jq -sc "[.[] | select($1)][0] | ($2) as \$a | ($3) as \$b | [range(\$a | length) | \$a[.] / \$b[.]]" "$work/samples"; }

# Tables 1 to 3. latency TABLE SCALE FULL_SCALE PROMPT N, and lines "SETTING BATCH FIRST ALL" of the paper's speedups
latency() {
    batches=$(pick "1 4" "1 2 4 8")
    tables "$1" "$2" "$3" "$4" "$5" "$batches"
    while read -r setting batch first all; do
        jq -se --arg setting "$setting" --argjson batch "$batch" 'any(.setting == $setting and .batch == $batch)' "$work/samples" >/dev/null || continue
        cell=".setting == \"$setting\" and .batch == $batch"
        claim "first sequence, $setting, batch $batch" "$(ratios "$cell" '[.rd[][0]]' '[.speculative[][0]]')" "$first" "" "first, $batch"
        claim "all sequences, $setting, batch $batch" "$(ratios "$cell" '[.rd[][2]]' '[.speculative[][2]]')" "$all" "" "all, $batch"
    done
}

tab1() {
    latency bass-1 1/8 1/4 "$(pick 64 1024)" "$(pick 32 128)" <<'END'
q8_channel:q8 1 2.05 2.05
q8_channel:q8 2 2.57 2.16
q8_channel:q8 4 2.58 1.88
q8_channel:q8 8 2.44 1.62
bf16:bf16 1 2.16 2.16
bf16:bf16 2 2.74 2.34
bf16:bf16 4 2.81 2.13
END
    form "acceptance simulated at the rate of table 5, 78.5 %; the paper's ROUGE-2 scores need its models"
}

tab2() {
    latency bass-2 1/10 1/10 "$(pick 32 160)" "$(pick 32 128)" <<'END'
q8_channel:q8 1 1.82 1.82
q8_channel:q8 2 2.11 1.94
q8_channel:q8 4 2.07 1.81
q8_channel:q8 8 1.98 1.53
bf16:bf16 1 2.31 2.31
bf16:bf16 2 2.65 2.43
bf16:bf16 4 2.50 2.07
bf16:bf16 8 2.51 1.94
END
    form "random weights; the paper does not state CodeGen's acceptance rate: 80 % is assumed"
}

tab3() {
    latency bass-3 1/4 1/4 "$(pick 32 160)" "$(pick 32 128)" <<'END'
q8_channel:q8 1 2.99 2.99
q8_channel:q8 2 3.03 2.79
q8_channel:q8 4 2.84 2.44
q8_channel:q8 8 2.73 2.15
bf16:bf16 1 3.10 3.10
bf16:bf16 2 3.16 2.94
bf16:bf16 4 3.23 2.64
bf16:bf16 8 2.92 2.25
END
    form "acceptance simulated at the rate of table 4, 87.4 %; Pass@Batch needs the paper's models"
}

# Tables 4 and 5. drafts TABLE SCALE FULL_SCALE PROMPT N, and lines "DRAFT BATCH DRAFT_PTL FIRST_PTL" of the paper,
# relative to its first draft
drafts() {
    tables "$1" "$2" "$3" "$4" "$5" "$(pick "1 4" "1 2 4 8")"
    jq -sc 'map(select(.metric == "first")) | group_by(.draft) | {kind: "figure", title: "Time per token, first sequence", x_name: "batch", y_name: "ms", log2_x: true,
        series: map({name: .[0].draft, x: map(.batch), y: map(.ms | sort[length / 2 | floor])})}' "$work/samples"
    first=$(jq -rs '.[0].draft' "$work/samples")
    while read -r draft batch draft_ptl first_ptl; do
        jq -se --argjson batch "$batch" 'any(.batch == $batch)' "$work/samples" >/dev/null || continue
        for pair in "draft $draft_ptl" "first $first_ptl"; do
            metric=${pair% *}
            samples=$(jq -sc --arg metric "$metric" --argjson batch "$batch" --arg a "$draft" --arg b "$first" '
                map(select(.metric == $metric and .batch == $batch)) | (map(select(.draft == $a))[0].ms) as $x | (map(select(.draft == $b))[0].ms) as $y |
                [range($x | length) | $x[.] / $y[.]]' "$work/samples")
            claim "$(if [ "$metric" = draft ]; then echo "draft's time per token"; else echo "first sequence"; fi), $draft over $first, batch $batch" "$samples" "${pair#* }" "" "$metric, $draft, $batch"
        done
    done
}

tab4() {
    drafts bass-4 1/4 1/4 "$(pick 32 160)" "$(pick 32 128)" <<'END'
bass-draft-510m 1 1.37 1.22
bass-draft-510m 4 1.35 1.22
bass-draft-510m 8 1.35 1.31
bass-draft-1b 1 1.32 1.22
bass-draft-1b 4 1.35 1.27
bass-draft-1b 8 1.40 1.33
END
    form "acceptance simulated at the paper's rates: 87.4, 88.5 and 87.2 %"
}

tab5() {
    drafts bass-5 1/8 1/4 "$(pick 64 1024)" "$(pick 32 128)" <<'END'
opt-350m 1 2.23 1.67
opt-350m 4 1.70 1.91
opt-350m 8 1.75 1.73
END
    form "acceptance simulated at the paper's rates: 78.5 and 76.3 %"
}

# Table 6: choices over the default, first sequence.
tab6() {
    SAMPLES=$work/samples ROUNDS=$(turns 3 3) SCALE=1/8 TARGETS=$(pick opt-13b "") PROMPT=$(pick 64 "") N=$(pick 32 128) BATCHES=$(pick 4 "2 4 8") \
        sh tests/bench/spec_tables.sh bass-6 >"$work/table" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    sed -n '/^|/p' "$work/table" | markdown
    while read -r target choice paper; do
        choice=$(echo "$choice" | tr _ ' ')
        jq -se --arg target "$target" 'any(.target == $target)' "$work/samples" >/dev/null || continue
        samples=$(jq -sc --arg target "$target" --arg choice "$choice" 'map(select(.target == $target and .batch == 4)) |
            (map(select(.choice == $choice))[0].ms) as $x | (map(select(.choice == ""))[0].ms) as $y | [range($x | length) | $x[.] / $y[.]]' "$work/samples")
        claim "first sequence, $choice over the default, $target, batch 4" "$samples" "$paper" "" "$target $choice"
    done <<'END'
opt-13b --ragged_split 1.12
opt-13b -k_4 1.17
opt-13b -k_6 1.10
opt-13b -k_8 1.11
codegen-16b --ragged_split 1.19
codegen-16b -k_4 1.04
codegen-16b -k_6 0.99
codegen-16b -k_8 0.97
bass-7.8b --ragged_split 1.07
bass-7.8b -k_4 1.24
bass-7.8b -k_6 1.20
bass-7.8b -k_8 1.05
END
    form "acceptance simulated at the rates of tables 4 and 5; the paper's batches of 4, its times are those of table 6"
}

# Figure 1: time per token and share of the peak rate, by batch. Operations are two per weight and generated token.
fig1() {
    tables bass-3 1/4 1/4 "$(pick 32 160)" "$(pick 32 128)" "$(pick "1 4 8" "1 2 4 8 16")"
    prof roof roof --repeat 3
    peak=$(jq '.rows[0] | [.int8_gop_s // empty, .f32_gflop_s] | max' "$work/roof")
    weights=$(sed -n 's/^- bass-7.8b (\([0-9]*\) of.*/\1/p' "$work/table" | awk '{ printf "%.0f", ($1 * 12 * 5120 + 51200) * 5120 }')
    jq -sc --argjson peak "$peak" --argjson weights "$weights" --arg setting q8_channel:q8 'map(select(.setting == $setting)) | sort_by(.batch) |
        def use($way): map((.[$way] | map(.[2]) | sort[length / 2 | floor]) as $ms | .batch / $ms * 2 * $weights / 1e6 / $peak * 100);
        def ms($way): map(.[$way] | map(.[2]) | sort[length / 2 | floor]);
        {kind: "figure", title: "Share of the peak rate by time per token, batches of 1 to 16", x_name: "ms per token", y_name: "percent of the peak",
         series: [{name: "regular", x: ms("rd"), y: use("rd")}, {name: "speculative, batched", x: ms("speculative"), y: use("speculative")}]}' "$work/samples"
    for batch in $(pick "1 4 8" "1 4 16"); do
        direction "utilisation, speculative over regular, batch $batch" "$(ratios ".setting == \"q8_channel:q8\" and .batch == $batch" '[.rd[][2]]' '[.speculative[][2]]')" 1 "batch $batch"
    done
    samples=$(jq -sc 'map(select(.setting == "q8_channel:q8")) | ([.[] | select(.batch == 8)][0].speculative) as $b | ([.[] | select(.batch == 1)][0].speculative) as $one |
        [range($b | length) | 8 * $one[.][2] / $b[.][2]]' "$work/samples")
    direction "the same, speculative, batch 8 over one sequence" "$samples" 1 "8 over 1"
    form "acceptance simulated at the paper's 87.4 %"
    note "Peak: $peak G operations per second (bmc-prof roof). The paper's A100 is used to 0.4 % by one regular sequence, at most 4.8 % by batches and 15.8 % with BASS."
}

# Figure 5: answers of a batch that are finished within a time budget. The paper's 2.5 s for 256 tokens are 0.888 of what
# regular decoding of one sequence takes (table 3, int8: 11.0 ms per token); the budget here is the same share of that
# measured here. No code model is at hand, so what is finished is counted, not what is right.
fig5() {
    n=$(pick 32 128) batches=$(pick "1 4 8" "1 2 4 8 16")
    for model in target:bass-7.8b:6 draft:bass-draft-310m:1; do
        IFS=: read -r name shape layers <<END
$model
END
        sed "s/^layers .*/layers $layers/" "models.d/shapes/$shape.shape" >"$work/$name.shape"
        bin/bmc-convert -q --synth "$work/$name.shape" --type q8_channel -o "$work/$name.bmc" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    done
    # answers BATCH OPTION ..: finished answers; $work/stats
    answers() {
        batch=$1
        shift
        bin/bmc-spec -q -m "$work/target.bmc" -d "$work/draft.bmc" --cache-type q8 --prompt-ids "$(seq -s ' ' 40 71)" --samples "$batch" -n "$n" -t "$threads" --temp 0.2 \
            --ignore-eos --always --simulate-acceptance 0.874 --profile none --stats "$work/stats" "$@" >"$work/answers" 2>"$work/error" ||
            grep -q 'answers was finished in time' "$work/error" || fail "$(head -n 1 "$work/error")"
        wc -l <"$work/answers"
    }
    took() { jq '(.prefill_ms + .decode_ms + .sample_ms)' "$work/stats"; }
    for round in $(seq "$(turns 3 5)"); do
        answers 1 -k 0 >"$work/count"
        regular=$(took)
        budget=$(awk -v ms="$regular" 'BEGIN { printf "%d", ms * 0.888 }')
        for batch in $batches; do
            answers "$batch" -k bass >"$work/count"
            awk -v budget="$budget" -v ms="$(took)" 'BEGIN { print budget / ms }' >>"$work/over.$batch"
            echo "$batch $(answers "$batch" -k 0 --budget "${budget}ms") $(answers "$batch" -k bass --budget "${budget}ms")" >>"$work/finished"
        done
    done
    for batch in $batches; do
        direction "budget over the time of the last answer, speculative, batch $batch" "$(paste -sd , "$work/over.$batch" | sed 's/.*/[&]/')" 1 "last answer, $batch"
    done
    jq -Rsc '[split("\n")[] | select(. != "") | split(" ") | map(tonumber)] | group_by(.[0]) | map({b: .[0][0], r: (map(.[1]) | sort[length / 2 | floor]), s: (map(.[2]) | sort[length / 2 | floor])}) |
        {kind: "table", title: "Answers finished within the budget, medians", head: ["batch", "regular decoding", "speculative"], rows: map([.b, .r, .s])},
        {kind: "figure", title: "Answers finished within the budget", x_name: "batch", y_name: "answers", log2_x: true,
         series: [{name: "regular", x: map(.b), y: map(.r)}, {name: "speculative, batched", x: map(.b), y: map(.s)}]}' "$work/finished"
    note "7.8B shape with a quarter of the layers, int8, $n tokens per answer; acceptance simulated at the paper's 87.4 %."
    form "random weights: the share of right answers (the paper's Pass@First and Pass@Finished) needs a code model, for tests/bench/passk.sh"
}

"$entry"
