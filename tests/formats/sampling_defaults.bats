# Sampling defaults that a model brings for chats: generation_config.json and keys of GGUF files.
load ../helper

setup_file() {
    for name in qwen2-like llama-3-like grimm-draft; do model "$name" >/dev/null; done
}

defaults() { bmc-convert --info --format json "$1" | jq -c .chat_sampling; } # MODEL

with_generation() { # JSON -> ./a.bmc, whose generation_config.json has these members
    mkdir -p source
    cp "$(folder qwen2-like)"/* source
    printf '%s' "$1" >source/generation_config.json
    bmc-convert source -o a.bmc
}

generate() { bmc-gen -q -m "$1" --chat-template chatml -n 12 --ids "${@:2}"; } # MODEL OPTION..

@test "generation_config.json: what is there, and with do_sample transformers' values for the rest" {
    assert_equal "$(defaults "$(model qwen2-like)")" '{}'
    assert_equal "$(defaults "$(model llama-3-like)")" '{"min_p":0,"temp":0.6,"top_k":50,"top_p":0.9}'
    ok with_generation '{"temperature": 0.7, "top_p": null, "max_new_tokens": 9}'
    assert_equal "$(defaults a.bmc)" '{"temp":0.7}'
    ok with_generation '{"do_sample": true, "top_k": -1, "typical_p": 0.5, "repetition_penalty": 1.1}'
    assert_equal "$(defaults a.bmc)" '{"min_p":0,"repeat_last_n":-1,"repeat_penalty":1.1,"temp":1,"top_k":0,"top_p":1,"typical_p":0.5}'
    ok with_generation '{"do_sample": false, "temperature": 0.7, "top_k": 3}'
    assert_equal "$(defaults a.bmc)" '{"temp":0}'
    assert_equal "$(bmc-convert --info --format json a.bmc | jq -r .model_id)" \
        "$(bmc-convert --info --format json "$(model qwen2-like)" | jq -r .model_id)"
    run_plain with_generation '{"temperature": "warm", "top_k": 2}'
    assert_equal "$stderr" 'bmc-convert: source: "temperature" of generation_config.json is not used: it is a string'
    assert_equal "$(defaults a.bmc)" '{"top_k":2}'
    run_plain with_generation '{"top_p": 1.5}'
    assert_equal "$stderr" 'bmc-convert: source: "top_p" of generation_config.json is not used: it is out of range'
    ok bmc-convert --verify a.bmc
}

@test "a GGUF file: general.sampling keys" {
    le() { bytes_le "$@" >>keys; }
    text() { le 8 ${#1} && printf '%s' "$1" >>keys; }
    text general.sampling.temp
    le 4 6
    le 4 1056964608 # 0.5
    text general.sampling.top_k
    le 4 5
    le 4 7
    text x.filler # tensors stay aligned
    le 4 8
    text 1234567890123456789012345
    head -c 24 "$FIXTURES/gguf/qwen2-like.gguf" >a.gguf
    cat keys >>a.gguf
    tail -c +25 "$FIXTURES/gguf/qwen2-like.gguf" >>a.gguf
    bytes_le 8 $(($(od -An -t u8 -j 16 -N 8 a.gguf) + 3)) | patch a.gguf 16
    ok bmc-convert a.gguf -o a.bmc
    assert_equal "$(defaults a.bmc)" '{"temp":0.5,"top_k":7}'
}

@test "they are defaults of chats only; options, members of requests and snapshots win" {
    plain=$(model qwen2-like)
    with_generation '{"do_sample": true, "temperature": 1.5, "top_k": 30, "top_p": 0.9}'
    same=(--temp 1.5 --top-k 30 --top-p 0.9 --min-p 0)
    greedy=$(generate "$plain" --chat -p Hello --temp 0)
    sampled=$(generate "$plain" --chat -p Hello "${same[@]}")
    refute [ "$greedy" = "$sampled" ]
    assert_equal "$(generate a.bmc --chat -p Hello)" "$sampled"
    assert_equal "$(generate a.bmc --chat -p Hello --temp 0)" "$greedy"
    assert_equal "$(generate a.bmc --chat -p Hello --top-k 2)" "$(generate "$plain" --chat -p Hello "${same[@]}" --top-k 2)"
    assert_equal "$(generate a.bmc --chat -p Hello --beams 2)" "$(generate "$plain" --chat -p Hello --beams 2)"
    assert_equal "$(bmc-gen -q -m a.bmc -p Hello -n 12 --ids)" "$(bmc-gen -q -m "$plain" -p Hello -n 12 --ids)"
    # Requests.
    requests='{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12}
{"prompt": "Hello", "n": 12}
{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temp": 0}
{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "min_p": 0.3}'
    bmc-gen -q -m a.bmc --chat-template chatml --jsonl <<<"$requests" | jq -c .ids >got
    jq -c 'if .messages then {temp: 1.5, top_k: 30, top_p: 0.9, min_p: 0} + . else . end' <<<"$requests" |
        bmc-gen -q -m "$plain" --chat-template chatml --jsonl | jq -c .ids >wanted
    assert_equal "$(wc -l <got)" 4
    diff got wanted
    # A snapshot keeps its own.
    generate a.bmc --chat -p Hello --temp 0 --save-kv a.kv
    generate a.bmc --chat -p Hello --load-kv a.kv --stats stats.json
    assert_equal "$(jq -c '[.sampling_from, .temp]' stats.json)" '["model",0]'
}

@test "statistics say so" {
    with_generation '{"temperature": 0.5, "top_k": 30}'
    run_plain bmc-gen -m a.bmc --chat-template chatml --chat -p Hello -n 2 --top-k 3 --stats stats.json
    grep -q '^sampling  .*= temp 0.5, top_k 3, top_p 0.95, min_p 0.05; the model.s defaults: temp 0.5, top_k 30$' <<<"$stderr"
    assert_equal "$(jq -c '[.sampling_from, .temp, .top_k, .repeat_penalty]' stats.json)" '["model",0.5,3,1]'
    run_plain bmc-gen -m a.bmc -p Hello -n 2 --stats stats.json
    refute grep -q '^sampling  .*defaults' <<<"$stderr"
    assert_equal "$(jq -c '[.sampling_from, .temp, .top_k]' stats.json)" '["default",0,40]'
    ok bmc-spec -q --lookup -m a.bmc --chat-template chatml --chat -p Hello -n 4 --ids
    assert_equal "$output" "$(bmc-gen -q -m a.bmc --chat-template chatml --chat -p Hello -n 4 --ids)"
}

@test "--chat samples at 0.7, with a repetition penalty of 1.1, with a model that has no temperature; models, options and snapshots win" {
    plain=$(model qwen2-like)
    run_plain bmc-gen -m "$plain" --chat-template chatml --chat -p Hello -n 12 --ids --stats stats.json
    assert_equal "$output" "$(generate "$plain" --chat -p Hello --temp 0.7 --repeat-penalty 1.1)"
    refute [ "$output" = "$(generate "$plain" --chat -p Hello --temp 0)" ]
    refute [ "$output" = "$(generate "$plain" --chat -p Hello --seed 1)" ]
    # before the answer
    assert_regex "${stderr%%$'\n'*}" '^sampling  .*= temp 0.7, top_k 40, top_p 0.95, min_p 0.05, repeat_penalty 1.1; temperature and repeat_penalty are the defaults of --chat$'
    assert_equal "$(jq -c '[.sampling_from, .temp, .repeat_penalty]' stats.json)" '["chat",0.7,1.1]'
    generate "$plain" --chat -p Hello --temp 0 --save-kv a.kv --stats stats.json
    assert_equal "$(jq -c '[.sampling_from, .temp]' stats.json)" '["default",0]'
    generate "$plain" --chat -p Hello --load-kv a.kv --stats stats.json
    assert_equal "$(jq -c '[.sampling_from, .temp]' stats.json)" '["default",0]'
    with_generation '{"do_sample": false}'
    assert_equal "$(generate a.bmc --chat -p Hello)" "$(generate "$plain" --chat -p Hello --temp 0)"
    with_generation '{"top_k": 3}'
    assert_equal "$(generate a.bmc --chat -p Hello)" "$(generate "$plain" --chat -p Hello --temp 0.7 --repeat-penalty 1.1 --top-k 3)"
    with_generation '{"repetition_penalty": 1.05, "top_k": 3}'
    assert_equal "$(generate a.bmc --chat -p Hello)" "$(generate "$plain" --chat -p Hello --temp 0.7 --repeat-penalty 1.05 --repeat-last-n -1 --top-k 3)"
    # Requests: under --chat all of them, without it none.
    printf '{"prompt": "Hello", "n": 12%s}\n' '' ', "temp": 0' >in
    bmc-gen -q -m "$plain" --chat-template chatml --chat --jsonl -f in | jq -r '.ids | join(" ")' >got
    assert_equal "$(head -n 1 got)" "$output"
    assert_equal "$(tail -n 1 got)" "$(generate "$plain" --chat -p Hello --temp 0)"
    assert_equal "$(bmc-gen -q -m "$plain" --chat-template chatml --jsonl <<<'{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12}' | jq -r '.ids | join(" ")')" "$(tail -n 1 got)"
    for empty in '' $' \n'; do
        expect_error 1 'the message is empty: give one with -p, -f or on standard input' bmc-gen -q -m "$plain" --chat-template chatml --chat -f <(printf '%s' "$empty") -n 2
    done
}

# The number of ids of the shortest beginning that ends with a phrase of at most 256 tokens, 4 times or more in 256 tokens or more.
repeated() { # <IDS
    awk '{
        for (n = 256; n <= NF; n++)
            for (p = 1; p <= 256 && 4 * p <= n; p++) {
                len = 4 * p > 256 ? 4 * p : 256
                for (i = n; i > n - len + p && $i == $(i - p); i--) ;
                if (i == n - len + p) { print n; exit }
            }
    }'
}

@test "an answer under --chat ends when it repeats itself, unless it is greedy or constrained" {
    m=$(model grimm-draft)
    chat=(bmc-gen -m "$m" --chat-template chatml --chat)
    "${chat[@]}" -q -p 'The king' -n 600 --ids --temp 0 >greedy
    wanted=$(repeated <greedy)
    [ "$wanted" -gt 256 ]
    run_plain "${chat[@]}" -p 'The king' -n 600 --ids --top-k 1 --repeat-penalty 1 --stats stats.json
    assert_equal "$output" "$(cut -d ' ' -f "1-$wanted" greedy)"
    grep -q '^repetition  *= *1 answer ended for repeating a phrase$' <<<"$stderr"
    assert_equal "$(jq -c '[.finish, .finished_repetition]' stats.json)" '["repetition",1]'
    # Nothing but one token: "a", by its bias.
    a=101
    printf '{"prompt": "x", "n": 257, "logit_bias": {"%s": 1000000}%s}\n' "$a" '' "$a" ', "temp": 0' "$a" ', "ignore_eos": true' "$a" ', "regex": "a*"' >in
    "${chat[@]}" -q --jsonl -f in | jq -c '[.finish, (.ids | length)]' >got
    assert_equal "$(paste -sd ' ' got)" '["repetition",256] ["length",257] ["length",257] ["length",257]'
    assert_equal "$(head -n 1 in | bmc-gen -q -m "$m" --jsonl | jq -r .finish)" length
}

@test "a chat section with wrong settings is refused" {
    printf 'chat x\nuser "a"\nsampling temp warm\n' >bad.chat
    expect_error 1 'bad.chat: line 3: "sampling" needs the name of a setting and a number' \
        bmc-gen -m "$(model qwen2-like)" --chat --chat-template ./bad.chat -p Hello
    printf 'chat x\nuser "a"\nsampling top_p 3\n' >bad.chat
    expect_error 1 'bad.chat: line 3: top_p cannot be 3' bmc-gen -m "$(model qwen2-like)" --chat --chat-template ./bad.chat -p Hello
    printf 'chat x\nuser "a"\nsampling temp 1\nsampling temp 1\n' >bad.chat
    expect_error 1 'bad.chat: line 4: temp is set twice' bmc-gen -m "$(model qwen2-like)" --chat --chat-template ./bad.chat -p Hello
}
