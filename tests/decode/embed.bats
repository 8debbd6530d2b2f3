# Embeddings (--embed): against transformers' hidden states (tests/fixtures/make_embeddings.py), batches, input and errors.
load ../helper

setup_file() { model grimm >/dev/null; }
embed() { bmc-gen -q -m "$(model grimm)" --embed "$@"; }

@test "embeddings equal pooled hidden states of transformers" {
    want=$FIXTURES/embeddings.json
    [ "$(jq length "$want")" -eq 15 ]
    for name in $(jq -r '[.[].model] | unique | .[]' "$want"); do
        bmc-convert "$FIXTURES/families/$name" -o $name.bmc >/dev/null
        jq -c --arg m $name '.[] | select(.model == $m) | {ids}' "$want" >in
        for pooling in mean last cls raw_mean; do
            how="--pooling $pooling"
            [ $pooling != raw_mean ] || how="--pooling mean --no-normalize"
            # shellcheck disable=SC2086
            ok bmc-gen -q -m $name.bmc --embed --jsonl -f in --precision f32 $how
            jq -se --arg m $name --arg p $pooling --slurpfile want "$want" '[.[].embedding] as $got | [$want[0][] | select(.model == $m)[$p]] as $want | ($got | length) == 3 and
                all(range(3) as $i | ($got[$i] | length) == ($want[$i] | length) and all(range($want[$i] | length) as $j | [$i, $j]; . as [$i, $j] |
                    ($got[$i][$j] - $want[$i][$j] | fabs) <= 1e-5 * ([1, ($want[$i][$j] | fabs)] | max)); .)' <<<"$output" >/dev/null || fail "$name $pooling: ${output:0:500}"
        done
    done
}

@test "an embedding does not depend on batch, chunk, threads or cache policy" {
    jq -nc 'range(9) as $i | {id: $i, ids: [range(1 + 13 * $i) | 5 + (. * 7 + $i) % 300]}' >in
    for pooling in mean last; do
        ok embed --jsonl -f in -np 1 --pooling $pooling
        want=$output
        for how in "-np 4 --chunk 7" "-np 9 --kv paged -t 1" "-np 3 --kv shift:S=200 --unordered"; do
            # shellcheck disable=SC2086
            ok embed --jsonl -f in --pooling $pooling $how
            assert_equal "$(sort <<<"$output")" "$(sort <<<"$want")"
        done
    done
    jq -se 'length == 9 and all(.[]; (.embedding | map(. * .) | add) as $n | $n > 0.99999 and $n < 1.00001)' <<<"$want" >/dev/null || fail "${want:0:300}"
}

@test "lines of text, JSON lines, -p: the same embeddings" {
    printf 'The king\n\nOnce upon a time' >text
    ok embed -f text --stats stats.json
    want=$(jq -c '[.index, .tokens, .embedding]' <<<"$output")
    assert_equal "$(wc -l <<<"$want")" 2
    jq -e '.sequences == 2 and .prefill_tokens == 6' stats.json >/dev/null || fail "$(<stats.json)"
    ok embed -p "$(<text)"
    assert_equal "$(jq -c '[.index, .tokens, .embedding]' <<<"$output")" "$want"
    ok embed --jsonl -f <(printf '{"text": "The king"}\n{"id": "b", "prompt": "Once upon a time"}\n')
    assert_equal "$(jq -c '[.index, .tokens, .embedding]' <<<"$output")" "$want"
    assert_equal "$(jq -c '[.id, .error]' <<<"$output" | xargs)" '[null,null] [b,null]'
}

@test "what cannot be embedded is an error of its line" {
    printf '%s\n' '{"ids": [5, 6]}' '{"ids": []}' '{"ids": [99999]}' '{"text": 3}' '{"txt": "a"}' "{\"ids\": [$(seq -s , 5 50)]}" '{"ids": [7]}' >in
    run --separate-stderr embed --jsonl -f in -c 40
    [ "$status" -eq 1 ]
    assert_equal "$stderr" "bmc-gen: 5 of 7 lines failed: their results say why"
    assert_equal "$(jq -r '.error // "-"' <<<"$output" | cut -c 1-46)" "-
line 2: the text is empty
line 3: id 99999 is outside the vocabulary of 
line 4: \"text\" is an integer, a string is expe
$(jq -r 'select(.index == 4).error' <<<"$output" | cut -c 1-46)
line 6: the text has 46 tokens, the context ho
-"
    expect_error 2 'embed excludes other jobs' embed --score </dev/null
    expect_error 2 'go with --embed' bmc-gen -p x --pooling last
    expect_error 2 'pooling' embed --pooling max </dev/null
}
