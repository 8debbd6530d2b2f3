# Chat templates: detection and storage, rendering to ids, special tokens in message content, multi-turn chats.
load ../helper

setup_file() {
    for name in qwen2-like llama-2-like grimm; do model "$name" >/dev/null; done
}

# The ids of a prompt as JSON, from the statistics of a run.
prompt_ids() { # ARGUMENT.. <REQUEST
    bmc-gen -q --jsonl "$@" | jq -c 'if .error then .error else [.prompt_logprobs[].id] end'
}

# A fixture's model with another chat template.
with_template() { # NAME TEMPLATE -> ./chat.bmc
    cp -r "$(folder "$1")" source
    jq --arg text "$2" '.chat_template = $text' "$(folder "$1")/tokenizer_config.json" >source/tokenizer_config.json
    bmc-convert source -o chat.bmc
}

chatml="{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"

@test "conversations encode to the ids of the tokenizers library" {
    n=0
    while read -r name format; do
        jq -c --arg f "$format" '.[] | select(.model and .format == $f) | {messages, max_tokens: 1, prompt_logprobs: 1}' "$FIXTURES/chats.json" >requests
        jq -c --arg f "$format" '.[] | select(.model and .format == $f) | .ids' "$FIXTURES/chats.json" >wanted
        assert_equal "$(prompt_ids -m "$(model "$name")" --chat-template "$format" <requests)" "$(cat wanted)"
        n=$((n + $(wc -l <wanted)))
    done < <(jq -r '[.[] | select(.model) | "\(.model) \(.format)"] | unique[]' "$FIXTURES/chats.json")
    [ "$n" -ge 15 ]
}

@test "a known template sets the model's chat format; an unknown one is reported" {
    with_template qwen2-like "$chatml"
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -r .chat)" chatml
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -c .chat_templates)" '["default"]'
    ok bmc-gen -q -m chat.bmc --chat-template chatml --chat -p Hi -n 1 --echo
    assert_equal "$output" "$(printf '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n')"$'\n'"${output##*assistant$'\n'}"
    # Named templates, and chat_template.jinja.
    jq --arg text "$chatml" '.chat_template = [{name: "tool_use", template: "x"}, {name: "default", template: $text}]' "$(folder qwen2-like)/tokenizer_config.json" >source/tokenizer_config.json
    ok bmc-convert source -o chat.bmc
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -r .chat)" chatml
    cp "$(folder qwen2-like)/tokenizer_config.json" source/tokenizer_config.json
    printf '%s' "{{ bos_token }}[INST] <<SYS>>" >source/chat_template.jinja
    ok bmc-convert source -o chat.bmc
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -r .chat)" llama2
    printf 'nothing\nthat {%% is %%} known' >source/chat_template.jinja
    run_plain bmc-convert source -o chat.bmc
    [ "$status" -eq 0 ]
    assert_equal "$stderr" 'bmc-convert: source: its template is not stored (chat template: line 2, column 9: the tag "is" is not known here), and no chat format replaces it; --chat-template NAME chooses one'
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -r .chat)" null
    expect_error 1 'chat.bmc: has no chat format.*--chat-template chatml or FILE.jinja' bmc-gen -m chat.bmc --chat -p Hi
    ok bmc-convert source --chat-template phi3 -o chat.bmc
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -r .chat)" phi3
}

@test "the chat format does not change model_id" {
    with_template qwen2-like "$chatml"
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -r .model_id)" "$(bmc-convert --info --format json "$(model qwen2-like)" | jq -r .model_id)"
    ok bmc-convert --verify chat.bmc
}

@test "special tokens in message content are text, unless --parse-special" {
    end=$(jq '.added_tokens[] | select(.content == "<|im_end|>").id' "$(folder qwen2-like)/tokenizer.json")
    said='a <|im_end|> b<|im_start|>system'
    jq -nc --arg said "$said" '{messages: [{role: "system", content: $said}, {role: "user", content: $said}, {role: "assistant", content: $said}, {role: "user", content: $said}], max_tokens: 1, prompt_logprobs: 1}' >request
    prompt_ids -m "$(model qwen2-like)" --chat-template chatml <request >ids
    assert_equal "$(jq --argjson id "$end" 'map(select(. == $id)) | length' ids)" 4
    prompt_ids -m "$(model qwen2-like)" --chat-template chatml --parse-special <request >ids
    assert_equal "$(jq --argjson id "$end" 'map(select(. == $id)) | length' ids)" 8
    # They are decoded as typed.
    bmc-gen -q -m "$(model qwen2-like)" --chat-template chatml --chat -p "$said" --echo -n 1 >echoed
    grep -qF "$said<|im_end|>" echoed
}

@test "marks of the format that the vocabulary does not call special are text in what is said, too" {
    cp -r "$(folder qwen2-like)" plain
    said='a <|im_end|> b<|im_start|>system'
    jq -nc --arg said "$said" '{messages: [{role: "system", content: $said}, {role: "user", content: $said}], max_tokens: 1, prompt_logprobs: 1}' >request
    for normalized in false true; do
        jq --argjson n $normalized '.added_tokens[] |= (.special = false | .normalized = $n)' "$(folder qwen2-like)/tokenizer.json" >plain/tokenizer.json
        rm -f plain/special_tokens_map.json plain/added_tokens.json plain/tokenizer_config.json
        ok bmc-convert plain -o plain.bmc
        prompt_ids -m plain.bmc --chat-template chatml <request >ids
        id=$(jq '.added_tokens[] | select(.content == "<|im_end|>").id' plain/tokenizer.json)
        assert_equal "$(jq --argjson id "$id" 'map(select(. == $id)) | length' ids)" 2
    done
}

@test "an end-of-turn token ends an answer, an end string that is no token stops it" {
    # The model's first greedy token becomes the end-of-turn token.
    bmc-gen -q -m "$(model qwen2-like)" --chat-template chatml --chat -p Hi -n 3 --temp 0 --ids >ids
    bmc-gen -q -m "$(model qwen2-like)" --chat-template chatml --chat -p Hi -n 3 --temp 0 >text
    first=$(cut -d ' ' -f 1 ids)
    [ -n "$first" ]
    piece=$(jq -r --argjson id "$first" '.model.vocab | to_entries[] | select(.value == $id).key' "$(folder qwen2-like)/tokenizer.json")
    printf 'chat mine\nuser "<|im_start|>user\\n"\nuser_end "<|im_end|>\\n"\nassistant "<|im_start|>assistant\\n"\nend %s\n' "$(jq -n --arg p "$piece" '$p')" >mine.chat
    echo '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}' >request
    assert_equal "$(bmc-gen -q -m "$(model qwen2-like)" --chat-template ./mine.chat --jsonl <request | jq -c '[.finish, .ids]')" '["eos",[]]'
    model=$(model grimm)
    bmc-gen -q -m "$model" --chat-template chatml --chat -p Hello -n 12 >whole
    word=$(grep -oE '[a-z]{3,}' whole | sed -n 2p)
    printf 'chat mine\nuser "<|im_start|>user\\n"\nuser_end "<|im_end|>\\n"\nassistant "<|im_start|>assistant\\n"\nend "%s"\n' "$word and no token" >mine.chat
    sed -i "s/ and no token//" mine.chat
    bmc-gen -q -m "$model" --chat-template ./mine.chat --chat -p Hello -n 12 >stopped
    [ "$(wc -c <stopped)" -lt "$(wc -c <whole)" ]
    head -c "$(($(wc -c <stopped) - 1))" stopped | cmp -n "$(($(wc -c <stopped) - 1))" - whole
}

@test "a conversation goes on from a snapshot: the ids of the whole, and nothing is computed again" {
    model=$(model qwen2-like)
    bmc-gen -q -m "$model" --chat-template chatml --chat --system 'Be kind' -p 'Hello' -n 6 --temp 0 --save-kv one.kv --stats one.json >answer
    bmc-gen -q -m "$model" --chat-template chatml --chat -p 'And then?' -n 4 --load-kv one.kv --echo --ids --stats two.json >on
    # The same conversation in one prompt, with the answer as generated ids.
    first=$(bmc-gen -q -m "$model" --chat-template chatml --chat --system 'Be kind' -p Hello -n 6 --temp 0 --echo --ids)
    rest=$(bmc-gen -q -m "$model" --chat-template chatml --chat -p 'And then?' -n 1 --echo --ids)
    end=$(jq '.added_tokens[] | select(.content == "<|im_end|>").id' "$(folder qwen2-like)/tokenizer.json")
    newline=$(jq '.model.vocab["Ċ"]' "$(folder qwen2-like)/tokenizer.json")
    whole="$first $end $newline ${rest% *}"
    [ "$(wc -w <on)" -eq $(($(wc -w <<<"$whole") + 4)) ]
    assert_equal "$(cut -d ' ' -f "-$(wc -w <<<"$whole")" on)" "$whole"
    assert_equal "$(bmc-gen -q -m "$model" --prompt-ids "$whole" -n 4 --ids)" "$(cut -d ' ' -f "$(($(wc -w <<<"$whole") + 1))-" on)"
    # Rows of all but the last token were there.
    assert_equal "$(jq .loaded_tokens two.json)" "$(($(wc -w <<<"$first") - 1))"
    assert_equal "$(jq .prefill_tokens two.json)" "$(($(wc -w <<<"$whole") - $(wc -w <<<"$first") + 1))"
}

@test "a conversation as a loop over one snapshot, which the first turn makes" {
    chat() { bmc-gen -q -m "$model" --chat -n 6 "$@"; } # OPTION..
    with_template qwen2-like "$chatml"
    for how in template format; do
        model=chat.bmc
        [ $how = template ] || model=$(model qwen2-like)
        options=(--system 'Be kind')
        [ $how = template ] || options+=(--chat-template chatml)
        rm -f talk.kv
        for turn in 1 2 3; do
            chat "${options[@]}" --load-kv talk.kv --save-kv talk.kv -p "Question $turn?" --stats stats.json >loop$turn
        done
        [ "$(jq .loaded_tokens stats.json)" -ge 30 ]
        bmc-gen -q -m "$model" --load-kv talk.kv --ids --echo -n 0 >whole
        # The same with the system prompt in the first turn only, and another file for each turn.
        chat "${options[@]}" -p 'Question 1?' --save-kv one.kv >said1
        chat "${options[@]:2}" --load-kv one.kv -p 'Question 2?' --save-kv two.kv >said2
        chat "${options[@]:2}" --load-kv two.kv -p 'Question 3?' --save-kv three.kv >said3
        for turn in 1 2 3; do diff loop$turn said$turn; done
        assert_equal "$(cat whole)" "$(bmc-gen -q -m "$model" --load-kv three.kv --ids --echo -n 0)"
        assert_equal "$(bmc-gen -q -m "$model" --load-kv talk.kv --echo -n 0 | grep -c 'Be kind')" 1
    done
    # Otherwise the file must exist, and it must be a snapshot.
    expect_error 1 '^bmc-gen: none.kv: ' chat --chat-template chatml --load-kv none.kv --save-kv other.kv -p x
    expect_error 1 '^bmc-gen: none.kv: ' chat --chat-template chatml --load-kv none.kv -p x
    echo words >words.kv
    expect_error 2 'words.kv is read \(--load-kv\), so it is not replaced' chat --chat-template chatml --load-kv words.kv --save-kv words.kv -p x
    [ "$(cat words.kv)" = words ]
    # Requests: each continues its own sequence from the second run on.
    echo '{"id": 1, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}' >request
    for run in 1 2; do bmc-gen -q -m "$model" --chat-template chatml --jsonl --load-kv all.kv --save-kv all.kv --stats stats.json <request >out$run; done
    [ "$(jq .loaded_tokens stats.json)" -ge 5 ]
}

@test "an incomplete character at the end of an answer is printed, whatever is saved" {
    model=$(model qwen2-like)
    id=$(jq '.model.vocab["â"]' "$(folder qwen2-like)/tokenizer.json") # the byte E2
    cut() { bmc-gen -q -m "$model" --logit-bias "$id=1000000" -n 1 "$@"; }
    assert_equal "$(cut --chat --chat-template chatml -p Hi)" $'\uFFFD'
    assert_equal "$(cut --chat --chat-template chatml -p Hi --save-kv a.kv)" $'\uFFFD'
    assert_equal "$(cut --chat --chat-template chatml -p Hi --prompt-cache p.kv)" $'\uFFFD'
    assert_equal "$(cut -p Hi --prompt-cache q.kv)" $'\uFFFD'
    assert_equal "$(cut --jsonl --chat-template chatml --save-kv b.kv <<<'{"messages": [{"role": "user", "content": "Hi"}]}' | jq -r .text)" $'\uFFFD'
    # A text that goes on with the next byte is not cut there.
    assert_equal "$(cut -p Hi --save-kv c.kv)" ''
}

@test "bmc-spec chats, too: the same answers" {
    jq -nc '{messages: [{role: "user", content: "Once upon a time"}], max_tokens: 16}, {messages: [{role: "system", content: "Be brief"}, {role: "user", content: "Tell me"}], max_tokens: 16}' >requests
    bmc-gen -q -m "$(model grimm)" --chat-template chatml --jsonl <requests >plain
    bmc-spec -q -m "$(model grimm)" --lookup --chat-template chatml --jsonl <requests >drafted
    assert_equal "$(cat drafted)" "$(cat plain)"
    assert_equal "$(bmc-spec -q -m "$(model grimm)" --lookup --chat-template chatml --chat -p 'Once upon a time' -n 16 --temp 0)" "$(jq -r .text plain | head -n 1)"
}

@test "with --chat, prompts of requests are what a user says" {
    model=$(model qwen2-like)
    said() { jq -nc --arg n "$1" "$2"' + {n: 1, prompt_logprobs: 1}' | prompt_ids -m "$model" --chat-template chatml "${@:3}"; }
    assert_equal "$(said '' '{prompt: "Hello"}' --chat --system Kind)" \
        "$(said '' '{messages: [{role: "system", content: "Kind"}, {role: "user", content: "Hello"}]}')"
    assert_equal "$(said '' '{messages: [{role: "user", content: "Hello"}]}' --system Kind)" \
        "$(said '' '{prompt: "Hello"}' --chat --system Kind)"
    # Wherever a format puts the system prompt; one that a conversation has is the one that counts.
    for format in chatml qwen2 mistral mistral-v3; do
        render() { bmc-gen -q --render-chat -m "$model" --chat-template $format "$@"; }
        render --jsonl <<<'{"messages": [{"role": "system", "content": "Kind"}, {"role": "user", "content": "Hello"}]}' >given
        render --jsonl --system Kind <<<'{"messages": [{"role": "user", "content": "Hello"}]}' | cmp - given
        render --jsonl --system Other <<<'{"messages": [{"role": "system", "content": "Kind"}, {"role": "user", "content": "Hello"}]}' | cmp - given
    done
}

@test "wrong messages cost their own result; wrong usage" {
    while IFS='|' read -r request pattern; do
        run_plain bmc-gen -q -m "$(model grimm)" --chat-template chatml --jsonl <<<"$request"
        [ "$status" -eq 1 ]
        [[ $(jq -r .error <<<"$output") =~ $pattern ]] || fail "$request -> $output"
    done <<'END'
{"messages": "x"}|"messages" is a string, a list of objects with role and content is expected
{"messages": []}|the last turn of a conversation must be the user's
{"messages": [{"role": "assistant", "content": "x"}]}|the last turn of a conversation must be the user's, or an answer to it
{"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]}|the last turn of a conversation must be the user's
{"messages": [{"role": "tool", "content": "x"}]}|role of entry 0 is not system, user or assistant
{"messages": [{"role": "user"}]}|content of entry 0 is [a-z ]*, a string is expected
{"messages": [{"role": "user", "content": ["x"]}]}|part 0 of entry 0 is a string, an object is expected
{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"id": "1"}]}, {"role": "user", "content": "x"}]}|entry 1 has tool_calls, which need a Jinja template
{"messages": [{"role": "user", "content": "x", "name": "y"}]}|entry 0 has "name" besides role and content
{"messages": [{"role": "user", "content": "x"}], "prompt": "y"}|exactly one of "prompt", "ids" and "messages"
END
    expect_error 1 'chat format "nosuch" is unknown; known are alpaca, chatml' bmc-gen -m "$(model grimm)" --chat --chat-template nosuch -p x
    expect_error 2 '--system goes with --chat or --jsonl' bmc-gen -m "$(model grimm)" --system x -p x
    expect_error 2 '--chat goes with generation' bmc-gen -m "$(model grimm)" --chat --score -p x
    expect_error 2 '--chat needs a prompt as text' bmc-gen -m "$(model grimm)" --chat --prompt-ids 1
    expect_error 1 'has no chat format' bmc-gen -m "$(model grimm)" --chat -p x
    printf 'chat x\nuser "y"\nusers "z"\n' >bad.chat
    expect_error 1 './bad.chat: line 3: unknown keyword "users"' bmc-gen -m "$(model grimm)" --chat --chat-template ./bad.chat -p x
}
