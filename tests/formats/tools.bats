# Tool calls: what models write, and its formats.
load ../helper

@test "answers with tool calls, in all formats and hostile ones, say the same however they are cut" {
    run "$BMC_BUILD/tests/test_tools" "$ROOT/models.d" "$FIXTURES/tools.jsonl"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 80000 ]
}

# Requests whose answers are given texts, of a template that knows no tools.
ask() { # ANSWER, MEMBERS
    jq -nc --arg a "$1" --argjson more "${2:-{\}}" '{messages: [{role: "user", content: "q"}], tools: [{type: "function", function: {name: "f", parameters: {type: "object", properties: {a: {type: "string"}}}}}], choice: [$a], max_tokens: 400} + $more'
}

call='<tool_call>
{"name": "f", "arguments": {"a": "\"é\" \n🙂"}}
</tool_call>'

@test "results have tool calls and reasoning beside the text; events have them when they are complete" {
    {
        ask "<think>Hm.</think>Look:
$call"$'\n'"$call and"
        ask "$call" '{"id": 2, "stream": true}'
        ask "Text ${call%\}*}" '{"n_choices": 2}'
        ask "$call" '{"max_tokens": 12}'
        ask "$call" '{"tool_choice": "none"}'
    } >requests
    bmc-gen -q --chat-template chatml --jsonl <requests 2>notes >results || fail "$(cat notes results)"
    [ "$(grep -c "the chat template does not use \"tools\": a system prompt describes them" notes)" -eq 1 ]
    arguments='{"a":"\"é\" \n🙂"}'
    grep -v '"delta"\|"tool_call"' results >final
    assert_equal "$(jq -r 'select(.reasoning_content) | .text, .reasoning_content, (.tool_calls[] | .type, .function.name, .function.arguments)' final)" "Look:
and
Hm.
function
f
$arguments
function
f
$arguments"
    [ "$(jq -r 'select(.reasoning_content) | .tool_calls[].id' final | sort -u | grep -cx 'call_[0-9A-Za-z]\{24\}')" -eq 2 ]
    assert_equal "$(jq -c 'select(.tool_call) | [.id, .tool_call.function.arguments]' results)" "$(jq -nc --arg a "$arguments" '[2, $a]')"
    assert_equal "$(jq -c 'select(.id == 2 and .tool_calls) | [.text, (.tool_calls | length)]' final)" '["",1]'
    # not ended, or cut: text
    assert_equal "$(jq -r 'select(.choices) | .choices[] | has("tool_calls"), .text' final)" "$(for i in 1 2; do echo false; echo "Text ${call%\}*}"; done)"
    [ "$(jq -r 'select(.finish == "length") | has("tool_calls")' final)" = false ]
    assert_equal "$(tail -n 1 final | jq -r '.text, has("tool_calls")')" "$call"$'\nfalse'
    # OpenAI's objects
    bmc-gen -q --chat-template chatml --jsonl --openai <requests 2>notes >openai
    assert_equal "$(jq -c 'select(.id == "chatcmpl-1").choices[0] | [.finish_reason, .message.content, .message.reasoning_content, (.message.tool_calls | length)]' openai)" '["tool_calls","Look:\nand","Hm.",2]'
    assert_equal "$(jq -c 'select(.object == "chat.completion.chunk").choices[0] | [.finish_reason, (.delta | keys)]' openai)" '[null,["role","tool_calls"]]
["tool_calls",[]]'
    assert_equal "$(jq -c 'select(.id == "chatcmpl-3").choices[] | [.finish_reason, (.message | has("tool_calls"))]' openai)" $'["stop",false]\n["stop",false]'
}
