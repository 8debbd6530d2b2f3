# What a first try of the programs ran into: each test is a slip that somebody made, and the answer to it.

load helper

setup_file() {
    for name in grimm grimm-draft; do model "$name" >/dev/null; done
}

gen() { bmc-gen -q -m "$(model grimm)" "$@"; }

@test "a snapshot that finds the disk full costs no result of its step, and no text under way" {
    for id in 1 2 3 4 5 6; do
        jq -nc --argjson id $id '{id: $id, prompt: "Once upon a time", n: (if $id < 5 then 6 else 60 end)}'
    done >in
    limited() { (ulimit -f 200 && gen --jsonl -b 6 --ignore-eos --save-kv k.kv -f in | cat && exit "${PIPESTATUS[0]}"); }
    run --separate-stderr limited
    assert_equal "$status" 1
    assert_equal "$stderr" "bmc-gen: k.kv: cannot write: File too large"
    assert_equal "$(jq -c '[.id, .finish, (.ids | length), (.text | length > 0)]' <<<"$output")" '[1,"length",6,true]
[2,"length",6,true]
[3,"length",6,true]
[4,"length",6,true]
[5,"error",6,true]
[6,"error",6,true]'
    assert_equal "$(jq -r 'select(.id > 4).error' <<<"$output" | sort -u)" "the run ended: ${stderr#bmc-gen: }"
}

# A measurement of one figure in as many rounds as are given.
measured() { # FILE ROUND..
    jq -n '{rows: [{test: "decode", policy: "bmc", batch: 1, model_id: "m", isa: "i", cpu: "c", version: "1",
                    samples: {x_ms: $ARGS.positional | map(tonumber)}}]}' --args "${@:2}" >"$1"
}

@test "a comparison that can judge nothing is no success" {
    measured a 1 2
    measured b 1 2
    run --separate-stderr "$BMC_BIN/bmc-prof" compare a b
    assert_equal "$status" 1
    assert_equal "${#stderr_lines[@]}" 1
    [[ $stderr =~ ^bmc-prof:\ none\ of\ 1\ figures\ .*--repeat\ 4 ]]
    [[ $output == *"no interval"* ]]
    measured a 1 2 1 2
    measured b 1 2 1 2
    ok "$BMC_BIN/bmc-prof" compare a b
}

@test "a model does not take the place of a text" {
    echo important >notes.txt
    expect_error 1 'notes.txt: is there and no model file, so it is not replaced: give another name' \
        bmc-convert "$(folder llama-bias)" -o notes.txt
    assert_equal "$(cat notes.txt)" important
    : >empty.bmc
    ok bmc-convert "$(folder llama-bias)" -o empty.bmc
    ok bmc-convert "$(folder llama-bias)" -o empty.bmc
}

@test "bmc-tune makes no profile with the name of none" {
    expect_error 2 '--profile: none is no profile everywhere' timeout 10 "$BMC_BIN/bmc-tune" --shape opt-125m -N 8 --profile none
    expect_error 2 '--profile: none is no profile everywhere' timeout 10 "$BMC_BIN/bmc-tune" --check --profile none
    assert_folder
}

errors_of() { jq -r '.error | sub("^line [0-9]+: "; "")' <<<"$output"; }

@test "an unknown member: a guess only where one is near, and a word for what other servers take" {
    jq -nc '{ids: [5], Temperature: 1}, {ids: [5], TOPK: 1}, {ids: [5], whatever: 1}, {ids: [5], xy: 1},
        {ids: [5], model: "m"}, {ids: [5], stream: true}' >in
    some_fail 6 6 gen --jsonl -n 1 -f in
    assert_equal "$(errors_of)" 'unknown member "Temperature"; the nearest that is known is "temperature" (--lenient ignores unknown ones)
unknown member "TOPK"; the nearest that is known is "top_k" (--lenient ignores unknown ones)
unknown member "whatever" (--lenient ignores unknown ones)
unknown member "xy" (--lenient ignores unknown ones)
unknown member "model": one run has one model, which -m gives (--lenient ignores unknown ones)
unknown member "stream": results come as lines, each when it is complete (--lenient ignores unknown ones)'
}

@test "lines: a byte order mark before the first, values that are no objects, whole numbers as reals" {
    printf '\xef\xbb\xbf{"ids":[5],"n":2.0}\n"x"\nnull\n{"ids":[5],"n":2.5}\n{"ids":[5],"seed":1e300}\n' >in
    some_fail 4 5 gen --jsonl --ignore-eos -f in
    assert_equal "$(jq -c '[(.ids | length), .error]' <<<"$output")" '[2,null]
[0,"line 2: is a string, an object is expected"]
[0,"line 3: is null, an object is expected"]
[0,"line 4: \"n\" is 2.5, a whole number, -1 or more is expected"]
[0,"line 5: \"seed\" is 1e+300, a whole number, 0 or more is expected"]'
    printf '\xef\xbb\xbf{"ids":[5,6]}\n7\n' >in
    run --separate-stderr gen --score --jsonl -f in
    assert_equal "$(jq -c .error <<<"$output")" $'null\n"line 2: is an integer, an object is expected"'
}

@test "--score --jsonl: --lenient passes over unknown members, which are named like those of requests" {
    printf '{"ids":[5,6],"label":3}\n{"txet":"x"}\n{"ids":[5],"model":"m"}\n' >in
    run --separate-stderr gen --score --jsonl -f in
    assert_equal "$status" 1
    assert_equal "$(errors_of)" 'unknown member "label" (--lenient ignores unknown ones)
unknown member "txet"; the nearest that is known is "text" (--lenient ignores unknown ones)
unknown member "model": one run has one model, which -m gives (--lenient ignores unknown ones)'
    run --separate-stderr gen --score --jsonl --lenient -f in
    assert_equal "$(jq -c .error <<<"$output" | paste -sd ' ')" 'null "line 2: exactly one of \"text\", \"prompt\" and \"ids\" is expected" null'
}

@test "a newline in a name does not make a second line" {
    cp "$(model grimm-draft)" $'a\nb.bmc'
    ok bmc-convert --verify $'a\nb.bmc'
    assert_equal "$output" 'a?b.bmc: ok'
    bmc-gen -q -m "$(model grimm-draft)" -p x -n 2 --save-kv $'a\nb.kv' >/dev/null
    ok bmc-convert --verify $'a\nb.kv'
    assert_equal "$output" 'a?b.kv: ok'
    expect_error 2 'a\?bmc-gen: ok' bmc-gen $'a\nbmc-gen: ok'
}

@test "a name on a hub in the place of a model file" {
    expect_error 1 '^bmc-gen: TinyLlama/TinyLlama: there is no such file, and nothing is downloaded .*git clone https://huggingface.co/TinyLlama/TinyLlama,.* make a .bmc model of its folder with bmc-convert$' \
        bmc-gen -q -m TinyLlama/TinyLlama -p x
    expect_error 1 '^bmc-gen: none/x.bmc: cannot open: No such file' bmc-gen -q -m none/x.bmc -p x
}

@test "what is found in a wrong place comes with what to do there" {
    expect_error 1 'is a .bmc model; a snapshot is needed here: give the model with -m$' bmc-gen -q -m "$(model grimm)" --load-kv "$(model grimm)" -p x
    printf 'GGUF\3\0\0\0' >x.gguf
    expect_error 1 '^bmc-gen: x.gguf: is a GGUF file; .* needed here: make a .bmc model of it with bmc-convert$' bmc-gen -q -m x.gguf -p x
    for name in - /dev/fd/5 >(cat); do
        expect_error 1 "^bmc-gen: $name: is no name for a regular file, which a snapshot must be: give one, as story.kv$" \
            gen -p x -n 1 --save-kv "$name" 5>open
    done
    printf '\xff' >bad.txt
    expect_error 1 '^bmc-gen: bad.txt: the text is not valid UTF-8 at byte 0' gen --score -f bad.txt
    scored() { gen --score <bad.txt; }
    expect_error 1 '^bmc-gen: standard input: the text is not valid UTF-8 at byte 0' scored
}

@test "bmc-tune: noise is no sentence about less than the least" {
    ok "$BMC_BUILD/tests/test_tune_says" bmc ./p table dry-run
    assert_output --partial ', and about as long as T = 4, which measured least;'
    run --separate-stderr "$BMC_BUILD/tests/test_tune_says" doubtful ./p table dry-run
    assert_output --partial ', and 1.300 (1.200 to 1.400) times as long as T = 4, which measured least;'
}

@test "--stats of an interrupted run says interrupted" {
    "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -p 'Once upon a time' -n 900 --ignore-eos --kv iterative --isa ref -t 1 --stats stats.json >out 3>&- &
    pid=$!
    for _ in {1..500}; do
        [ ! -s out ] || break
        sleep 0.02
    done
    kill -TERM $pid
    wait $pid || [ $? -eq 143 ]
    assert_equal "$(jq -c '[.finish, .finished_interrupted, .finished_error, .sequences]' stats.json)" '["interrupted",1,0,1]'
}

@test "the man page says how long an interrupted step may take, as the option has it" {
    page=$(sed -n '/^\.SS Signals/,/^\.SH/p' "$ROOT/man/bmc.7" | tr '\n' ' ')
    chunk=$(bmc-gen --help | sed -n 's/.*prompt tokens computed at a time (default \([0-9]*\)[,)].*/\1/p')
    [[ $page == *"chunk of a prompt: ${chunk:?} tokens by default"*chunk*"makes it shorter"* ]]
    [[ $page == *"a second one ends it at once"* ]]
}
