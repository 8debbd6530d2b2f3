# Members of requests of --jsonl; errors of single lines and of the run.
load ../helper

setup_file() {
    for name in grimm grimm-draft; do model "$name" >/dev/null; done
}

jsonl() { bmc-gen -q -m "$(model grimm)" --jsonl "$@"; }
speculative() { bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" --always -k 3 --jsonl "$@"; }
ids() { bmc-gen -q -m "$(model grimm)" -p "Once upon a time" -n 40 --ids --ignore-eos "$@"; }
error() { jq -r '.error // ""' <<<"$output"; }

@test "members, errors and failing allocations" {
    run "$BMC_BUILD/tests/test_requests"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ [0-9]{3}\ checks,\ 0\ failed$ ]]
}

@test "the man page lists the members, their aliases and their values" {
    sed -n '/BEGIN MEMBERS/,/END MEMBERS/p' "$ROOT/man/bmc-jsonl.5" | sed 's/\\f[BR]//g; s/\\-/-/g' |
        awk '/^\.TP/ { getline; name = $0; also = ""
                if (at = index(name, ", also ")) { also = substr(name, at + 7); name = substr(name, 1, at - 1) }
                getline; print name "\t" also "\t" substr($0, 1, index($0, ": ") - 1) }' >listed
    "$BMC_BUILD/tests/test_requests" members >known
    [ "$(wc -l <known)" -ge 19 ]
    equal_files listed known
}

# ---- members ----

@test "a member has the effect of the option of the same name" {
    jq -nc '{prompt: "Once upon a time", n: 40, ignore_eos: true}' >plain
    ok jsonl -f plain
    greedy=$(jq -r '.ids | map(tostring) | join(" ")' <<<"$output")
    assert_equal "$greedy" "$(ids)"
    cat >rows <<'END'
{"presence_penalty":3} --presence-penalty 3
{"frequency_penalty":1} --frequency-penalty 1
{"frequency_penalty":1,"repeat_last_n":4} --frequency-penalty 1 --repeat-last-n 4
{"repeat_penalty":1.5,"repeat_last_n":-1} --repeat-penalty 1.5 --repeat-last-n -1
{"repetition_penalty":1.5} --repeat-penalty 1.5
{"logit_bias":{"48":-9,"263":2.5}} --logit-bias 48=-9 --logit-bias 263=2.5
{"logit_bias":{"48":false}} --logit-bias 48=-inf
{"temp":1,"seed":3} --temp 1 --seed 3
{"temperature":1,"seed":3,"top_k":4} --temp 1 --seed 3 --top-k 4
{"temp":1,"seed":4,"top_p":0.3} --temp 1 --seed 4 --top-p 0.3
{"temp":1,"seed":4,"min_p":0.4} --temp 1 --seed 4 --min-p 0.4
{"temp":2,"seed":3,"top_k":0,"top_p":1,"min_p":0,"presence_penalty":1,"logit_bias":{"48":5}} --temp 2 --seed 3 --top-k 0 --top-p 1 --min-p 0 --presence-penalty 1 --logit-bias 48=5
END
    jq -c --slurpfile plain plain --raw-input '$plain[0] + (split(" ")[0] | fromjson)' rows >requests
    # Each in its own run, as samples depend on the line number.
    while read -r request; do jsonl <<<"$request"; done <requests | jq -r '.ids | map(tostring) | join(" ")' >got
    assert_equal "$(wc -l <got)" 12
    while read -r member options <&4 && read -r got <&5; do
        # shellcheck disable=SC2086
        assert_equal "$got" "$(ids $options)"
        [ "$got" != "$greedy" ] || fail "$member changes nothing"
    done 4<rows 5<got
}

@test "settings are per request; biases and stop strings of a request replace those of the run" {
    jq -nc '{ids: [2090, 675], n: 12} | ., . + {logit_bias: {}}, . + {temperature: 1.5, seed: 5}, . + {presence_penalty: 2}, .' >in
    for batch in 1 5; do
        ok jsonl -b $batch -f in --logit-bias 48=-inf --presence-penalty 0.5
        jq -c .ids <<<"$output" >"$batch"
        assert_equal "$(sed -n 1p "$batch")" "$(sed -n 5p "$batch")"
        assert_equal "$(sort -u "$batch" | wc -l)" 4
    done
    equal_files 1 5
    refute grep -q '\b48\b' <(sed -n '1p;3p;4p' 1)
    grep -q '\b48\b' <(sed -n 2p 1)
}

@test "names of members as in other servers" {
    jq -nc '{prompt: "The king", n: 7, temp: 0.9, stop: "was"}, {prompt: "The king", max_tokens: 7, temperature: 0.9, stop_sequences: ["was"]},
        {ids: [338, 564], n_predict: 7}, {prompt_token_ids: [338, 564], max_new_tokens: 7}' >in
    ok jsonl -f in
    assert_equal "$(jq -c '(.ids | length) <= 7' <<<"$output" | sort -u)" true
    jq -c 'del(.id)' <<<"$output" >out
    assert_equal "$(sed -n 3p out)" "$(sed -n 4p out)"
}

@test "speculative decoding with penalties and biases gives the ids of plain decoding" {
    jq -nc '["Once upon a time", "The wolf", "The king said"][] as $p | {prompt: $p, n: 40, ignore_eos: true} |
        ., . + {presence_penalty: 1.5}, . + {frequency_penalty: 0.7, repeat_last_n: 20}, . + {logit_bias: {"48": -4, "263": false}, repeat_penalty: 1.2}' >in
    ok jsonl -f in
    want=$output
    assert_equal "$(jq -c .ids <<<"$want" | sort -u | wc -l)" 12
    for batch in 1 6; do
        ok speculative -b $batch -f in
        assert_equal "$output" "$want"
    done
    ok speculative -f in --tree 8 -k auto
    assert_equal "$output" "$want"
}

@test "--logit-bias: malformed biases and unknown ids are errors" {
    for bias in 48 =1 48= x=1 -1=1 48=nan 48=inf 48=1e7 48=1x 4294967296=1; do
        expect_error 2 '--logit-bias ".*": ID=BIAS' ids --logit-bias "$bias"
    done
    expect_error 1 'bias .*4096.* 4096' ids --logit-bias 4096=1
    jq -nc '{ids: [5], n: 2}, {ids: [5], n: 2, logit_bias: {"4096": 1}}' >in
    some_fail 1 2 jsonl -f in
    assert_equal "$(error)" $'\nline 2: logit bias for id 4096, which is outside the vocabulary of 4096'
}

@test "a snapshot stores penalties" {
    want=$(ids --presence-penalty 1 --frequency-penalty 0.25)
    first=$(ids --presence-penalty 1 --frequency-penalty 0.25 -n 15 --save-kv k.kv)
    rest=$(bmc-gen -q -m "$(model grimm)" --load-kv k.kv -n 25 --ids --ignore-eos)
    assert_equal "$first $rest" "$want"
    bmc-convert --info k.kv --format json | jq -e '.rows[0] | .presence_penalty == 1 and .frequency_penalty == 0.25'
    [ "$(bmc-gen -q -m "$(model grimm)" --load-kv k.kv -n 25 --ids --ignore-eos --presence-penalty 0)" != "$rest" ]
    # The request overrides the snapshot.
    ok jsonl --load-kv k.kv -n 25 --ignore-eos <<<'{"presence_penalty":0}'
    assert_equal "$(jq -r '.ids | map(tostring) | join(" ")' <<<"$output")" "$(bmc-gen -q -m "$(model grimm)" --load-kv k.kv -n 25 --ids --ignore-eos --presence-penalty 0)"
}

@test "seeds: any of 64 bits as an option, a member and from a snapshot; -1 draws one" {
    sampled=(-q -m "$(model grimm)" -p A -n 6 --temp 1)
    for seed in 9223372036854775808 18446744073709551615; do
        text=$(bmc-gen "${sampled[@]}" --seed $seed --stats stats.json)
        assert_equal "$(jsonl --temp 1 <<<'{"prompt":"A","n":6,"seed" : '$seed'}' | jq -r .text)" "$text"
        assert_equal "$(jq -r .seed stats.json)" $seed
        begun=$(bmc-gen "${sampled[@]}" --seed $seed -n 2 --save-kv k.kv)
        assert_equal "$begun$(bmc-gen -q -m "$(model grimm)" --load-kv k.kv -n 4)" "$text"
        [ "$text" != "$last" ]
        last=$text
    done
    # A drawn seed is reported, and repeats the text.
    jsonl --temp 1 <<<'{"prompt":"A","n":6,"seed":-1}' >drawn
    jsonl --temp 1 <<<'{"prompt":"A","n":6,"seed":-1}' >again
    [ "$(jq .seed drawn)" != "$(jq .seed again)" ]
    assert_equal "$(jsonl --temp 1 <<<'{"prompt":"A","n":6,"seed":'"$(jq .seed drawn)"'}' | jq -c .)" "$(jq -c 'del(.seed)' drawn)"
    some_fail 3 3 jsonl <<<$'{"prompt":"A","n":1,"seed":18446744073709551616}\n{"prompt":"A","n":1,"seed":-2}\n{"prompt":"A","n":1,"chat_template_kwargs":{"seed":9223372036854775808}}'
    assert_equal "$(error)" $'line 1: not valid JSON at column 47: an integer of more than 64 bits\nline 2: "seed" is -2, a whole number from -1 to 2^64-1 is expected\nline 3: a member "seed" inside another one exceeds 63 bits'
    expect_error 2 'needs a whole number from -1 to 18446744073709551615; found "-2"' bmc-gen "${sampled[@]}" --seed -2
}

# ---- log-probabilities ----

@test "prompt_logprobs equal those of --score, for any chunk and batch size" {
    text="Once upon a time there was a king who had a daughter, and she was so beautiful that the sun itself"
    printf '%s' "$text" | bmc-gen -q -m "$(model grimm)" --score --format jsonl | jq -sc '[.[] | select(.pos) | [.id, .piece, .logprob]]' >want
    jq -nc --arg t "$text" '{prompt: $t, n: (0, 3), prompt_logprobs: 2}, {prompt: "The king", n: 2}, {prompt: $t, n: 1, prompt_logprobs: 1}' >in
    for chunk in 1 7 512; do
        ok jsonl -b 3 --chunk $chunk -f in
        jq -e --slurpfile want want 'select(.prompt_logprobs) | [.prompt_logprobs[] | [.id, .piece, .logprob]] as $got
            | ($got | length) == ($want[0] | length)
            and all(range($got | length); $got[.][:2] == $want[0][.][:2] and ($got[.][2] // 9) - ($want[0][.][2] // 9) < 1e-5 and ($want[0][.][2] // 9) - ($got[.][2] // 9) < 1e-5)
            and .prompt_logprobs[0] == {id: $got[0][0], piece: $got[0][1], logprob: null, top: []}
            and (.prompt_logprobs[1:] | all(.top[0].logprob >= .logprob))' <<<"$output" >verdicts
        assert_equal "$(paste -sd ' ' verdicts)" 'true true true'
        assert_equal "$(jq -c '[.prompt_logprobs[1].top? | length], (.ids | length)' <<<"$output" | paste -sd ' ')" '[2] 0 [2] 3 [0] 2 [1] 1'
    done
}

@test "prompt_logprobs are null for tokens whose KV entries come from a snapshot" {
    bmc-gen -q -m "$(model grimm)" -p "Once upon a time" -n 2 --save-kv k.kv >/dev/null
    ok jsonl --load-kv k.kv <<<'{"ids":[5,6],"n":1,"prompt_logprobs":1}'
    assert_equal "$(jq -c '[.prompt_logprobs[] | .logprob != null and (.top | length) == 1]' <<<"$output")" '[false,false,false,false,false,false,true,true]'
}

# ---- errors ----

@test "an unknown member is an error that suggests the nearest name; --lenient ignores it" {
    jq -nc '{ids: [5], n: 2, tempratur: 1}, {ids: [5], n: 2}, {ids: [5], maxtokens: 2}' >in
    some_fail 2 3 jsonl -n 1 -f in
    assert_equal "$(error)" 'line 1: unknown member "tempratur"; did you mean "temperature"? (--lenient ignores unknown ones)

line 3: unknown member "maxtokens"; did you mean "max_tokens"? (--lenient ignores unknown ones)'
    some_fail 2 3 speculative -n 1 -f in
    ok jsonl --lenient -n 1 -f in
    assert_equal "$(jq -c '[(.ids | length), .error]' <<<"$output" | paste -sd ' ')" '[2,null] [2,null] [1,null]'
    expect_error 2 'lenient.*--jsonl' bmc-gen --lenient -p x
    some_fail 1 1 jsonl <<<'{"ids":[5],"from":1}'
    [[ $(error) == *--load-kv* ]]
}

@test "lines of arbitrary bytes cost their own result only" {
    bmc-gen -q -m "$(model grimm)" -p "Once upon a time" -n 1 --save-kv $'k\xff\e[31m.kv' >/dev/null
    long=$(printf '%03000d' 0)
    good='{"id":1,"n":2,"from":null}'
    {
        for bad in $'{"prompt":"C:\\\xc3\xa9"}' $'{"id":"\xc3\xa9\xc3' '{"id":"x'"$long"'","from":"x'"$long"'"}' '{"é'"${long//0/é}"'":1}' \
            '{"id":"\u009b\u001b[31m","from":"\u009b\u001b[31m"}' '{"prompt":"'"${long//0/é}"$'\\\xc3"}' $'{"prompt":"\xff'"$long"'"}' '{"n":1e999}' '{"n":99999999999999999999}'; do
            printf '%s\n' "$bad"
            printf '{"ids":[5],"n":2}\n'
        done
    } >in
    some_fail 9 18 jsonl -f in --load-kv $'k\xff\e[31m.kv'
    iconv -f UTF-8 -t UTF-8 <<<"$output" >/dev/null
    assert_equal "$(jq -c '[.finish, (.ids | length)]' <<<"$output" | sort | uniq -c | tr -s ' ' | paste -sd ' ')" ' 9 ["error",0]  9 ["length",2]'
    assert_equal "$(jq -c 'select(.error) | (.error | length) < 600' <<<"$output" | sort -u)" true
    assert_equal "$(jq -r 'select(.error) | .error' <<<"$output" | grep -c '[[:cntrl:]]')" 0
    assert_equal "$(command jq -ca 'select(.error) | .id' <<<"$output" | sed -n 5p)" '"\u009b\u001b[31m"'
}

@test "control characters of an id are not printed to the terminal" {
    printf '{"id":"\\u009b31m\\u007f","ids":[5],"n":1}\n' >in
    run --separate-stderr jsonl -f <(cat in in) --save-kv k.kv
    assert_success
    [[ $stderr =~ "have the id " ]]
    [[ $stderr =~ '\u009b31m\u007f"; only the first' ]]
    [[ $stderr != *[[:cntrl:]]* ]]
}

@test "a run that fails writes finished results in order" {
    jq -nc 'range(40) | {id: ., ids: [5, 6], n: (if . == 0 then 300 else 1 end)}' >in
    limited() { (ulimit -f 800 && jsonl -b 4 --ignore-eos --save-kv k.kv "$@" -f in | cat && exit "${PIPESTATUS[0]}"); }
    run --separate-stderr limited
    assert_equal "$status" 1
    assert_equal "${#stderr_lines[@]}" 1
    [[ $stderr =~ k\.kv:.*File\ too\ large ]]
    n=$(wc -l <<<"$output")
    [ "$n" -ge 10 ]
    assert_equal "$(jq -c .id <<<"$output")" "$(seq 0 $((n - 1)))"
    # Those that were read ahead have not begun: their errors begin with the line.
    begun=$(jq -c 'select((.error // "") | startswith("line ") | not)' <<<"$output")
    assert_equal "$(sed 1d <<<"$begun" | jq -c '[.finish, (.ids | length)]' | sort | uniq -c | sort -rn | head -n 1 | sed 's/^ *[0-9]* //')" '["length",1]'
    jq -se '.[0].finish == "error" and (.[0].error | test("^the run ended: k.kv: .*File too large"))' <<<"$output"
    # A finished result is no error, even if its KV entries could not be saved.
    [ "$(jq -c 'select(.finish == "error")' <<<"$begun" | wc -l)" -le 4 ]
    [ ! -e k.kv ]
    run --separate-stderr limited --unordered
    assert_equal "$status" 1
    assert_equal "$(jq -c .id <<<"$output" | sort -n)" "$(seq 0 $((n - 1)))"
    # Plain text is printed as well.
    run --separate-stderr bash -c "ulimit -f 40; '$BMC_BIN/bmc-gen' -q -m '$(model grimm)' -p 'Once upon a time' -n 4 --save-kv k.kv | cat; exit \${PIPESTATUS[0]}"
    assert_equal "$status|$output" '1|, and the next'
}

@test "a full disk ends the run at the first result, of any length" {
    jq -nc 'range(6) | {prompt: "a", n: 50, logprobs: 20, ignore_eos: true}' >in
    run --separate-stderr bash -c "'$BMC_BIN/bmc-gen' -q -m '$(model grimm)' --jsonl -b 1 --stats s.json -f in >/dev/full"
    assert_equal "$status" 1
    [[ $stderr == 'bmc-gen: cannot write to standard output: No space left on device' ]]
    [ ! -e s.json ]
}

# The errors in $output, without line numbers.
errors_of() { jq -r '.error | sub("^line [0-9]+: "; "")' <<<"$output"; }

@test "an unknown member: a suggestion only of a similar name, and a refusal of members of other servers" {
    jq -nc '{ids: [5], Temperature: 1}, {ids: [5], TOPK: 1}, {ids: [5], whatever: 1}, {ids: [5], xy: 1},
        {ids: [5], modell: "m"}, {ids: [5], functions: []}' >in
    some_fail 6 6 jsonl -n 1 -f in
    assert_equal "$(errors_of)" 'unknown member "Temperature"; did you mean "temperature"? (--lenient ignores unknown ones)
unknown member "TOPK"; did you mean "top_k"? (--lenient ignores unknown ones)
unknown member "whatever" (--lenient ignores unknown ones)
unknown member "xy" (--lenient ignores unknown ones)
unknown member "modell" (--lenient ignores unknown ones)
"functions" is not supported: give tools instead (--lenient ignores it)'
}

@test "a byte order mark is skipped, values that are not objects are errors, 2.0 is a whole number" {
    printf '\xef\xbb\xbf{"ids":[5],"n":2.0}\n"x"\nnull\n{"ids":[5],"n":2.5}\n{"ids":[5],"seed":1e300}\n' >in
    some_fail 4 5 jsonl --ignore-eos -f in
    assert_equal "$(jq -c '[(.ids | length), .error]' <<<"$output")" '[2,null]
[0,"line 2: is a string, an object is expected"]
[0,"line 3: is null, an object is expected"]
[0,"line 4: \"n\" is 2.5, a whole number, -1 or more is expected"]
[0,"line 5: \"seed\" is 1e+300, a whole number from -1 to 2^64-1 is expected"]'
    printf '\xef\xbb\xbf{"ids":[5,6]}\n7\n' >in
    run --separate-stderr bmc-gen -q -m "$(model grimm)" --score --jsonl -f in
    assert_equal "$(jq -c .error <<<"$output")" $'null\n"line 2: is an integer, an object is expected"'
}
