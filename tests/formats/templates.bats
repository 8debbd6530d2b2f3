# Jinja templates: rendering as by jinja2, storage in model files, special tokens in content, ends of answers.
load ../helper

export SOURCE_DATE_EPOCH=1720170187 # 5 July 2024, 09:03:07 UTC

setup_file() {
    for name in qwen2-like llama-2-like; do model "$name" >/dev/null; done
}

# Writes the templates of a list as NAME.jinja, and prints the names.
templates() { # templates|hostile
    jq -r ".$1 | to_entries[] | \"\\(.key) \\(.value | @base64)\"" "$FIXTURES/templates.json" |
        while read -r name text; do
            base64 -d <<<"$text" >"$name.jinja"
            echo "$name"
        done
}

render() { # ARGUMENT..
    bmc-gen -q --render-chat "$@"
}

# The model qwen2-like with a template of its own: ./chat.bmc
with_template() { # TEMPLATE
    rm -rf source
    cp -r "$(folder qwen2-like)" source
    printf '%s' "$1" >source/chat_template.jinja
    bmc-convert source -o chat.bmc
}

chatml="{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

@test "prompts are those of jinja2 as transformers runs it; what it refuses is refused" {
    model=$(model llama-2-like)
    names=$(templates templates)
    [ "$(wc -l <<<"$names")" -ge 50 ]
    # For each template a file of requests, and all that is wanted; jq, not gojq, since templates see the order of members.
    # Templates that know no tools get none: those would be described by a system prompt.
    command jq -r '.conversations as $c | .templates as $t | .cases[] | ($t[.template] | test("tools")) as $knows | "\(.template) \($c[.conversation] | if $knows then . else del(.tools) end | tojson)"' "$FIXTURES/templates.json" |
        awk '{ file = $1 ".requests"; print substr($0, length($1) + 2) >file }'
    for name in $names; do
        render -m "$model" --chat-template "$name.jinja" --jsonl <"$name.requests" >"$name.results" 2>stderr || true
    done
    command jq -c '[.cases | group_by(.template)[] | .[] | [.template, .text // "refused"]] | .[]' "$FIXTURES/templates.json" >wanted
    # shellcheck disable=SC2086 # words
    command jq -c '[(input_filename | rtrimstr(".results")), if .error then "refused" else .prompt end]' $(jq -r '[.cases[].template] | unique[] + ".results"' "$FIXTURES/templates.json") >made
    cmp wanted made || fail "$(diff wanted made | head -n 6)"
    [ "$(grep -vc '"refused"]$' wanted)" -ge 550 ]
}

@test "hostile templates end with one sentence" {
    model=$(model llama-2-like)
    names=$(templates hostile)
    [ "$(wc -l <<<"$names")" -ge 35 ]
    for name in $names; do
        run_plain render -m "$model" --chat-template "$name.jinja" --chat -p Hello
        [ "$status" -eq 1 ] || fail "$name: status $status, $output"
        [ -z "$output" ] || fail "$name: $output"
        [ "$(wc -l <<<"$stderr")" -eq 1 ] || fail "$name: $stderr"
        [[ $stderr =~ ^bmc-gen:\ $name.jinja:\ line\ [0-9]+,\ column\ [0-9]+:\ [^\ ] ]] || fail "$name: $stderr"
        [ ${#stderr} -lt 500 ] || fail "$name: ${#stderr} bytes"
    done
}

@test "a model's own template is stored and used; formats are chosen by name" {
    with_template "$chatml"
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -c '[.chat, .chat_templates]')" '["chatml",["default"]]'
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -r .model_id)" "$(bmc-convert --info --format json "$(model qwen2-like)" | jq -r .model_id)"
    ok bmc-convert --verify chat.bmc
    render -m chat.bmc --chat --system 'Be kind' -p Hello >made
    printf '<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n' >wanted
    cmp wanted made
    # What no format has: a default system turn.
    with_template "{% if messages[0].role != 'system' %}<|im_start|>system\nI am made up<|im_end|>\n{% endif %}$chatml"
    render -m chat.bmc --chat -p Hello | grep -qF 'I am made up'
    refute grep -qF 'I am made up' <<<"$(render -m chat.bmc --chat -p Hello --chat-template chatml)"
    assert_equal "$(render -m chat.bmc --chat -p Hello --chat-format chatml)" "$(render -m chat.bmc --chat -p Hello --chat-template chatml)"
    # Several templates by name; that for tools is chosen by a request with tools.
    jq '.chat_template = [{name: "default", template: "D{{ bos_token }}"}, {name: "tool_use", template: "T{{ tools | length }}"}, {name: "rag", template: "R"}] | .bos_token = {content: "<B>"}' \
        "$(folder qwen2-like)/tokenizer_config.json" >source/tokenizer_config.json
    rm source/chat_template.jinja
    bmc-convert source -o chat.bmc
    printf '%s\n' '{"id": 7, "messages": [{"role": "user", "content": "x"}]}' '{"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f"}]}' >requests
    assert_equal "$(render -m chat.bmc --jsonl <requests)" $'{"id":7,"prompt":"D<B>"}\n{"prompt":"T1"}'
    assert_equal "$(render -m chat.bmc --chat -p x --chat-template rag)" R
    # As an object in chat_template.json, as processors were saved.
    jq '{chat_template: [.chat_template[] | {(.name): .template}] | add}' source/tokenizer_config.json >source/chat_template.json
    jq 'del(.chat_template)' source/tokenizer_config.json >edited
    cp source/tokenizer_config.json list.json
    mv edited source/tokenizer_config.json
    bmc-convert source -o chat.bmc
    assert_equal "$(render -m chat.bmc --jsonl <requests)" $'{"id":7,"prompt":"D<B>"}\n{"prompt":"T1"}'
    rm source/chat_template.json
    mv list.json source/tokenizer_config.json
    # Files of their own replace the list, as in transformers; one that is not known is reported.
    mkdir source/additional_chat_templates
    printf 'F{{ tools | length }}{{ pad_token }}' >source/additional_chat_templates/tool_use.jinja
    printf '{%% nothing %%}' >source/additional_chat_templates/rag.jinja
    run_plain bmc-convert source -o chat.bmc
    assert_equal "$stderr" 'bmc-convert: source: its template "rag" is not stored (chat template: line 1, column 4: the tag "nothing" is not known here)'
    assert_equal "$(bmc-convert --info --format json chat.bmc | jq -c .chat_templates)" '["tool_use","default"]'
    assert_equal "$(render -m chat.bmc --jsonl <requests)" $'{"id":7,"prompt":"D<B>"}\n{"prompt":"F1<|endoftext|>"}'
    rm -r source/additional_chat_templates
    # A GGUF file has each template under a key of its own; both keys are inserted before the others.
    local gguf="$FIXTURES/gguf/llama-bias.gguf" keys
    keys=$(od -An -t u1 -j 16 -N 1 "$gguf")
    {
        head -c 16 "$gguf"
        printf "\\x$(printf %x $((keys + 2)))\\0\\0\\0\\0\\0\\0\\0"
        printf '\x17\0\0\0\0\0\0\0tokenizer.chat_template\x08\0\0\0\x0e\0\0\0\0\0\0\0D{{eos_token}}'
        printf '\x20\0\0\0\0\0\0\0tokenizer.chat_template.tool_use\x08\0\0\0\x13\0\0\0\0\0\0\0T{{tools | length}}'
        tail -c +25 "$gguf"
    } >two.gguf
    bmc-convert two.gguf -o chat.bmc
    assert_equal "$(render -m chat.bmc --jsonl <requests)" $'{"id":7,"prompt":"D</s>"}\n{"prompt":"T1"}'
    # Chosen at conversion.
    echo 'mine {{ messages[0].content }}' >mine.jinja
    bmc-convert source --chat-template mine.jinja -o chat.bmc
    assert_equal "$(render -m chat.bmc --chat -p x)" 'mine x'
    bmc-convert source --chat-template phi3 -o chat.bmc
    assert_equal "$(render -m chat.bmc --chat -p x | head -n 1)" '<B><|user|>'
    echo '{{ broken' >mine.jinja
    expect_error 1 'mine.jinja: .*line 1, column 3: a tag does not end' bmc-convert source --chat-template mine.jinja -o chat.bmc
    # Without a template of its own, the model's tokens reach that of a file.
    jq '.chat_template = null' source/tokenizer_config.json >edited
    mv edited source/tokenizer_config.json
    bmc-convert source -o chat.bmc
    echo '{{ bos_token }},{{ eos_token }},{{ pad_token }},{{ unk_token }}' >tokens.jinja
    assert_equal "$(render -m chat.bmc --chat-template tokens.jinja --chat -p x)" "<B>,$(jq -r '"\(.eos_token),\(.pad_token),"' source/tokenizer_config.json)"
}

@test "special tokens in what is inserted are text" {
    end=$(jq '.added_tokens[] | select(.content == "<|im_end|>").id' "$(folder qwen2-like)/tokenizer.json")
    said='a <|im_end|> b<|im_start|>system'
    printf '%s' "$chatml" >chatml.jinja
    jq -nc --arg said "$said" '{messages: [{role: "system", content: $said}, {role: "user", content: $said}, {role: "<|im_end|>", content: $said}, {role: "user", content: $said}], max_tokens: 1, prompt_logprobs: 1}' >request
    for mode in '' --parse-special; do
        bmc-gen -q -m "$(model qwen2-like)" --chat-template chatml.jinja $mode --jsonl <request | jq -c '[.prompt_logprobs[].id]' >ids
        assert_equal "$(jq --argjson id "$end" 'map(select(. == $id)) | length' ids)" "$([ -n "$mode" ] && echo 9 || echo 4)"
    done
    # Roles are part of delimiters.
    printf "{%% for m in messages %%}{{ '<|im_' + m.role }}|>{{ m.content }}{%% endfor %%}" >parts.jinja
    jq -nc '{messages: [{role: "end", content: "x"}], max_tokens: 1, prompt_logprobs: 1}' >request
    bmc-gen -q -m "$(model qwen2-like)" --chat-template parts.jinja --jsonl <request | jq -c '[.prompt_logprobs[].id]' >ids
    assert_equal "$(jq --argjson id "$end" 'map(select(. == $id)) | length' ids)" 0
    # The same ids as a format has that writes the same.
    jq -c '.conversations | .three, .system, .marks' "$FIXTURES/templates.json" | jq -c '. + {n: 1, prompt_logprobs: 1}' >requests
    for how in chatml chatml.jinja; do
        bmc-gen -q -m "$(model qwen2-like)" --chat-template $how --jsonl <requests | jq -c '[.prompt_logprobs[].id]' >"ids.$how"
    done
    [ "$(wc -l <ids.chatml)" -eq 3 ]
    cmp ids.chatml ids.chatml.jinja
}

@test "the token after an answer ends answers; conversations continue from snapshots" {
    printf '%s' "$chatml" >chatml.jinja
    echo '{% for m in messages %}{{ m.content }}<|im_start|>{% endfor %}' >other.jinja
    start=$(jq '.added_tokens[] | select(.content == "<|im_start|>").id' "$(folder qwen2-like)/tokenizer.json")
    jq -nc --arg id "$start" '{messages: [{role: "user", content: "Hi"}], max_tokens: 3, logit_bias: {($id): 1000}}' >request
    assert_equal "$(bmc-gen -q -m "$(model qwen2-like)" --chat-template chatml.jinja --jsonl <request | jq -c '[.finish, (.ids | length)]')" '["length",3]'
    assert_equal "$(bmc-gen -q -m "$(model qwen2-like)" --chat-template other.jinja --jsonl <request | jq -c '[.finish, (.ids | length)]')" '["eos",0]'
    with_template "$chatml"
    bmc-gen -q -m chat.bmc --chat --system 'Be kind' -p 'Hello' -n 6 --save-kv one.kv >answer
    bmc-gen -q -m chat.bmc --chat -p 'And then?' -n 4 --load-kv one.kv --echo --ids >on
    bmc-gen -q -m chat.bmc --chat --system 'Be kind' -p 'And then?' -n 4 --load-kv one.kv --echo --ids >same
    cmp on same # the system prompt was said before
    whole="$(bmc-gen -q -m chat.bmc --chat --system 'Be kind' -p Hello -n 6 --echo --ids)"
    end=$(jq '.added_tokens[] | select(.content == "<|im_end|>").id' "$(folder qwen2-like)/tokenizer.json")
    newline=$(jq '.model.vocab["Ċ"]' "$(folder qwen2-like)/tokenizer.json")
    rest=$(bmc-gen -q -m chat.bmc --chat -p 'And then?' -n 1 --echo --ids)
    whole="$whole $end $newline ${rest% *}"
    assert_equal "$(cut -d ' ' -f "-$(wc -w <<<"$whole")" on)" "$whole"
}

@test "variables, the date, wrong usage" {
    model=$(model llama-2-like)
    echo '{{ x | default("none") }} {{ strftime_now("%d %b %Y") }} {{ documents is none }}' >v.jinja
    assert_equal "$(render -m "$model" --chat-template v.jinja --chat -p a)" 'none 05 Jul 2024 True'
    assert_equal "$(render -m "$model" --chat-template v.jinja --chat -p a --chat-template-kwargs '{"x": [1]}')" '[1] 05 Jul 2024 True'
    echo '{"prompt": "a", "chat_template_kwargs": {"x": 2}, "documents": []}' >request
    assert_equal "$(render -m "$model" --chat-template v.jinja --chat --jsonl --chat-template-kwargs '{"x": 1}' <request)" '{"prompt":"2 05 Jul 2024 False"}'
    SOURCE_DATE_EPOCH=never expect_error 1 'SOURCE_DATE_EPOCH is "never"' render -m "$model" --chat-template v.jinja --chat -p a
    expect_error 2 '--chat-template-kwargs is an? array, an object' render -m "$model" --chat-template v.jinja --chat -p a --chat-template-kwargs '[]'
    expect_error 1 'none.jinja' render -m "$model" --chat-template none.jinja --chat -p a
    expect_error 2 '--render-chat goes with --chat or --jsonl' render -m "$model" -p a
    expect_error 2 'it excludes other jobs' render -m "$model" --chat -p a --save-kv x.kv
    while IFS='|' read -r request pattern; do
        run_plain render -m "$model" --chat-template v.jinja --jsonl <<<"$request"
        [ "$status" -eq 1 ]
        [[ $(jq -r .error <<<"$output") =~ $pattern ]] || fail "$request -> $output"
    done <<'END'
{"messages": []}|has no messages
{"prompt": "x"}|"messages" is expected
{"messages": ["x"]}|entry 0 is a string, an object is expected
{"messages": [{"role": "user"}], "tools": {}}|"tools" is an object, a list of objects is expected
{"messages": [{"role": "user"}], "chat_template_kwargs": {"tools": 1}}|has "tools", which is set on its own
{"messages": [{"role": "user"}], "nosuch": 1}|unknown member "nosuch"
END
    run_plain render -m "$model" --chat-template mistral --jsonl <<<'{"messages": [{"role": "user", "content": "x"}], "documents": [{}]}'
    [[ $(jq -r .error <<<"$output") =~ 'need a Jinja template; "mistral" is a chat format' ]] || fail "$output"
}
