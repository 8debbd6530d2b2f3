# bmc-gen --jsonl: order and content of results; errors of single lines.
load ../helper

setup_file() {
    for name in grimm llama-3-like qwen2-like; do model "$name" >/dev/null; done
}

jsonl() { bmc-gen -q -m "$(model "${name:-grimm}")" --jsonl "$@"; }

# Repeats the four cases of a model with different lengths: requests in ./in, the reference's results in ./want.
cases() { # MODEL LINES
    jq -c --argjson n "$2" '[range($n)] as $all | .cases as $c | $all[] | {id: ., prompt: $c[. % 4].prompt, n: (1 + . * 7 % 13)}' "$(reference "$1")" >in
    jq -c --argjson n "$2" '[range($n)] as $all | .cases as $c | $all[] | {id: ., ids: $c[. % 4].greedy_ids[:1 + . * 7 % 13]}' "$(reference "$1")" >want
}

@test "fields of a result" {
    jq -c '.cases[0] | {id: "a", prompt, n: 64}' "$(reference grimm)" >in
    ok jsonl <in
    assert_equal "$(command jq -c 'keys_unsorted - ["error"]' <<<"$output")" '["id","text","ids","finish"]'
    assert_equal "$(jq -c '.ids' <<<"$output")" "$(jq -c '.cases[0].greedy_ids' "$(reference grimm)")"
    assert_equal "$(jq -r '.text' <<<"$output")" "$(reference_text grimm 0 greedy_text)"
    assert_equal "$(jq -r '.finish + (.error // "")' <<<"$output")" length
}

@test "results are in input order and equal the reference at every batch size" {
    cases grimm 12
    for batch in 1 2 3 8; do
        ok jsonl -b $batch --ignore-eos <in
        assert_equal "$(jq -c '{id, ids}' <<<"$output")" "$(cat want)"
    done
    ok jsonl --ignore-eos -f in
    assert_equal "$(jq -c '{id, ids}' <<<"$output")" "$(cat want)"
    ok jsonl --ignore-eos -f - <in
    assert_equal "$(jq -c '{id, ids}' <<<"$output")" "$(cat want)"
}

@test "--unordered: the same results, each written when it is complete" {
    cases grimm 12
    ok jsonl -b 3 --unordered --ignore-eos <in
    assert_equal "$(jq -c '{id, ids}' <<<"$output" | sort)" "$(sort want)"
    # Only so a short request overtakes a long one.
    jq -nc '{id: "long", ids: [5, 6], n: 30}, {id: "short", ids: [5, 6], n: 1}' >in
    ok jsonl -b 2 --unordered --ignore-eos <in
    assert_equal "$(jq -r .id <<<"$output" | paste -sd ' ')" 'short long'
    ok jsonl -b 2 --ignore-eos <in
    assert_equal "$(jq -r .id <<<"$output" | paste -sd ' ')" 'long short'
}

@test "results are written while the input is still open" { answers_as_lines_come --jsonl -b 1 -n 2; }

@test "200 requests with batch size 8" {
    name=qwen2-like
    cases qwen2-like 200
    ok jsonl -b 8 --ignore-eos <in
    assert_equal "$(jq -c '{id, ids}' <<<"$output")" "$(cat want)"
}

@test "an id may be any JSON value" {
    for id in '"a\u00e9\"\\"' 17 -3 1.5 true false null '[1,"x",{"y":null}]' '{"k":[1]}' '""' 9007199254740993; do
        printf '{"id":%s,"ids":[5],"n":1}\n' "$id" >>in
    done
    echo '{"ids":[5],"n":1}' >>in
    ok jsonl <in
    assert_equal "$(jq -c .id <<<"$output")" "$(jq -c .id in)"
    grep -q '"id":9007199254740993[,}]' <<<"$output"
    # Errors have it as well.
    some_fail 1 1 jsonl <<<'{"id":[7],"n":1}'
    assert_equal "$(jq -c '[.id, .finish]' <<<"$output")" '[[7],"error"]'
}

@test "n of a request overrides the option" {
    jq -nc '{ids: [5], n: 3}, {ids: [5]}, {ids: [5], n: 0}, {ids: [5], n: -1}' >in
    ok jsonl --ignore-eos -n 5 -c 12 <in
    assert_equal "$(jq -c '[(.ids | length), .finish]' <<<"$output" | paste -sd ' ')" '[3,"length"] [5,"length"] [0,"length"] [11,"length"]'
}

@test "seed of a request overrides the option" {
    jq -nc '{ids: [2090, 675], n: 20, seed: (1, 2, 1)}, {ids: [2090, 675], n: 20}' >in
    ok jsonl --temp 1 --seed 9 -b 1 <in
    first=$output
    # Seed and line number determine the samples.
    jq -nc '{ids: [2090, 675], n: 20, seed: (1, 1, 1, 9)}' >in
    ok jsonl --temp 1 -b 4 <in
    assert_equal "$(jq -c .ids <<<"$output" | sed -n '1p;3p;4p')" "$(jq -c .ids <<<"$first" | sed -n '1p;3p;4p')"
    refute [ "$(jq -c .ids <<<"$output" | sed -n 2p)" = "$(jq -c .ids <<<"$first" | sed -n 2p)" ]
}

@test "stop of a request, a string or a list, overrides the option" {
    prompt=$(reference_text grimm 0 prompt)
    text=$(reference_text grimm 0 greedy_text)
    jq -nc --arg p "$prompt" '{prompt: $p, n: 64, stop: ("king", ["palace", "sitting"], [], null)}, {prompt: $p, n: 64}' >in
    ok jsonl --stop 'next' <in
    assert_equal "$(jq -c '[.text, .finish]' <<<"$output")" "$(
        jq -nc --arg a "${text%%king*}" --arg b "${text%%sitting*}" --arg c "$text" --arg d "${text%%next*}" \
            '[$a, "stop"], [$b, "stop"], [$c, "length"], [$d, "stop"], [$d, "stop"]'
    )"
}

@test "finish: eos, length, stop" {
    name=llama-3-like
    at=$(jq '.cases[1].greedy_ids | index(405)' "$(reference llama-3-like)")
    jq -c '.cases[1] | {ids: .prompt_ids, n: 40}, {ids: .prompt_ids, n: 3}' "$(reference llama-3-like)" >in
    ok jsonl <in
    assert_equal "$(jq -c '[.finish, .ids]' <<<"$output")" "$(jq -c --argjson at "$at" '.cases[1].greedy_ids | ["eos", .[:$at]], ["length", .[:3]]' "$(reference llama-3-like)")"
    ok jsonl --ignore-eos <in
    assert_equal "$(jq -r .finish <<<"$output" | sort -u)" length
}

# Valid lines alternate with invalid ones.
@test "an invalid line gives an error with its number and does not affect others" {
    good='{"id":"good","prompt":"Once upon a time","n":4}'
    long=$(jq -nc '{prompt: ([range(1200)] | map(" king") | add)}')
    bad=(
        'no JSON'
        '{"prompt":"unfinished'
        '[1,2]'
        '"text"'
        'null'
        '{}'
        '{"id":1,"n":3}'
        '{"prompt":"a","ids":[5]}'
        '{"prompt":5}'
        '{"prompt":null}'
        '{"prompt":["a","b"]}'
        '{"ids":"5"}'
        '{"ids":[5,"6"]}'
        '{"ids":[5.5]}'
        '{"ids":[-1]}'
        '{"ids":[99999999999]}'
        '{"ids":[4096]}'
        '{"ids":[]}'
        '{"prompt":""}'
        '{"prompt":"a","n":"3"}'
        '{"prompt":"a","n":-2}'
        '{"prompt":"a","n":2.5}'
        '{"prompt":"a","seed":-2}'
        '{"prompt":"a","seed":"x"}'
        '{"prompt":"a","stop":5}'
        '{"prompt":"a","stop":["x",5]}'
        '{"prompt":"a"} {"prompt":"b"}'
        $'{"prompt":"\xff"}'
        $'{"prompt":"cut \xe2\x82"}'
        '{"prompt":"\ud800"}'
        "$long"
    )
    for line in "${bad[@]}"; do printf '%s\n%s\n' "$good" "$line" >>in; done
    echo "$good" >>in
    for batch in 1 3 8; do
        some_fail ${#bad[@]} $((2 * ${#bad[@]} + 1)) jsonl -b $batch --ignore-eos <in
        assert_equal "$(wc -l <<<"$output")" $((2 * ${#bad[@]} + 1))
        want=$(jq -c '.cases[0].greedy_ids[:4]' "$(reference grimm)")
        assert_equal "$(sed -n 'p;n' <<<"$output" | jq -c '[.id, .finish, .ids]' | sort -u)" "[\"good\",\"length\",$want]"
        sed -n 'n;p' <<<"$output" | jq -c '[.finish, .text, .ids]' >errors
        assert_equal "$(sort -u errors)" '["error","",[]]'
        sed -n 'n;p' <<<"$output" | jq -r '.error | capture("^line (?<n>[0-9]+): .{8}").n' >numbers
        equal_files numbers <(seq 2 2 $((2 * ${#bad[@]})))
    done
    # So does a last line without a newline.
    some_fail 1 2 jsonl <<<"$good"$'\nbad'
    assert_equal "$(jq -r .finish <<<"$output" | paste -sd ' ')" 'length error'
    run --separate-stderr bash -c "printf '%s' '{\"ids\":[5],\"n\":1}' | '$BMC_BIN/bmc-gen' -q -m '$(model grimm)' --jsonl"
    assert_equal "$status$stderr" 0
    assert_equal "$(jq -r .finish <<<"$output")" length
}

@test "blank lines are skipped; line numbers count them" {
    printf '\n{"id":1,"prompt":"A","n":2}\n \t\r\n\n{"id":2,"prompt":5}\n\n{"id":3,"prompt":"A","n":2}\r\n\n  ' >in
    for options in '' '-np 1 --unordered'; do
        # shellcheck disable=SC2086
        some_fail 1 3 jsonl $options -f in
        assert_equal "$(jq -c '[.id, (.ids | length), .error]' <<<"$output" | sort)" '[1,2,null]
[2,0,"line 5: \"prompt\" is 5, a string or a list of token ids is expected"]
[3,2,null]'
    done
    printf ' \0\n' >in
    some_fail 1 1 jsonl -f in
    printf '\n\n{"text":"A"}\n \n{"txet":5}\n' >in
    for job in --score --embed; do
        run --separate-stderr jsonl $job -f in
        assert_equal "$(jq -c '[.tokens >= 0, (.error // "")[:14]]' <<<"$output")" $'[true,""]\n[true,"line 5: unknow"]'
    done
    assert_equal "$(printf '\nA\n\nB\n' | bmc-gen -q -m "$(model grimm)" --embed | jq -c .index)" $'0\n1'
    assert_equal "$(printf '\n{"messages":[{"role":"user","content":"x"}]}\n\n' | jsonl --render-chat --chat-template chatml 2>&1 | grep -c .)" 1
}

@test "long lines take a few times their size in memory; lists of more values than a request has are refused" {
    # Ids, of which a value of its own each would take 40 bytes; a word that cannot be cut; values that are no ids.
    perl -e '
        print "{\"ids\":[", join(",", map { $_ % 4096 } 1 .. 1000000), "]}\n";
        print "{\"prompt\":\"", "a" x 4300000, "\"}\n";
        print "{\"tools\":[", join(",", ("{}") x 2100000), "]}\n"' >in
    bytes=$(wc -L <in)
    status=0
    "$BMC_BUILD/tests/peak_memory" "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --jsonl -np 1 --unordered -f <(head -n 2 in) >out 2>err || status=$?
    assert_equal "$(grep -c . out)" 3
    assert_equal "$(jq -r '.error?' out 2>/dev/null | head -n 2)" 'line 1: the prompt has 1000000 tokens, the context holds 1024: shorten it; the model takes no more
line 2: a word of more than 4194304 characters: text without a place to cut it cannot be longer'
    sanitized || [ "$(grep -E '^[0-9]+$' out err | sed 's/.*://')" -lt $((30000 + 7 * bytes / 1024)) ]
    some_fail 1 1 jsonl <<<"$(tail -n 1 in)"
    [[ $(jq -r .error <<<"$output") == 'line 1: not valid JSON at column '*': more than 2097152 values' ]]
}

@test "errors name what was found" {
    says() { # LINE REGEX
        some_fail 1 1 jsonl <<<"$1"
        jq -e --arg r "$2" '.finish == "error" and (.error | test($r))' <<<"$output" >/dev/null || fail "$1: $output"
    }
    says '{"ids":[4096]}' '^line 1: .*4096'
    says '{"prompt":5}' '"prompt".*string'
    says '{"prompt":"a","ids":[1]}' 'one of "prompt", "ids" and "messages"'
    says '{"prompt":"a","n":-2}' '"n"'
    says '{"prompt":"a","stop":5}' '"stop"'
    says "$(jq -nc '{ids: [range(1025)]}')" '1025.*1024'
    says "$(jq -nc '{ids: [range(1025)]}')" 'context'
}

@test "--logprobs K: the chosen and the K most likely ids of every token" {
    ok jsonl --logprobs 3 --ignore-eos --precision f32 <<<'{"prompt":"Once upon a time","n":5}'
    jq -e '.ids as $ids | (.logprobs | length) == 5
        and ([.logprobs[].id] == $ids)
        and (.logprobs | all((.top | length) == 3 and .top[0].id == .id and (.logprob - .top[0].logprob | fabs) < 1e-6
            and .logprob < 0 and .top[0].logprob >= .top[1].logprob and .top[1].logprob >= .top[2].logprob
            and (.piece | type == "string")))' <<<"$output"
    # The most likely ids of the first token, and the difference of the first two, match the reference's logits.
    assert_equal "$(jq -c '[.logprobs[0].top[].id]' <<<"$output")" "$(jq -c '[.cases[0].first_step_top10[:3][][0]]' "$(reference grimm)")"
    gap=$(jq '.logprobs[0].top[0].logprob - .logprobs[0].top[1].logprob' <<<"$output")
    jq -e --argjson gap "$gap" '.cases[0].first_step_top10 | (.[0][1] - .[1][1] - $gap | fabs) < 2e-3' "$(reference grimm)"
    ok jsonl <<<'{"prompt":"Once upon a time","n":5}'
    jq -e 'has("logprobs") | not' <<<"$output"
}

@test "text is escaped for JSON; stray bytes become U+FFFD" {
    name=llama-3-like
    jq -c '.cases[] | {prompt, n: 40}' "$(reference llama-3-like)" >in
    jsonl --ignore-eos --precision f32 <in >out 2>err
    [ ! -s err ]
    iconv -f UTF-8 -t UTF-8 out >/dev/null
    assert_equal "$(jq -c .ids out)" "$(jq -c '.cases[].greedy_ids' "$(reference llama-3-like)")"
    assert_equal "$(jq -r .text out | sed 's/\xef\xbf\xbd.*//')" "$(jq -r '.cases[].greedy_text' "$(reference llama-3-like)" | sed 's/\xef\xbf\xbd.*//')"
}

@test "an empty input gives an empty output" {
    ok jsonl </dev/null
    assert_output ''
}

@test "SIGINT writes partial results and ends by the signal" {
    jq -nc 'range(4) | {id: ., prompt: "Once upon a time"}' >in
    env --default-signal=INT "$BMC_BIN/bmc-gen" -m "$(model grimm)" --jsonl -b 4 --ignore-eos --kv iterative -t 1 --stats stats.json <in >out 2>err &
    pid=$!
    wait_until has_computed $pid 20
    kill -INT $pid
    code=0
    wait $pid || code=$?
    assert_equal "$code" 130
    grep -q 'eval time' err
    assert_equal "$(jq -c .id out | paste -sd ' ')" '0 1 2 3'
    jq -e '(.ids | length) > 0' out >/dev/null
    jq -e .sequences stats.json >/dev/null
}

@test "a line longer than 64 MiB gets an error, and the rest of it is skipped" {
    { # a line of more than 64 MiB between two others, and one at the end
        printf '{"id":1,"ids":[5]}\n{"id":2,"prompt":"'
        head -c $(((64 << 20) + 200000)) /dev/zero
        printf '"}\n{"id":3,"ids":[5,6]}\n{"id":4,"ids":[5'
        head -c $((65 << 20)) /dev/zero
    } >in
    for job in '-n 1' --score; do
        # shellcheck disable=SC2086
        run_plain bmc-gen -q -m "$(model llama-2-like)" --jsonl $job -f in
        assert_equal "$status" 1
        assert_regex "$stderr" '^bmc-gen: 2 of 4 (requests|lines) failed'
        assert_equal "$(jq -c .id <<<"$output" | paste -sd ' ')" '1 null 3 null'
        assert_equal "$(jq -c .error <<<"$output" | sed -n 's/.*line \([24]\): is longer than 64 MiB.*/\1/p' | paste -sd ' ')" '2 4'
    done
}

@test "a line that never ends gets an error and takes no memory" {
    ! sanitized || skip "the sanitizers need address space of their own"
    mkfifo in
    (ulimit -v 600000 && exec "$BMC_BIN/bmc-gen" -q --jsonl -n 1 -f in >out) &
    pid=$!
    head -c $((200 << 20)) /dev/zero >in &
    answered() { grep -q 'is longer than 64 MiB' out; }
    wait_until answered
    wait $! || true
    code=0
    wait $pid 2>err || code=$?
    assert_equal "$code $(wc -l <out)" '1 1'
}

@test "a text longer than 1 GiB is an error, of a file before it is read" {
    truncate -s 2G big
    for job in --tokenize --score '-n 1'; do
        # shellcheck disable=SC2086
        expect_error 1 'big: is longer than 1024 MiB' timeout 30 "$BMC_BIN/bmc-gen" -q $job -f big
    done
    expect_error 1 'big: is longer than 1024 MiB' timeout 30 "$BMC_BIN/bmc-prof" compare big big
}
