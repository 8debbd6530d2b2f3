# Beam search: ids and scores equal those of transformers (tests/fixtures/make_beams.py), under every cache policy.
load ../helper

setup_file() {
    for name in grimm andersen llama-3-like qwen2-like; do model "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
}

beams() { # MODEL ENTRY KV [WIDTH]
    run "$BMC_BUILD/tests/test_beam" "$(model "$1")" "$FIXTURES/beams.json" "$2" "$3" $4
    [ "$status" -eq 0 ] || fail "test_beam $* -> $output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 15 ]
}

gen() { bmc-gen -q -m "$(model grimm)" -n 12 --stats stats.json "$@"; }
once='Once upon a time'

@test "unit tests: ties, end tokens, ending early" {
    run "$BMC_BUILD/tests/test_beam"
    [ "$status" -eq 0 ] || fail "test_beam -> $output"
}

@test "ids and scores of all beams, under every policy" {
    for kv in $(kv_policies); do beams grimm 0 "$kv" 4; done
}

@test "2, 3, 4 and 8 beams, with and without length penalty, all stopping rules, end tokens" {
    beams grimm 1 iterative 2
    beams grimm 1 paged 3
    beams grimm 1 bmc 4
    beams grimm 1 segment 8
}

@test "other models" {
    beams andersen 2 segment
    beams llama-3-like 3 bmc:r=5
    beams qwen2-like 4 segment:step=5
}

@test "--n-best prints the best beams as text or ids; a JSON result has all of them" {
    jq -c '.[0].cases[] | select(.beams == 4) | .results' "$FIXTURES/beams.json" | head -n 1 >want
    ok gen -p "$once" --ids --beams 4 --n-best 3
    assert_equal "$output" "$(jq -r '.[:3][].ids | join(" ")' want)"
    ok gen -p "$once" --beams 4 --ids
    assert_equal "$output" "$(jq -r '.[0].ids | join(" ")' want)"
    jq -nc --arg p "$once" '{prompt: $p}, {prompt: $p, n: 3}' >in
    ok gen --jsonl --beams 4 -f in
    echo "$output" >out
    assert_equal "$(head -n 1 out | jq -c '[.beams[].ids]')" "$(jq -c '[.[].ids]' want)"
    jq -se '.[0] | .ids == .beams[0].ids and .text == .beams[0].text and (.beams | map(keys == ["ids", "score", "text"]) | all)' out
    jq -se '.[1].beams | length == 4 and map(.ids | length <= 3) and (map(.score) | . == (sort | reverse))' out
    ok gen -p "$once" --beams 4 --n-best 4
    assert_equal "$output" "$(head -n 1 out | jq -r '.beams[].text')"
    ok gen --jsonl --beams 4 --n-best 2 -f in
    assert_equal "$(jq '.beams | length' <<<"$output" | paste -sd ' ')" '2 2'
}

@test "one beam is greedy decoding" {
    ok gen -p "$once" --ids
    want=$output
    ok gen -p "$once" --ids --beams 1
    assert_equal "$output" "$want"
}

@test "the same logits under every policy; a shared prompt is computed once, and segment does not copy it" {
    jq -nc '[range(64) | 5 + . * 7 % 300] as $head | range(3) | {ids: ($head + [40 + .]), n: (6 + . * 5)}' >in
    for kv in bmc iterative paged reserve segment; do
        ok gen --jsonl --beams 4 -b 2 --ignore-eos --kv $kv -f in
        jq -c '[.logits_hash, .prefill_tokens]' stats.json >>hashes
        echo "$output" | md5sum >>outs
        jq '.kv_resident_bytes' stats.json >>bytes-$kv
    done
    # Reordering copies nothing: only the prompt's entry after its last whole tile is copied, for each of 4 beams and once more.
    [ "$(jq .kv_copied_rows stats.json)" -le $((3 * 5)) ]
    assert_equal "$(sort -u hashes | wc -l)" 1
    assert_equal "$(sort -u outs | wc -l)" 1
    assert_equal "$(jq .prefill_tokens stats.json)" $((64 + 3))
    # 8 sequences: 64 entries once and at most 32 more of each, compared with 8 times 81.
    [ "$(cat bytes-segment)" -lt $(($(cat bytes-reserve) / 2)) ]
}

@test "beams share entries with every kernel set, cache type and attention; each entry is copied at most once" {
    jq -nc '{ids: ([range(70) | 5 + . * 7 % 300]), n: 30}' >in
    isas=$(bmc-gen --version | sed -n 's/.*usable: //p' | tr -d ,)
    [ "$(wc -w <<<"$isas")" -ge 2 ]
    for isa in $isas; do
        for type in f32 bf16 f16 q8 q4 q4h; do
            sampled 5 || continue
            for kv in bmc:r=40 segment; do
                ok gen --jsonl --beams 4 --ignore-eos -n 30 --kv $kv --isa $isa --cache-type $type -f in
                jq -r .logits_hash stats.json >>hashes
            done
            assert_equal "$isa $type $(tail -n 2 hashes | uniq | wc -l)" "$isa $type 1"
            # The prompt's last 6 entries are copied for each beam, and each of the answer's at most once.
            jq -e '.kv_copied_rows | . > 4 * 6 and . <= 4 * 6 + 30' stats.json || fail "$(jq .kv_copied_rows stats.json)"
        done
    done
    ok gen --jsonl --beams 4 --ignore-eos --attn blas -f in
    want=$(jq .beams[0].score <<<"$output")
    ok gen --jsonl --beams 4 --ignore-eos --attn blas --kv segment -f in
    jq -e --argjson want "$want" '.beams[0].score - $want | . < 1e-4 and . > -1e-4' <<<"$output"
}

@test "options that beam search does not support are errors" {
    expect_error 2 '--n-best goes with --beams' bmc-gen -p x --n-best 2
    expect_error 2 '--n-best 5 of 4 beams' bmc-gen -p x --beams 4 --n-best 5
    expect_error 2 'excludes --save-kv' bmc-gen -p x --beams 4 --save-kv s.kv
    expect_error 2 '--beams goes with generation only' bmc-gen -p x --beams 4 --score
    expect_error 2 'needs temperature 0' gen -p x --beams 2 --temp 1
    expect_error 1 'does not support stop strings' gen -p x --beams 2 --stop x
    expect_error 1 'does not support penalties or logit biases' gen -p x --beams 2 --repeat-penalty 2
    expect_error 1 'does not support penalties or logit biases' gen -p x --beams 2 --logit-bias 5=1
    expect_error 1 'does not support penalties or logit biases' gen -p x --beams 2 --dry-multiplier 1
    expect_error 1 'too many beams for the size of the vocabulary' gen -p x --beams 2000
    printf '%s\n' '{"prompt": "x", "temp": 1}' '{"prompt": "x"}' '{"prompt": "x", "logprobs": 2}' >in
    some_fail 2 3 gen --jsonl --beams 2 -f in
    assert_equal "$(jq -c '.beams | length' <<<"$output" | paste -sd ' ')" '0 2 0'
}

@test "requests that beam search does not support are refused before prefill" {
    jq -nc '{prompt: "The king"} + ({temp: 1}, {repeat_penalty: 2}, {presence_penalty: 1}, {frequency_penalty: 1},
        {dry_multiplier: 1}, {logit_bias: {"5": 1}}, {stop: ["x"]}, {logprobs: 2}, {regex: "a+", ignore_eos: true},
        {n_choices: 2})' >in
    some_fail 10 10 gen --jsonl --beams 2 -f in --stats stats.json
    jq -e '.prefill_tokens == 0 and .decode_tokens == 0' stats.json || fail "$(cat stats.json)"
    jq -se 'map(.error) | map(select(test("beam search"))) | length == 10' <<<"$output" || fail "$output"
}

@test "an interrupted search has the best beams so far" {
    jq -nc --arg p "$once" '{prompt: $p, n: 3}, {prompt: $p, n: 900}' >in
    env --default-signal=INT "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --jsonl -f in -b 1 --beams 4 --ignore-eos --isa ref --stats stats.json >out 2>err &
    pid=$!
    wait_until test -s out
    wait_until has_computed $pid $(($(cpu_time $pid) + 20)) # of some three seconds
    kill -INT $pid
    code=0
    wait $pid || code=$?
    assert_equal "$code" 130
    jq -e '.finished_interrupted == 1' stats.json || fail "$(cat err stats.json)"
    jq -se '.[1] | .error == "interrupted" and .ids == .beams[0].ids and (.ids | length > 0 and length < 900)' out || fail "$(cat out)"
}

@test "failing allocations fail a request or the run, and give no wrong result" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    mkdir before
    jq -nc '[range(20) | 5 + . * 7 % 60] as $head | range(3) | {ids: ($head + [40 + .]), n: 6}' >before/in
    for kv in segment bmc; do
        run "$BMC_BUILD/inject" -t before -m 8 -o "$RANDOM" "$BMC_BUILD/inject.so" memory \
            "$BMC_BIN/bmc-gen" -m "$(model llama-3-like)" -t 1 -q --jsonl -f in -c 64 --beams 3 -b 2 --kv $kv
        [ "$status" -eq 0 ] || fail "$output"
        [[ $output =~ ^memory:\ [1-9][0-9]*\ calls,\ [1-9] ]] || fail "nothing failed: $output"
    done
}
