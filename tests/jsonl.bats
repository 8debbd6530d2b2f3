# bmc-gen --jsonl: requests in, results out, in order, each on its own.
load helper

setup_file() {
    for name in grimm llama-3-like qwen2-like; do model "$name" >/dev/null; done
}

jsonl() { bmc-gen -q -m "$(model "${name:-grimm}")" --jsonl "$@"; }

# The four cases of a model again and again, with different lengths; `want` is what the reference says.
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

@test "input order, and the reference's ids, at every batch size" {
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

@test "--unordered: the same results, as soon as they are there" {
    cases grimm 12
    ok jsonl -b 3 --unordered --ignore-eos <in
    assert_equal "$(jq -c '{id, ids}' <<<"$output" | sort)" "$(sort want)"
    # A short line overtakes a long one only so.
    jq -nc '{id: "long", ids: [5, 6], n: 30}, {id: "short", ids: [5, 6], n: 1}' >in
    ok jsonl -b 2 --unordered --ignore-eos <in
    assert_equal "$(jq -r .id <<<"$output" | paste -sd ' ')" 'short long'
    ok jsonl -b 2 --ignore-eos <in
    assert_equal "$(jq -r .id <<<"$output" | paste -sd ' ')" 'long short'
}

@test "results come while requests are still to come" { answers_as_lines_come --jsonl -b 1 -n 2; }

@test "200 lines through a batch of 8" {
    name=qwen2-like
    cases qwen2-like 200
    ok jsonl -b 8 --ignore-eos <in
    assert_equal "$(jq -c '{id, ids}' <<<"$output")" "$(cat want)"
}

@test "an id of any type comes back" {
    for id in '"a\u00e9\"\\"' 17 -3 1.5 true false null '[1,"x",{"y":null}]' '{"k":[1]}' '""' 9007199254740993; do
        printf '{"id":%s,"ids":[5],"n":1}\n' "$id" >>in
    done
    echo '{"ids":[5],"n":1}' >>in
    ok jsonl <in
    assert_equal "$(jq -c .id <<<"$output")" "$(jq -c .id in)"
    grep -q '"id":9007199254740993[,}]' <<<"$output"
    # Errors carry it too.
    some_fail 1 1 jsonl <<<'{"id":[7],"n":1}'
    assert_equal "$(jq -c '[.id, .finish]' <<<"$output")" '[[7],"error"]'
}

@test "a line's own n, before the command line's" {
    jq -nc '{ids: [5], n: 3}, {ids: [5]}, {ids: [5], n: 0}, {ids: [5], n: -1}' >in
    ok jsonl --ignore-eos -n 5 -c 12 <in
    assert_equal "$(jq -c '[(.ids | length), .finish]' <<<"$output" | paste -sd ' ')" '[3,"length"] [5,"length"] [0,"length"] [11,"length"]'
}

@test "a line's own seed, before the command line's" {
    jq -nc '{ids: [2090, 675], n: 20, seed: (1, 2, 1)}, {ids: [2090, 675], n: 20}' >in
    ok jsonl --temp 1 --seed 9 -b 1 <in
    first=$output
    # Line by line: seed and place decide.
    jq -nc '{ids: [2090, 675], n: 20, seed: (1, 1, 1, 9)}' >in
    ok jsonl --temp 1 -b 4 <in
    assert_equal "$(jq -c .ids <<<"$output" | sed -n '1p;3p;4p')" "$(jq -c .ids <<<"$first" | sed -n '1p;3p;4p')"
    refute [ "$(jq -c .ids <<<"$output" | sed -n 2p)" = "$(jq -c .ids <<<"$first" | sed -n 2p)" ]
}

@test "a line's own stop: a string or a list, before the command line's" {
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

# Good lines around each bad one.
@test "bad lines give an error with their number, and leave the others alone" {
    good='{"id":"good","prompt":"Once upon a time","n":4}'
    long=$(jq -nc '{prompt: ([range(1200)] | map(" king") | add)}')
    bad=(
        'no JSON'
        '{"prompt":"unfinished'
        ''
        '   '
        '[1,2]'
        '"text"'
        'null'
        '{}'
        '{"id":1,"n":3}'
        '{"prompt":"a","ids":[5]}'
        '{"prompt":5}'
        '{"prompt":null}'
        '{"prompt":["a"]}'
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
        '{"prompt":"a","seed":-1}'
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
    # A last line without its end counts like any other.
    some_fail 1 2 jsonl <<<"$good"$'\nbad'
    assert_equal "$(jq -r .finish <<<"$output" | paste -sd ' ')" 'length error'
    run --separate-stderr bash -c "printf '%s' '{\"ids\":[5],\"n\":1}' | '$BMC_BIN/bmc-gen' -q -m '$(model grimm)' --jsonl"
    assert_equal "$status$stderr" 0
    assert_equal "$(jq -r .finish <<<"$output")" length
}

@test "errors say what was found" {
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

@test "--logprobs K: the chosen and the K best of every token" {
    ok jsonl --logprobs 3 --ignore-eos <<<'{"prompt":"Once upon a time","n":5}'
    jq -e '.ids as $ids | (.logprobs | length) == 5
        and ([.logprobs[].id] == $ids)
        and (.logprobs | all((.top | length) == 3 and .top[0].id == .id and (.logprob - .top[0].logprob | fabs) < 1e-6
            and .logprob < 0 and .top[0].logprob >= .top[1].logprob and .top[1].logprob >= .top[2].logprob
            and (.piece | type == "string")))' <<<"$output"
    # The best ones of the first step, and the gap between the first two, are those of the reference's logits.
    assert_equal "$(jq -c '[.logprobs[0].top[].id]' <<<"$output")" "$(jq -c '[.cases[0].first_step_top10[:3][][0]]' "$(reference grimm)")"
    gap=$(jq '.logprobs[0].top[0].logprob - .logprobs[0].top[1].logprob' <<<"$output")
    jq -e --argjson gap "$gap" '.cases[0].first_step_top10 | (.[0][1] - .[1][1] - $gap | fabs) < 2e-3' "$(reference grimm)"
    ok jsonl <<<'{"prompt":"Once upon a time","n":5}'
    jq -e 'has("logprobs") | not' <<<"$output"
}

@test "text that JSON must escape, and stray bytes as U+FFFD" {
    name=llama-3-like
    jq -c '.cases[] | {prompt, n: 40}' "$(reference llama-3-like)" >in
    jsonl --ignore-eos <in >out 2>err
    [ ! -s err ]
    iconv -f UTF-8 -t UTF-8 out >/dev/null
    assert_equal "$(jq -c .ids out)" "$(jq -c '.cases[].greedy_ids' "$(reference llama-3-like)")"
    assert_equal "$(jq -r .text out | sed 's/\xef\xbf\xbd.*//')" "$(jq -r '.cases[].greedy_text' "$(reference llama-3-like)" | sed 's/\xef\xbf\xbd.*//')"
}

@test "no lines in, no lines out" {
    ok jsonl </dev/null
    assert_output ''
}

@test "SIGINT writes what there is and ends by the signal" {
    jq -nc 'range(4) | {id: ., prompt: "Once upon a time"}' >in
    env --default-signal=INT "$BMC_BIN/bmc-gen" -m "$(model grimm)" --jsonl -b 4 --ignore-eos --kv iterative -t 1 --stats stats.json <in >out 2>err &
    pid=$!
    # Statistics of the process tell when it works.
    working() { [ "$(awk '{ print $14 }' "/proc/$pid/stat")" -ge 20 ]; }
    wait_until working
    kill -INT $pid
    code=0
    wait $pid || code=$?
    assert_equal "$code" 130
    grep -q 'eval time' err
    assert_equal "$(jq -c .id out | paste -sd ' ')" '0 1 2 3'
    jq -e '(.ids | length) > 0' out >/dev/null
    jq -e .sequences stats.json >/dev/null
}
