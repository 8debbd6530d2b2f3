# tests/bench/spec_tables.sh in its quick mode: every form of table can be produced. Models are
# tiny, so only relations between values are checked.
load ../helper

setup_file() {
    mkdir "$BATS_FILE_TMPDIR/tools"
    ln -s "$(command -v gojq)" "$BATS_FILE_TMPDIR/tools/jq" # starts faster
}

tables() { BMC_BIN=$BMC_BIN PATH=$BATS_FILE_TMPDIR/tools:$PATH QUICK=1 REQUESTS=1 ok sh "$ROOT/tests/bench/spec_tables.sh" "$@"; }

# cells LINE-PATTERN: the cells of matching lines, tab-separated, without units
cells() { grep -E "$1" <<<"$output" | sed 's/^| //; s/ *|$//; s/ *| */\t/g; s/ ms//g; s/x\t/\t/g; s/x$//'; }

@test "BASS tables 1 to 3: time per token by precision, batch and method" {
    N=64 BATCHES="1 4" tables bass-3 -- --batch-knee 264
    assert_equal "$(cells '^\| (bf16|q8)' | cut -f 1-3 | paste -sd,)" \
        "$(printf '%s\t%s\t%s\n' bf16:bf16 1 RD bf16:bf16 1 speculative bf16:bf16 4 RD bf16:bf16 4 speculative \
            q8_channel:q8 1 RD q8_channel:q8 1 speculative q8_channel:q8 4 RD q8_channel:q8 4 speculative | paste -sd,)"
    # Of one sequence, the first is the last. Ratios are to regular decoding.
    run awk -F '\t' 'NF != 10 || $4 + 0 <= 0 || $4 + 0 > $8 + 0 || $8 + 0 > $6 + 0 { print "times: " $0 }
        $2 == 1 && ($4 + 0 != $6 + 0 || $4 + 0 != $8 + 0) { print "of one sequence: " $0 }
        $3 == "RD" && ($5 != 1 || $7 != 1 || $9 != 1 || $10 != 1) { print "RD: " $0 }
        $3 != "RD" && $10 <= 1.2 { print "nothing accepted: " $0 }' <(cells '^\| (bf16|q8)')
    assert_output ""
}

@test "BASS tables 4 and 5: a column per draft; table 6: a row per choice" {
    tables bass-5 bass-6
    assert_equal "$(cells '^\| (draft model|#layer|token)' | paste -sd,)" "draft model	opt-125m	opt-350m,#layer	12	24,token acceptance rate (simulated)	78.5 %	76.3 %"
    assert_equal "$(cells 'PTL, batch size 2' | awk -F '\t' 'NF == 3 && $2 > 0 && $3 > 0' | wc -l)" 2
    assert_equal "$(cells '1st Seq PTL .ms' | cut -d : -f 1 | paste -sd,)" opt-13b,codegen-16b,bass-7.8b
    assert_equal "$(cells '^\| (one|BASS|fixed)' | awk -F '\t' 'NF == 2 && $2 > 0' | wc -l)" 18
}

@test "BMC table III, figures 12 and 13: policies with and without speculation" {
    jq -nc '{category: "math_reasoning", turns: ["one two three"], reference: ["four five six"]}, {category: "rag", turns: ["a b c"]}' >questions
    QUESTIONS=questions tables bmc-III bmc-12 bmc-13
    assert_equal "$(cells 'opt.*x \||(math|RAG|overall) \||llama.*x \|' | cut -f 1 | paste -sd,)" \
        "opt-1.3b, opt-125m,opt-2.7b, opt-125m,opt-6.7b, opt-125m,RAG,math,overall,llama-3-8b, llama-3.2-1b-pard"
    # Ratios are those of the rates beside them.
    run awk -F '\t' 'function near(x, y) { return x > y - 0.011 && x < y + 0.011 }
        NF != 10 || !near($6, $3 / $2) || !near($7, $5 / $4) || !near($8, $4 / $2) || !near($9, $5 / $2) || $10 < 1 { print }' <(cells 'x \|')
    assert_output ""
}

@test "every table's shapes exist; a table that does not exist, and models that do not fit, are refused" {
    sed -n '/^configurations()/,/^}/p' "$ROOT/tests/bench/spec_tables.sh" | grep -E '^ +(bass|bmc)-' >rows
    [ "$(wc -l <rows)" -ge 16 ]
    while read -r _ _ target draft _; do
        [ -e "$ROOT/models.d/shapes/$target.shape" ] || fail "$target"
        [ -e "$ROOT/models.d/shapes/$draft.shape" ] || fail "$draft"
    done <rows
    run --separate-stderr sh "$ROOT/tests/bench/spec_tables.sh" bass-7
    assert_failure 2
    assert_equal "$stderr" "spec_tables: bass-7: no such table; there are: bass-1 bass-2 bass-3 bass-4 bass-5 bass-6 bmc-III bmc-12 bmc-13"
    MEMORY_MB=10 run --separate-stderr sh "$ROOT/tests/bench/spec_tables.sh" bass-1
    assert_failure 1
    assert_equal "$stderr" "spec_tables: opt-13b does not fit in 10 MB (MEMORY_MB) with any number of layers"
    SCALE=2 run --separate-stderr sh "$ROOT/tests/bench/spec_tables.sh" bass-1
    assert_failure 2
    assert_equal "$stderr" "spec_tables: SCALE=2: needs a share of at most 1, as 1/4"
}
