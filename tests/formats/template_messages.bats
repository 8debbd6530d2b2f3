# Messages in the forms that clients send: tool-call arguments, null members, continued answers, and what templates ignore.
load ../helper

setup_file() {
    model llama-2-like >/dev/null
}

# Renders the request on standard input with each template TEXT, a line each: the prompt, or the error behind "!".
rendered() { # TEXT..
    local text
    for text in "$@"; do
        printf '%s' "$text" >t.jinja
        bmc-gen -q -m "$(model llama-2-like)" --chat-template t.jinja --jsonl --render-chat 2>>notes <request | jq -r '.prompt // "!" + .error' || true
    done
}

each='{% for m in messages %}{% for c in m.tool_calls or [] %}'
rest='{% else %}({{ m.content }}){% endfor %}{% endfor %}'

@test "tool-call arguments reach a template in the form that it writes" {
    local json="$each{{ c.function.arguments | tojson }}$rest" items="$each{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}$rest"
    local whole="$each{{ c.function | tojson }}$rest" text="$each{{ c.function.name ~ ':' + c.function.arguments }}$rest"
    local any="$each{% if c.function.arguments is string %}S{{ c.function.arguments }}{% else %}O{{ c.function.arguments | tojson }}{% endif %}$rest"
    local none='{% for m in messages %}({{ m.content }}){% endfor %}' flat="$each{{ c.arguments | tojson }}$rest"
    ask() { # ARGUMENTS, JSON
        command jq -nc --argjson a "$1" '{messages: [{role: "user", content: "q"}, {role: "assistant", content: "", tool_calls: [{type: "function", function: {name: "f", arguments: $a}, arguments: $a}]}]}' >request
    }
    # As OpenAI's clients send them; jinja2 writes the same of the object, or of the string where it is one.
    ask '"{\"b\": 1, \"a\": {\"ü\": [null, 2.50, \"\\\"日\"]}}"'
    assert_equal "$(rendered "$json" "$items" "$whole" "$text" "$any" "$none")" '(q){"b": 1, "a": {"ü": [null, 2.5, "\"日"]}}
(q)b=1;a={'\''ü'\'': [None, 2.5, '\''"日'\'']};
(q){"name": "f", "arguments": {"b": 1, "a": {"ü": [null, 2.5, "\"日"]}}}
(q)f:{"b": 1, "a": {"ü": [null, 2.50, "\"日"]}}
(q)O{"b": 1, "a": {"ü": [null, 2.5, "\"日"]}}
(q)()'
    ask '{"b": 1.5, "a": ["é"]}'
    assert_equal "$(rendered "$json" "$text" "$any")" $'(q){"b": 1.5, "a": ["é"]}\n(q)f:{"b": 1.5, "a": ["é"]}\n(q)O{"b": 1.5, "a": ["é"]}'
    ask '""'
    assert_equal "$(rendered "$json" "$items" "$text")" $'(q){}\n(q)\n(q)f:'
    ask '"[7]"'
    assert_equal "$(rendered "$json" "$text")" $'(q)[7]\n(q)f:[7]'
    ask '"{a: 1"'
    assert_equal "$(rendered "$text")" '(q)f:{a: 1'
    [[ $(rendered "$json") == '!"messages": entry 1: the chat template writes the arguments of a tool call as JSON, which "{a: 1" is not: '* ]]
    # A template that reads the arguments beside the name, not those of "function".
    ask '"{\"x\": 1}"'
    assert_equal "$(rendered "$flat")" '(q){"x": 1}'
}

@test "tool-call arguments are an object where a template tells nothing of their form, or takes their keys only" {
    local call="{% for m in messages %}{% for c in m.tool_calls or [] %}{% set a = c.function.arguments %}" end='{% endfor %}{% endfor %}' json='{{ c.function.arguments | tojson }}'
    local any="$call{{ a if a is string else a | tojson }}$end"
    said() { # NAME, ARGUMENTS..
        command jq -nc '{messages: [{role: "system", content: "s"}, {role: "user", content: "q"}, {role: "assistant", content: null, tool_calls: [$ARGS.positional[1:][] | {type: "function", function: {name: $ARGS.positional[0], arguments: .}}]}], chat_template_kwargs: {day: "x"}}' --args "$@" >request
    }
    # Expected values are jinja2's for objects.
    said f '{"a":1,"b":2}'
    assert_equal "$(rendered "$call{% for k in a.keys() %}{{ k }} {% endfor %}$end" "$call{{ a.get('a') }}$end" "$call{{ a['a'] }}$end" "$call{{ a.a }}$end" "$call{{ '1' in a }}$end" "$call{{ a | list | first }}$end" "$call{{ a | length }}$end" \
        "{% for m in messages %}{% if m.content is none %}N{% for k in m.tool_calls[0].function.arguments.keys() %}{{ k }}{% endfor %}{% endif %}{% endfor %}")" $'a b \n1\n1\n1\nFalse\na\n2\nNab'
    # Templates that refuse or drop conversations of one call.
    assert_equal "$(rendered "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}$call$json$end" "{% if not day %}{{ raise_exception('no') }}{% endif %}$call$json$end" "$call{% if c.function.name != 'f' %}{{ raise_exception('no') }}{% endif %}$json$end")" \
        $'{"a": 1, "b": 2}\n{"a": 1, "b": 2}\n{"a": 1, "b": 2}'
    assert_equal "$(rendered "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}$call{{ ':' + a }}$end")" ':{"a":1,"b":2}'
    said f '{}' '{"a":1}' '{}' '{}' '{"b":2}'
    assert_equal "$(rendered "$call{% if loop.index == 2 %}$json{% endif %}$end" "$call{% if loop.index > 4 %}$json{% endif %}$end")" $'{"a": 1}\n{"b": 2}'
    # A string that is no object is left to a template that takes strings too.
    said f '{"a":'
    assert_equal "$(rendered "$any")" '{"a":'
    [[ $(rendered "$call{% for k in a.keys() %}{{ k }}{% endfor %}$end") == '!"messages": entry 2: the chat template writes the arguments of a tool call as JSON, '* ]]
    assert_equal "$(grep t.jinja notes | sort -u)" 'bmc-gen: t.jinja: the chat template does not use "day" of "chat_template_kwargs"'
}

@test "null members are none where the template asks for none, else as if they were not there" {
    local calls='{% for c in m.tool_calls or [] %}<{{ c.function.name }}{{ c.function.arguments | tojson }}>{% endfor %}'
    local asks="{% for m in messages %}{% if m['content'] is none %}N$calls{% else %}[{{ m.content }}]{% endif %}{% endfor %}"
    local adds="{% for m in messages %}{{ '[' + m.content + ']' }}$calls{% endfor %}" writes="{% for m in messages %}[{{ m.content }}]$calls{% endfor %}"
    local tests="{% for m in messages %}{% if m.content is not none %}[{{ m.content }}]{% endif %}$calls{% endfor %}"
    for content in '"content":null,' ''; do
        printf '{"messages":[{"role":"user","content":"q"},{"role":"assistant",%s"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"ok"}],"tools":null}' "$content" >request
        assert_equal "$(rendered "$asks" "$adds" "$writes" "$tests")" $'[q]N<f{}>[ok]\n[q][]<f{}>[ok]\n[q][]<f{}>[ok]\n[q]<f{}>[ok]'
    done
    assert_equal "$(rendered "{% for m in messages %}{{ m.content if m.content is string else m.content | tojson }},{% endfor %}")" q,,ok,
    # Without calls, and of other roles.
    echo '{"messages":[{"role":"system","content":null},{"role":"user","content":"q"},{"role":"assistant","content":null},{"role":"user","content":null}]}' >request
    assert_equal "$(rendered "$adds" "$tests" "{% for m in messages %}{% if m.role == 'user' and m.content == none %}U{% else %}{{ m.content }}{% endif %},{% endfor %}")" $'[][q][][]\n[q]\n,q,,U,'
    # Members that clients send as null: left out, as by transformers, unless the template asks.
    echo '{"messages":[{"role":"user","content":"q","name":null},{"role":"assistant","content":"a","tool_calls":null,"reasoning_content":null,"refusal":null},{"role":"user","content":"r"}]}' >request
    assert_equal "$(rendered "{% for m in messages %}{{ m | length }}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}{% endfor %}{% endif %}{% endfor %}" \
        "{% for m in messages %}{{ 'N' if m['tool_calls'] is none }}{{ 'D' if m.name is defined }}{% endfor %}" "{% for m in messages %}{{ 'R' if none == m.reasoning_content }}{% endfor %}")" $'222\nN\nR'
    # Chat formats: null is the empty string, other members that are null or empty say nothing.
    echo '{"messages":[{"role":"user","content":"q","name":null},{"role":"assistant","content":null,"tool_calls":[],"refusal":null},{"role":"user","content":"r"}],"tools":[]}' >request
    assert_equal "$(bmc-gen -q -m "$(model llama-2-like)" --chat-template zephyr --jsonl --render-chat <request | jq -r .prompt)" $'<s><|user|>\nq</s>\n<|assistant|>\n</s>\n<|user|>\nr</s>\n<|assistant|>'
}

@test "a last message is continued: the prompt ends inside of it" {
    local plain="{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    local trims="{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}" parts="{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text }};{% endfor %}</>{% endfor %}"
    local drops="{% for m in messages[:1] %}{{ m.content }}{% endfor %}"
    said='{"role":"user","content":"q"},{"role":"assistant","content":"It is  "}'
    for how in '"continue_final_message":true' '"add_generation_prompt":false' '"continue_final_message":true,"add_generation_prompt":false'; do
        echo "{\"messages\":[$said],$how}" >request
        assert_equal "$(rendered "$plain" "$trims")" $'<user>q</><assistant>It is  \n<user>q</><assistant>It is'
        assert_equal "$(bmc-gen -q -m "$(model llama-2-like)" --chat-template zephyr --jsonl --render-chat <request | jq -r '.prompt + "|"')" $'<s><|user|>\nq</s>\n<|assistant|>\nIt is  |'
    done
    [[ $(rendered "$drops") == '!the chat template changes the last message'* ]]
    echo "{\"messages\":[$said],\"continue_final_message\":false,\"add_generation_prompt\":false}" >request
    assert_equal "$(rendered "$plain")" '<user>q</><assistant>It is  </>'
    echo '{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],"continue_final_message":true}' >request
    assert_equal "$(rendered "$parts" "$plain")" $'<user>q;</><assistant>a;b\n<user>q</><assistant>a\nb'
    # Any last message, as in transformers.
    echo '{"messages":[{"role":"user","content":"What a "}],"continue_final_message":true}' >request
    assert_equal "$(rendered "$plain")" '<user>What a '
    while IFS='|' read -r request pattern; do
        echo "$request" >request
        [[ $(rendered "$plain") =~ $pattern ]] || fail "$request: $(rendered "$plain")"
    done <<'END'
{"messages":[{"role":"user","content":"q"}],"continue_final_message":true,"add_generation_prompt":true}|^!"continue_final_message" and "add_generation_prompt" are both true
{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null}],"continue_final_message":true}|^!"messages": the content of the last entry is null
{"messages":[{"role":"user","content":"q"}],"continue_final_message":1}|^!"continue_final_message" is
END
    # The answer begins where the message ends: the ids of both programs are those of the whole text.
    printf '%s' "$plain" >t.jinja
    echo "{\"messages\":[$said],\"continue_final_message\":true,\"n\":1,\"prompt_logprobs\":1}" >request
    bmc-gen -q -m "$(model llama-2-like)" --chat-template t.jinja --jsonl <request | jq -c '[.prompt_logprobs[].id]' >ids
    printf '<user>q</><assistant>It is  ' | bmc-gen -q -m "$(model llama-2-like)" --tokenize --format jsonl -f - | jq -c ".ids[1:]" >wanted
    cmp wanted ids
    cmp wanted <(bmc-spec -q -m "$(model llama-2-like)" --lookup --chat-template t.jinja --jsonl <request | jq -c '[.prompt_logprobs[].id]')
}

@test "what a template ignores is said once for each kind" {
    echo '{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]},{"role":"user","content":"r"}],"tools":[{"type":"function","function":{"name":"f"}}],"documents":[{"text":"d"}],"chat_template_kwargs":{"x":1,"deep":true,"y":2}}' >request
    cat request request >twice
    mv twice request
    assert_equal "$(rendered '{{ messages[0].role }}{{ y }}')" $'system2\nsystem2'
    command jq -c 'del(.tools)' request >without
    mv without request
    assert_equal "$(rendered '{{ messages[0].content }}{{ y }}')" $'q2\nq2'
    assert_equal "$(sort -u notes)" "$(sort <<'END'
bmc-gen: t.jinja: the chat template does not use "tools": a system prompt describes them, and asks for calls as JSON in <tool_call> tags
bmc-gen: t.jinja: the chat template does not use "tool_calls" of messages: the model does not see them
bmc-gen: t.jinja: the chat template does not use "documents": the model does not see them
bmc-gen: t.jinja: the chat template does not use "x", "deep" of "chat_template_kwargs"
END
)"
    rm notes
    command jq -c '. + {tools: [{type: "function", function: {name: "f"}}]}' request >with
    mv with request
    assert_equal "$(rendered '{% for t in tools %}{{ t.function.name }}{% endfor %}{{ documents | length }}{{ x }}{{ deep }}{{ y }}{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}' | head -n 1)" 'f11True2{}'
    assert_equal "$(rendered '{{ tools | length }}{{ documents is defined }}{{ x }}{{ deep }}{{ y }}{% for m in messages %}{{ m.tool_calls | length }}{% endfor %}' '{{ tools is defined }}{{ documents }}{{ x }}{{ deep }}{{ y }}{{ messages[1].tool_calls is defined }}' | sort -u | wc -l)" 2
    assert_equal "$(cat notes)" ''
}

@test "a template that knows no tools gets them as text, with earlier calls and results" {
    echo '{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"q"},{"role":"assistant","content":"Hm.","tool_calls":[{"function":{"name":"f","arguments":"{\"a\": \"x\"}"}},{"function":{"name":"g","arguments":{"b":2}}}]},{"role":"tool","content":"one"},{"role":"tool","content":"two"},{"role":"user","content":"r"}],"tools":[{"type":"function","function":{"name":"f"}}]}' >request
    local all
    all=$(rendered '{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}')
    [[ $all == '[system|Be kind.'*'{"type": "function", "function": {"name": "f"}}'*'<tool_call>'*'][user|q]'* ]] || fail "$all"
    assert_equal "[assistant${all#*\[assistant}" '[assistant|Hm.
<tool_call>
{"name": "f", "arguments": {"a": "x"}}
</tool_call>
<tool_call>
{"name": "g", "arguments": {"b": 2}}
</tool_call>][user|<tool_response>
one
</tool_response>
<tool_response>
two
</tool_response>][user|r]'
}
