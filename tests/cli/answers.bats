# Parts of answers: reasoning and its limit, tool calls that are required. Models are toys that write tales.
load ../helper

setup_file() { model grimm >/dev/null; }

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    printf '%s' '{% for m in messages %}{{ m.content }} {% endfor %}<think>
' >think.jinja
}

lines() { timeout 60 "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --jsonl --chat-template think.jinja "$@"; }

@test "reasoning: its limit, its last words, and where it goes; drafts and batches change nothing" {
    jq -nc 'range(5) | {id: ., messages: [{role: "user", content: "A queen \(.)"}], reasoning: "separate", max_tokens: 24, seed: .,
        temperature: 0.9, reasoning_budget: (. * 2), reasoning_budget_message: "So."}' >in
    ok lines -np 1 --no-spec -f in
    want=$output
    assert_equal "$(jq -c '[(.reasoning_content | endswith("So.")), (.text | contains("think") | not), (.ids | length)]' <<<"$want" | sort -u)" '[true,true,24]'
    ok lines -np 5 -f in
    assert_equal "$output" "$want"
    # shown in the text, or hidden
    ok lines -np 5 -f <(jq -c '.reasoning = "show"' in)
    assert_equal "$(jq -r '"<think>\n\(.reasoning_content)\n</think>\n\n\(.text)"' <<<"$want")" "$(jq -r .text <<<"$output")"
    ok lines -np 5 -f <(jq -c '.reasoning = "hide"' in)
    assert_equal "$(jq -c 'del(.reasoning_content)' <<<"$want")" "$(jq -c . <<<"$output")"
    # the thought is what it would be without a limit
    ok lines -f <(jq -c 'del(.reasoning_budget)' in)
    assert_equal "$(tail -n 1 <<<"$output" | jq -c '.ids[:8]')" "$(tail -n 1 <<<"$want" | jq -c '.ids[:8]')"
    # events have the same parts
    ok lines -np 2 -f <(jq -c '.stream = true' in)
    assert_equal "$(jq -c 'select(has("ids"))' <<<"$output")" "$(jq -c . <<<"$want")"
    assert_equal "$(jq -sc 'group_by(.id)[] | [(map(.reasoning_delta // "") | add), (map(.delta // "") | add)]' <<<"$output")" \
        "$(jq -c '[.reasoning_content, .text]' <<<"$want")"
}

@test "required tool calls are of a listed tool and have its parameters; a function's name, one call; choices and errors" {
    jq -nc '[{name: "get", parameters: {type: "object", properties: {city: {type: "string", maxLength: 9}, days: {type: "integer", minimum: 1, maximum: 7}}, required: ["city", "days"]}},
         {name: "set", parameters: {type: "object", properties: {on: {type: "boolean"}, "a\"b\\": {enum: ["x\ny", "é 😀"]}}, required: ["on", "a\"b\\"]}}] as $f
        | range(12) | {messages: [{role: "user", content: "Go \(.)"}], tools: ($f | map({type: "function", function: .})), temperature: 1.2, seed: ., max_tokens: 400,
            tool_choice: (if . % 3 == 2 then {type: "function", function: {name: "set"}} else "required" end), parallel_tool_calls: false}' >in
    printf '%s' '{% for m in messages %}{{ m.content }} {% endfor %}{{ tools }}' >think.jinja
    ok lines -np 4 -f in
    want=$output
    jq -se 'length == 12 and all(.[]; .finish == "eos" and .text == "" and (.tool_calls | length == 1) and all(.tool_calls[].function; . as $f | .arguments | fromjson
        | if $f.name == "get" then (.city | length <= 9) and .days >= 1 and .days <= 7 and keys == ["city", "days"]
          else (.on | type == "boolean") and (.["a\"b\\"] == "x\ny" or .["a\"b\\"] == "é 😀") and keys == ["a\"b\\", "on"] end))' <<<"$want" >/dev/null || fail "$want"
    # several, until the limit ends them
    ok lines <<<"$(head -n 1 in | jq -c '.parallel_tool_calls = true')"
    assert_equal "$(jq -c '.tool_calls | length > 1' <<<"$output")" true
    assert_equal "$(jq -sc '[.[2, 5, 8, 11] | .tool_calls[0].function.name] | unique' <<<"$want")" '["set"]'
    ok lines -np 1 --no-spec -f in
    assert_equal "$output" "$want"
    # OpenAI's form
    ok lines --openai -f <(head -n 1 in)
    assert_equal "$(jq -c '.choices[0] | [.finish_reason, .message.content, (.message.tool_calls | length > 0)]' <<<"$output")" '["tool_calls",null,true]'
    while IFS=$'\t' read -r members message; do
        some_fail 1 1 lines -n 1 <<<"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], $members}"
        assert_equal "$(jq -r .error <<<"$output")" "line 1: $message"
    done <<'LIST'
"tool_choice": "required"	"tool_choice" asks for a call, but there are no tools
"tool_choice": {"name": "x"}, "tools": [{"name": "y"}]	"tool_choice": no tool is called "x"
"tool_choice": "required", "tools": [{"x": "y"}]	"tools": entry 0 has no name
"tool_choice": "required", "tools": [{"name": "y"}], "regex": "a"	"tool_choice" asks for a call, and another constraint for other text
"tool_choice": "auto", "tools": [{"name": "y", "parameters": {"type": "x"}}]	JSON Schema, at #: there is no type "x"
LIST
    # by default calls are left to the model where a schema is not supported
    ok lines -n 1 <<<'{"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "y", "parameters": {"not": {}}}]}'
    expect_error 2 '--reasoning goes with --chat or --jsonl' bmc-gen -q -m "$(model grimm)" --reasoning hide x
}
