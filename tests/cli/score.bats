# bmc-gen --score: summaries, windows, batches of texts. How bmc-gen reports a full context or an incomplete character.
load ../helper

setup_file() {
    for name in grimm grimm-draft llama-3-like; do model "$name" >/dev/null; done
    # A model with such large logits that the perplexity of an unlikely token overflows a double.
    mkdir -p "$BATS_FILE_TMPDIR/sure"
    cp "$FIXTURES"/models/qwen2-like/* "$BATS_FILE_TMPDIR/sure"
    for ((i = 0; i < 32; i++)); do bytes_le 4 0x4b800000; done | # 2^24
        patch "$BATS_FILE_TMPDIR/sure/model.safetensors" "$(safetensors_at "$BATS_FILE_TMPDIR/sure/model.safetensors" model.norm.weight)"
    bmc-convert "$BATS_FILE_TMPDIR/sure" -o "$BATS_FILE_TMPDIR/sure.bmc"
}

text='Once upon a time there was a king who had a daughter, and she was the fairest of them all.'

score() { bmc-gen -q -m "$(model grimm)" -t 1 --score "$@"; }
lines() { score --jsonl "$@"; }

jq_true() { # PROGRAM FILE
    [ "$(jq -s "$1" "$2")" = true ] || fail "$1 is not true of $(cat "$2")"
}

@test "a token has one log-probability: in --score, prompt_logprobs and logprobs" {
    jq -nc --arg text "$text" '{prompt: $text, n: 6, ignore_eos: true, logprobs: 1, prompt_logprobs: 1}' | bmc-gen -q -m "$(model grimm)" --jsonl >out
    jq -c '{ids: ([.prompt_logprobs[].id] + .ids)}' out | lines >scored
    assert_equal "$(jq -c '[.prompt_logprobs[1:][].logprob, .logprobs[].logprob]' out)" "$(jq -c '[.logprobs[1:][].logprob]' scored)"
}

# ---- --summary ----

@test "--summary: the three totals in every format" {
    score -p "$text" --format json >whole
    score -p "$text" --summary --format json >json
    assert_equal "$(jq -c . json)" "$(jq -c 'del(.rows)' whole)"
    assert_equal "$(command jq -c keys_unsorted json)" '["tokens","mean_logprob","perplexity"]'
    jq_true '.[0] as $w | ($w.rows[1:] | map(.logprob) | add / length) as $mean
        | ($mean - $w.mean_logprob | fabs) < 1e-8 and ((-$mean | exp) / $w.perplexity - 1 | fabs) < 1e-7' whole
    score -p "$text" --summary --format jsonl >jsonl
    assert_equal "$(cat jsonl)" "$(command jq -c . json)"
    assert_equal "$(score -p "$text" --format jsonl | tail -n 1)" "$(cat jsonl)"
    for format in csv md table; do score -p "$text" --summary --format $format >$format; done
    assert_equal "$(head -n 1 csv)" 'tokens,mean_logprob,perplexity'
    assert_equal "$(tail -n 1 csv)" "$(printf '%s,%.6g,%.6g' $(jq '.tokens, .mean_logprob, .perplexity' json))"
    assert_equal "$(tail -n 1 table | xargs)" "$(tail -n 1 csv | tr , ' ')"
    assert_equal "$(tail -n 1 md | tr -d '|' | xargs)" "$(tail -n 1 csv | tr , ' ')"
    assert_equal "$(wc -l <table) $(wc -l <md) $(wc -l <csv)" '2 3 2'
}

@test "--stats has the totals of --score, and null for generated text" {
    score -p "$text" --summary --format json --stats stats.json >json
    assert_equal "$(jq -c '[.scored_tokens, .mean_logprob, .perplexity]' stats.json)" "$(jq -c '[.tokens, .mean_logprob, .perplexity]' json)"
    bmc-gen -q -m "$(model grimm)" -p "$text" -n 2 --stats stats.json >/dev/null
    assert_equal "$(jq -c '[.scored_tokens, .mean_logprob, .perplexity]' stats.json)" '[0,null,null]'
}

@test "a perplexity that overflows a double is inf in tables and csv, null in JSON" {
    m=$BATS_FILE_TMPDIR/sure.bmc
    printf 'the king said' >in
    for format in table csv md; do
        ok bmc-gen -q -m "$m" --score -f in --summary --format $format
        [[ $output =~ inf ]]
    done
    ok bmc-gen -q -m "$m" --score -f in
    assert_output --regexp $'\nperplexity  inf$'
    for format in json jsonl; do
        bmc-gen -q -m "$m" --score -f in --summary --format $format --stats stats.json >out
        jq_true '.[0].perplexity == null and .[0].mean_logprob < -1000 and .[0].tokens == 2' out
        jq_true '.[0].perplexity == null and .[0].mean_logprob < -1000' stats.json
        bmc-gen -q -m "$m" --score -f in --format $format >out
        jq_true '.[-1].perplexity == null and .[-1].mean_logprob < -1000' out
    done
    echo '{"text":"the king said"}' | bmc-gen -q -m "$m" --score --jsonl --summary >out
    jq_true '.[0].perplexity == null and .[0].mean_logprob < -1000 and .[0].error == null' out
}

# ---- --stride ----

@test "--stride: distance of windows, of which only new tokens are scored" {
    context=8
    while read -r name stride bos; do # andersen's tokenizer puts BOS in front, which later windows begin with, too
        score() { bmc-gen -q -m "$(model "$name")" -t 1 --score "$@"; }
        ids=$(bmc-gen -m "$(model "$name")" --tokenize --format jsonl <<<"$text" | jq -c .ids)
        n=$(jq length <<<"$ids")
        [ "$n" -gt 20 ]
        # The windows as texts of their own: a context's tokens, and the one that they predict.
        jq -c --argjson c $context --argjson s "$stride" --argjson b "$bos" '. as $all | range(0; length; $s) | {id: ., ids: ($all[:$b] + $all[. + $b:. + $c + 1])}' <<<"$ids" >windows
        lines -c $((context + 1)) <windows >alone
        jq -s --argjson n "$n" 'reduce .[] as $w ([null];
            . + [range(length; [$n, $w.id + ($w.ids // $w.logprobs | length)] | min) as $at | $w.logprobs[$at - $w.id].logprob])' alone >want
        score -p "$text" -c $context --stride "$stride" --format json >got
        assert_equal "$(jq -c '[.rows[].logprob]' got)" "$(jq -c . want)"
        jq -nc --argjson ids "$ids" '{ids: $ids}' | lines -c $context --stride "$stride" >line
        assert_equal "$(jq -c '[.logprobs[].logprob]' line)" "$(jq -c . want)"
    done <<<$'grimm 3 0\ngrimm 8 0\nandersen 3 1'
    name=andersen
    run --separate-stderr lines -c 8 --stride 8 <<<"{\"ids\": $ids}"
    assert_equal "$status" 1
    [[ $output == *'windows of 8 tokens begin with BOS'*stride\ of\ 8* ]]
    name=grimm
    # The default is half the context; a text that fits has one window.
    equal_files <(score -p "$text" -c 8) <(score -p "$text" -c 8 --stride 4)
    equal_files <(score -p "$text") <(score -p "$text" --stride 1)
    expect_error 1 'stride of 9 .* context holds 8' score -p "$text" -c 8 --stride 9
    # Windows within the original context have its rotary frequencies, however long the text is.
    bmc-convert -q "$FIXTURES/families/llama-longrope" -o long.bmc
    printf '%.0sthe quick brown fox, ' {1..9} >in
    for bytes in 64 189; do
        head -c $bytes in | bmc-gen -q -m long.bmc --score -c 64 --format jsonl | head -n 64 >$bytes
    done
    [ "$(wc -l <64)" -eq 64 ]
    cmp 64 189
}

@test "options that go with --score" {
    m=$(model grimm)
    expect_error 2 '--summary' bmc-gen -m "$m" -p x --summary
    expect_error 2 '--stride' bmc-gen -m "$m" --jsonl --stride 3
    expect_error 2 '--stride' bmc-gen -m "$m" --score --stride 0 -p x
    expect_error 2 '--format' bmc-gen -m "$m" --score --jsonl --format csv
    expect_error 2 '--logprobs' bmc-gen -m "$m" --score --jsonl --logprobs 3
    expect_error 2 '--tokenize' bmc-gen -m "$m" --score --jsonl --tokenize
}

# ---- --score --jsonl ----

@test "--score --jsonl: batched scores are bitwise those of single texts" {
    jq -c '.scores[0], .cases[:3][] | {text: (.text // .prompt)[:150]}' "$(reference grimm)" >texts
    jq -sc '. + . + . | to_entries[] | {id: .key, text: .value.text}' texts >in
    [ "$(wc -l <in)" -ge 9 ]
    while read -r line; do
        jq -j .text <<<"$line" | score --format jsonl | jq -sc '{logprobs: [.[:-1][] | {id, piece, logprob}], last: .[-1]}'
    done <texts >alone
    jq -sc '. + . + . | .[]' alone >want
    for options in '-b 3' '-b 16 --chunk 7 --kv paged:16 -t 2'; do
        # shellcheck disable=SC2086
        lines $options <in >out
        assert_equal "$(jq -c .id out | paste -sd ' ')" "$(seq -s ' ' 0 $(($(wc -l <in) - 1)))"
        equal_files <(jq -c '{logprobs, last: {tokens, mean_logprob, perplexity}}' out) want
    done
    lines --summary <in >short
    equal_files <(command jq -c 'del(.logprobs)' out) short
    jq_true 'all(.error == null and (.sum_logprob - .mean_logprob * .tokens | fabs) < 1e-6)' short
    lines --unordered -b 3 --summary -f in >unordered
    equal_files <(sort unordered) <(sort short)
    lines --summary --stats stats.json <in >/dev/null
    jq_true '.[-1].sequences == 0 or (.[-1].scored_tokens == (.[:-1] | map(.tokens) | add))' <(cat short stats.json)
}

@test "--score --jsonl: an invalid line costs its own result, and the exit status is 1" {
    {
        echo '{"id":{"a":[1.5]},"text":"Once upon"}'
        echo '{"id":"p","prompt":"Once upon"}'
        echo '{"id":"i","ids":[2090,675]}'
        echo '{"id":"typo","txet":"Once upon"}'
        echo '{"id":"two","text":"a","ids":[5]}'
        echo '{"id":"none"}'
        echo '{"id":"type","text":7}'
        echo '{"id":"big","ids":[1,4096]}'
        echo '{"id":"neg","ids":[-1]}'
        printf '{"id":"esc\\u001b","\\u001b[31m%s":1}\n' "$(printf 'é%.0s' {1..400})"
        echo '[1]'
        echo null
        printf '{"id":"cut","text":"\xc3"}\n'
        echo '{"id":"empty","ids":[]}'
        printf '{"id":"last","ids":[5]}'
    } >in
    for batch in 1 4; do
        run lines -b $batch -f in
        assert_equal "$status" 1
        run --separate-stderr lines -b $batch -f in
        assert_equal "$stderr" 'bmc-gen: 10 of 15 lines failed: their results say why'
        echo "$output" >out
        assert_equal "$(jq -c .id out | head -n 3 | paste -sd ' ')" '{"a":[1.5]} "p" "i"'
        jq_true '(.[:3] | all(.tokens == 1 and .error == null)) and (.[:3] | map(.sum_logprob) | unique | length) == 1' out
        jq_true '.[3:13] as $bad | [range(10)] | all(. as $i | $bad[$i] | .tokens == 0 and .mean_logprob == null and (.error | startswith("line \($i + 4): ")))' out
        jq_true '.[3].error | contains("\"txet\"")' out
        jq_true '.[7].error | contains("id 4096 is outside")' out
        jq_true '.[13:] | map([.tokens, .perplexity, .error]) == [[0, null, null], [0, null, null]]' out
        assert_equal "$(grep -c $'\e' out)" 0
    done
}

@test "--score --jsonl: results are written while the input is still open" { answers_as_lines_come --score --jsonl; }

@test "SIGINT: texts in flight are reported as far as they were scored" {
    jq -nc '{id: "long", ids: [range(4000)]}, {id: "short", ids: [5, 6]}' >in
    env --default-signal=INT "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --score --jsonl --summary -c 128 --stride 1 -b 2 --unordered -f in >out 2>err &
    pid=$!
    wait_until test -s out
    kill -INT $pid
    code=0
    wait $pid || code=$?
    assert_equal $code 130
    assert_equal "$(jq -c .id out | paste -sd ' ')" '"short" "long"'
    jq_true '.[1].error == "interrupted" and .[1].tokens < 3999 and .[0].error == null' out
}

@test "--score shows progress on a terminal only" {
    script -qec true typescript >/dev/null </dev/null || skip "no pseudo-terminal"
    yes "$text" | head -n 8 >in
    script -qec "$BMC_BIN/bmc-gen -m $(model grimm) --score --summary --chunk 64 -f in >out" typescript >/dev/null </dev/null
    grep -q 'text \[#' typescript
    script -qec "$BMC_BIN/bmc-gen -q -m $(model grimm) --score --summary --chunk 64 -f in >out" typescript >/dev/null </dev/null
    refute grep -q 'text \[' typescript
    score --summary --chunk 64 -f in >plain 2>err
    [ ! -s err ]
    equal_files out plain
    jq -Rc '{text: .}' in >lines
    script -qec "$BMC_BIN/bmc-gen -m $(model grimm) --score --jsonl -f lines >out" typescript >/dev/null </dev/null
    grep -q 'texts \[#' typescript
    assert_equal "$(wc -l <out)" 8
}

# ---- how texts end ----

@test "a full context prints a warning, with -q too" {
    for program in bmc-gen "bmc-spec -d $(model grimm-draft)"; do
        run --separate-stderr $program -q -m "$(model grimm)" -p 'Once upon a time' -c 16 --ignore-eos --stats stats.json
        assert_success
        assert_equal "$stderr" "${program%% *}: the text was cut: the context of 16 tokens is full; -c takes up to 1024"
        assert_equal "$(jq -c '[.finish, .finished_length, .context_full]' stats.json)" '["length",1,1]'
        # Those that were asked for fit.
        ok $program -q -m "$(model grimm)" -p 'Once upon a time' -c 16 -n 12 --ignore-eos --stats stats.json
        assert_equal "$(jq -c '[.finish, .finished_length, .context_full]' stats.json)" '["length",1,0]'
        ok $program -q -m "$(model grimm)" -p 'Once upon a time' -c 4 -n 0
    done
    run --separate-stderr bmc-gen -q -m "$(model llama-3-like)" --prompt-ids "$(yes 300 | head -n 500 | paste -sd ' ')" --ignore-eos
    assert_success
    [[ $stderr =~ is\ full\;\ the\ model\ takes\ no\ more$ ]]
}

@test "--stats counts how sequences finished" {
    finish() { jq -c '[.finish, .finished_length, .finished_eos, .finished_stop, .finished_error]' stats.json; }
    ok bmc-gen -q -m "$(model grimm)" -p 'Once upon a time' --stop king --stats stats.json
    assert_equal "$(finish)" '["stop",0,0,1,0]'
    {
        echo '{"prompt":"Once upon a time","n":3}'
        echo '{"prompt":"Once upon a time","stop":"king"}'
        echo '{"prompt":"Once upon a time","stop":"king","n":2}'
        echo '{"ids":[1,4096]}'
    } >in
    run bmc-gen -q -m "$(model grimm)" --jsonl -b 2 -f in --stats stats.json
    assert_equal "$(finish)" '[null,2,0,1,1]'
    score -p "$text" --stats stats.json >/dev/null
    assert_equal "$(finish)" '[null,0,0,0,0]'
}

@test "a text that ends within a character is resumed: its bytes are joined" {
    tiny_shape byte.shape
    bmc-convert --synth ./byte.shape -o byte.bmc
    # The same model, but its next token is EOS; 226 130 172 is a euro sign.
    eos=$(bmc-gen -q -m byte.bmc --prompt-ids '65 226' -n 1 --ids)
    tiny_shape byte.shape eos "$eos"
    bmc-convert --synth ./byte.shape -o byte.bmc
    gen() { bmc-gen -q -m byte.bmc "$@"; }
    for save in --save-kv --prompt-cache; do
        rm -f story.kv
        ok gen --prompt-ids '65 226' $save story.kv --stats stats.json
        # A run that continues the file prints the rest of the character; one with the same cache prints it all.
        assert_output "$([ $save = --save-kv ] || printf '\uFFFD')"
        assert_equal "$(jq -c '[.finish, .finished_eos]' stats.json)" '["eos",1]'
        ok gen --load-kv story.kv
        assert_output $'\uFFFD'
        ok gen --load-kv story.kv --prompt-ids '130 172' --echo -n 0
        assert_output $'A\u20AC'
        # Text cannot complete it.
        ok gen --load-kv story.kv -p x --echo -n 0
        assert_output $'A\uFFFDx'
        ok gen --load-kv story.kv -p '' --echo -n 0
        assert_output $'A\uFFFD'
    done
    # Without a snapshot U+FFFD is printed at once.
    ok gen --prompt-ids '65 226'
    assert_output $'\uFFFD'
}

@test "lines to score: --lenient, null, duplicate members" {
    printf '%s\n' '{"text":"Once upon","x":1,"ids":null}' '{"text":"Once","text":"upon"}' >in
    run --separate-stderr bmc-gen -q -m "$(model grimm)" --score --summary --jsonl --lenient -f in
    assert_equal "$status" 1
    jq -se '.[0].tokens > 0 and .[0].error == null and (.[1].error | contains("duplicate object key"))' <<<"$output"
    run --separate-stderr bmc-gen -q -m "$(model grimm)" --score --summary --jsonl -f in
    jq -se '.[0].error | contains("unknown member \"x\"")' <<<"$output"
}

@test "--score --jsonl: if the run fails, lines in flight get an error" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    jq -nc 'range(4) | {id: ., ids: [range(if . == 0 then 2 else 90 end)]}' >in
    score=("$BMC_BIN/bmc-gen" -q -m "$(model llama-2-like)" -t 1 --score --jsonl -b 4 -f in)
    export BMC_FAIL_CALL=memory
    calls=$(BMC_FAIL_COUNT=9 LD_PRELOAD=$BMC_BUILD/inject.so "${score[@]}" 9>&1 >whole)
    ended=0
    for part in 5 7 9; do
        for options in '' --unordered; do
            # shellcheck disable=SC2086
            BMC_FAIL_AT=$((calls * part / 10)) LD_PRELOAD=$BMC_BUILD/inject.so run_plain "${score[@]}" $options
            [ "$status" -eq 1 ] && [[ $stderr != *' lines failed'* ]] || continue
            ended=$((ended + 1))
            assert_equal "$(jq -c .id <<<"$output" | sort | paste -sd ' ')" '0 1 2 3'
            jq -se --arg why "the run ended: ${stderr#bmc-gen: }" 'all(.error == null or (.error | endswith($why))) and any(.error != null)' <<<"$output"
        done
    done
    [ "$ended" -gt 1 ]
}

@test "--score --jsonl: --lenient ignores unknown members; errors suggest those of scored lines" {
    printf '{"ids":[5,6],"label":3}\n{"txet":"x"}\n{"ids":[5],"audio":"m"}\n' >in
    run --separate-stderr bmc-gen -q -m "$(model grimm)" --score --jsonl -f in
    assert_equal "$status" 1
    assert_equal "$(jq -r '.error | sub("^line [0-9]+: "; "")' <<<"$output")" 'unknown member "label" (--lenient ignores unknown ones)
unknown member "txet"; did you mean "text"? (--lenient ignores unknown ones)
"audio" is not supported: text is the only modality (--lenient ignores it)'
    run --separate-stderr bmc-gen -q -m "$(model grimm)" --score --jsonl --lenient -f in
    assert_equal "$(jq -c .error <<<"$output" | paste -sd ' ')" 'null "line 2: exactly one of \"text\", \"prompt\" and \"ids\" is expected" null'
}
