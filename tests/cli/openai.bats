# Requests as OpenAI's clients write them: streamed text, contents of parts, log-probabilities, cancellation.
load ../helper

setup_file() { model grimm >/dev/null; }

jsonl() { bmc-gen -q -m "$(model grimm)" --jsonl "$@"; }

render() { jsonl --render-chat "$@" | jq -r '.prompt // .error'; } # OPTION.. <REQUESTS

# A streamed text is whole if each request's events, in order, are its text.
assert_streamed() { # FILE REQUESTS
    assert_equal "$(jq -s -c 'group_by(.id)[] | (map(.delta // empty) | join("")) == (map(.text // empty) | join(""))' "$1" | sort | uniq -c | tr -s ' ')" " $2 true"
    assert_equal "$(jq -s -c 'group_by(.id)[] | last | has("text")' "$1" | sort | uniq -c | tr -s ' ')" " $2 true"
}

@test "stream: events of text, then the result, which is that of a request without" {
    jq -nc 'range(5) | {id: ., prompt: "Once upon a time", n: (8 + 5 * .), temp: 1.5, stop: " the"}' >in
    jq -c '. + {stream: true}' in >streamed
    for options in '-np 1' '-np 3' '-np 5 --unordered' '-np 2 --kv paged'; do
        # shellcheck disable=SC2086
        jsonl $options <streamed >out
        assert_streamed out 5
        [ "$(grep -c '"delta"' out)" -ge 10 ]
        jq -c 'select(has("text"))' out | jq -s -c 'sort_by(.id)' >results
        # shellcheck disable=SC2086
        jsonl $options <in | jq -s -c 'sort_by(.id)' >plain
        diff results plain
    done
    # Requests without stream have one line each.
    head -n 1 in >mixed
    sed -n 2p streamed >>mixed
    jsonl -np 2 <mixed >out
    assert_equal "$(jq -c 'select(.id == 0) | has("delta")' out)" false
    # Each delta is whole characters, also where tokens are bytes.
    jsonl --logit-bias 2=-inf <<<'{"id": 1, "prompt": "a", "n": 40, "temp": 40, "top_k": 0, "top_p": 1, "min_p": 0, "stream": true, "seed": 3}' >out
    assert_streamed out 1
}

@test "contents that are lists of text parts" {
    printf '%s' "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}" >plain.jinja
    printf '%s' "{% for m in messages %}{% for part in m.content %}[{{ part['text'] }}]{% endfor %}{% endfor %}" >parts.jinja
    request='{"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]}'
    assert_equal "$(render --chat-template plain.jinja <<<"$request")" $'<user>one\ntwo'
    assert_equal "$(render --chat-template parts.jinja <<<"$request")" '[one][two]'
    ok jsonl --chat-template chatml -n 3 <<<"$request"
    assert_equal "$(jq -c .ids <<<"$output")" \
        "$(jsonl --chat-template chatml -n 3 <<<'{"messages": [{"role": "user", "content": "one\ntwo"}]}' | jq -c .ids)"
    # --render-chat shows what the template makes of an image; answers are refused.
    image='{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}'
    assert_equal "$(render --chat-template plain.jinja <<<"$image")" "<user>[{'type': 'image_url', 'image_url': 'x'}]"
    run --separate-stderr bmc-gen -q -m "$(model grimm)" --jsonl --chat-template plain.jinja -n 3 <<<"$image"
    assert_equal "$(jq -r .error <<<"$output")" 'line 1: "messages": part 0 of entry 0 is of type "image_url", only text is read'
    bad() { render --chat-template plain.jinja <<<'{"messages": [{"role": "user", "content": '"$1"'}]}' || true; }
    assert_equal "$(bad '[{"text": "x"}]')" '"messages": part 0 of entry 0 has no type'
    assert_equal "$(bad '[{"type": "text", "text": 5}]')" '"messages": the text of part 0 of entry 0 is an integer, a string is expected'
}

@test "tools: role tool, tool_call_id and tool_calls reach the template" {
    printf '%s' "{% for m in messages %}{{ m.role }}{{ m.tool_call_id }}{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.id }}){% endfor %};{% endfor %}{{ tools[0].function.name }}" >tools.jinja
    request='{"tools": [{"type": "function", "function": {"name": "f"}}], "messages": [{"role": "user", "content": "x"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "7"}]}]}'
    assert_equal "$(tr -d '\n' <<<"$request" | render --chat-template tools.jinja)" 'user;assistant(f c1);toolc1;f'
}

@test "logprobs: true is OpenAI's form" {
    request='{"prompt": "Once upon a time", "n": 4, "ignore_eos": true}'
    ok jsonl <<<"$(jq -c '. + {logprobs: true, top_logprobs: 2}' <<<"$request")"
    theirs=$(jq -c '[.logprobs.content[] | [.token, .logprob, (.top_logprobs | map([.token, .logprob]))]]' <<<"$output")
    spelled=$(jq -r '[.logprobs.content[].bytes[]] | implode' <<<"$output")
    assert_equal "$spelled" "$(jq -r .text <<<"$output")"
    ok jsonl <<<"$(jq -c '. + {logprobs: 2}' <<<"$request")"
    assert_equal "$theirs" "$(jq -c '[.logprobs[] | [.piece, .logprob, (.top | map([.piece, .logprob]))]]' <<<"$output")"
    assert_equal "$(jsonl <<<"$(jq -c '. + {logprobs: true, n: 1, max_tokens: 3}' <<<"$request")" | jq -c '[.logprobs.content[].top_logprobs]')" '[[],[],[]]'
    assert_equal "$(jsonl <<<"$(jq -c '. + {logprobs: false, top_logprobs: 3}' <<<"$request")" | jq -c 'has("logprobs")')" false
}

@test "cancel ends requests in flight and waiting ones; others are not affected" {
    {
        printf '%s\n' '{"id": "long", "prompt": "Once", "n": 200, "ignore_eos": true}' \
            '{"id": ["waits"], "prompt": "Once", "n": 200, "ignore_eos": true}' \
            '{"id": "short", "prompt": "Once upon", "n": 3, "ignore_eos": true}' \
            '{"id": "by", "cancel": "long"}' '{"cancel": [ "waits" ]}' '{"id": 7, "cancel": "nobody"}' \
            '{"id": "again", "cancel": "long", "stream": null, "prompt": null}' \
            '{"id": "long", "prompt": "Once upon", "n": 5, "ignore_eos": true}'
    } >in
    for slots in 1 2 8; do
        ok jsonl -np $slots <in
        assert_equal "$(jq -c '[.id, .finish, .cancelled, .error]' <<<"$output")" '["long","cancelled",null,null]
[["waits"],"cancelled",null,null]
["short","length",null,null]
["by",null,1,null]
[null,null,1,null]
[7,null,0,null]
["again",null,0,null]
["long","length",null,null]'
        assert_equal "$(jq -c 'select(.finish) | .ids | length < 200' <<<"$output" | uniq)" true
        assert_equal "$(jq -c 'select(.id == "short") | .ids' <<<"$output")" "$(sed -n 3p in | jsonl | jq -c .ids)"
    done
    some_fail 1 1 jsonl <<<'{"id": 1, "cancel": 2, "n": 3}'
    assert_equal "$(jq -r .error <<<"$output")" 'line 1: "cancel" goes with no other member than "id"'
    some_fail 1 1 jsonl <<<'{"id": 1, "cancel": null, "stream": null}'
    assert_equal "$(jq -r .error <<<"$output")" 'line 1: "cancel" is null: give the id of the requests to end'
}

@test "more requests than are read ahead" {
    jq -nc 'range(150) | {id: ., prompt: "Once", n: 2, ignore_eos: true}' >in
    jsonl -np 2 <in >out
    assert_equal "$(jq -c .id out | paste -sd ' ')" "$(seq 0 149 | paste -sd ' ')"
    assert_equal "$(jq -c '.ids | length' out | sort | uniq -c | tr -s ' ')" ' 150 2'
}

@test "n beside max_tokens: several choices; the first is the answer without the others" {
    one='{"id": "x", "prompt": "Once upon a time there was", "max_tokens": 9, "temperature": 1.2, "seed": 4, "top_logprobs": 2}'
    jsonl <<<"$one" >single
    jq -c '. + {n: 4}' <<<"$one" >in
    for options in '-np 1' '-np 3' '-np 8 --kv segment' '-np 4 --kv paged --chunk 2'; do
        # shellcheck disable=SC2086
        jsonl $options --stats stats.json <in >out
        [ -e want ] || cp out want
        cmp want out || fail "$options"
        # the prompt's KV entries are computed once, but for the last token's
        tokens=$(jq -r '.ids | length' < <(bmc-gen -q -m "$(model grimm)" --tokenize -p "Once upon a time there was" --jsonl 2>/dev/null || echo '{"ids": [1, 2, 3, 4, 5, 6]}'))
        assert_equal "$(jq '.prefill_tokens' stats.json)" $((tokens + 3))
        hashes+="$(jq -c .logits_hash stats.json) "
    done
    assert_equal "$(tr ' ' '\n' <<<"$hashes" | sort -u | grep -c .)" 1
    assert_equal "$(jq -c '[.id, .error, (.choices | map(.index)), (.choices | map(.finish) | unique)]' out)" '["x",null,[0,1,2,3],["length"]]'
    assert_equal "$(jq -c '.choices[0] | del(.index)' out)" "$(jq -c 'del(.id)' single)"
    assert_equal "$(jq -c '[.choices[].ids] | unique | length' out)" 4
    # n alone is a number of tokens; n_choices goes with each of its names.
    assert_equal "$(jsonl <<<'{"prompt": "x", "n": 3, "n_choices": 2}' | jq -c '[.choices[].ids | length]')" '[3,3]'
    assert_equal "$(jsonl <<<'{"prompt": "x", "n": 3}' | jq -c '.ids | length')" 3
}

@test "several choices: streamed, with log-probabilities of the prompt, cancelled, failed, interrupted" {
    jsonl -np 3 >out <<<'{"id": 1, "prompt": "Once", "n": 3, "max_tokens": 9, "temperature": 1, "stream": true, "prompt_logprobs": 1, "logprobs": true}'
    assert_equal "$(jq -s -c 'map(select(has("delta"))) | group_by(.index) | map(map(.delta) | join(""))' out)" "$(tail -n 1 out | jq -c '[.choices[].text]')"
    assert_equal "$(tail -n 1 out | jq -c '[.choices[] | has("prompt_logprobs")]')" '[true,false,false]'
    assert_equal "$(tail -n 1 out | jq -c '[.choices[].logprobs.content | length]')" '[9,9,9]'
    jsonl -np 2 >out <<<$'{"id": 1, "prompt": "Once", "n": 5, "max_tokens": 300, "ignore_eos": true}\n{"cancel": 1}'
    assert_equal "$(head -n 1 out | jq -c '[.choices[] | .finish, (.ids | length < 300)] | unique')" '[true,"cancelled"]'
    some_fail 1 1 jsonl <<<'{"id": 1, "prompt": "", "n_choices": 3}'
    assert_equal "$(jq -c '[.text, .finish, has("choices")]' <<<"$output")" '["","error",false]'
    some_fail 2 2 jsonl <<<$'{"prompt": "x", "n": 0, "max_tokens": 3}\n{"prompt": "x", "n_choices": 129}'
    assert_equal "$(jq -r .error <<<"$output")" $'line 1: "n" is 0, a whole number from 1 to 128 is expected\nline 2: "n_choices" is 129, a whole number from 1 to 128 is expected'
    some_fail 1 2 jsonl --save-kv x.kv <<<$'{"prompt": "x", "n": 2, "max_tokens": 3}\n{"prompt": "x", "n": 2}'
    assert_equal "$(head -n 1 <<<"$output" | jq -r .error)" 'line 1: --save-kv keeps one sequence of a request: ask for one choice'
    # An interrupted run gives the choices that it has.
    for seconds in 2 8 25; do # a busy machine may not have begun earlier
        status=0
        timeout -s INT $seconds "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --jsonl -np 1 --kv shift -c 64 >out \
            <<<'{"id": 1, "prompt": "Once", "n": 3, "max_tokens": 10000000, "ignore_eos": true}' || status=$?
        [ ! -s out ] || break
    done
    [ "$status" -ne 0 ]
    assert_equal "$(jq -c '[.error, (.choices | length), .choices[0].error, (.choices[0].ids | length > 0), .choices[2].ids]' out)" '["interrupted",3,"interrupted",true,[]]'
}

# Requests with each parameter of the package openai, for every alternative of its type.
openai_requests() {
    jq -c '(if .of == "chat" then {messages: [{role: "user", content: "x"}]} else {prompt: "x"} end)
        + (if .name == "max_completion_tokens" then {} else {max_tokens: 1} end) + {(.name): .value}' "$FIXTURES/openai_members.jsonl"
}

@test "every parameter of the package openai is accepted, or refused by name for a reason; one note names those without effect" {
    printf '%s' '{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}{{ tools }}' >any.jinja
    openai_requests >in
    [ "$(wc -l <in)" -ge 90 ]
    run_plain bmc-gen -q -m "$(model grimm)" --jsonl --chat-template any.jinja -f in
    jq -c 'select(has("delta") | not) | .error // "" | sub("^line [0-9]+: "; "")' <<<"$output" >errors
    assert_equal "$(wc -l <errors)" "$(wc -l <in)"
    paste -d '\t' <(jq -c '[.name, .value]' "$FIXTURES/openai_members.jsonl") errors | grep -v $'\t""$' >refused
    # Each refusal names the member, and says what to do; none is an unknown one.
    while IFS=$'\t' read -r member why; do
        [[ $(jq -r . <<<"$why") == "\"$(jq -r '.[0]' <<<"$member")\""* ]] || fail "$member: $why"
    done <refused
    assert_equal "$(jq -r '.[0]' <(cut -f 1 refused) | uniq -c | sed 's/^ *//' | paste -sd ';')" \
        '1 audio;1 function_call;1 functions;1 modalities;1 moderation;7 reasoning_effort;1 response_format;4 tool_choice;3 verbosity;1 web_search_options;1 echo;1 suffix'
    assert_equal "$(jq -c '.[1]' <(grep -E '^\["(modalities|response_format|tool_choice|echo|function_call)' refused | cut -f 1) | paste -sd ' ')" \
        '{"name":"x"} ["audio"] {"json_schema":{"name":"x"},"type":"json_schema"} "required" {"allowed_tools":{"mode":"auto","tools":[{}]},"type":"allowed_tools"} {"function":{"name":"x"},"type":"function"} {"custom":{"name":"x"},"type":"custom"} true'
    # One note for the run, and the line that counts failures.
    assert_equal "$(wc -l <<<"$stderr")" 2
    assert_equal "$(head -n 1 <<<"$stderr" | grep -oE '[:,] [a-z_]+ \(' | tr -d ':,( ' | sort | paste -sd ' ')" \
        'best_of echo function_call metadata modalities model prediction prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier service_tier store stream_options user'
}

@test "members without effect are said once; what is inside members is checked, too" {
    jq -nc '{prompt: "x", max_tokens: 1, model: "m"}, {prompt: "x", max_tokens: 1, user: "u", model: "n", suffix: null}' >in
    run_plain jsonl -f in
    assert_equal "$stderr" 'bmc-gen: members of requests without effect: model (the model of the run answers), user (nothing is kept of users)'
    run_plain jsonl --embed <<<'{"text": "x", "model": "m"}'
    assert_equal "$stderr" 'bmc-gen: members of requests without effect: model (the model of the run answers)'
    while IFS=$'\t' read -r member want; do
        some_fail 1 1 jsonl <<<"{\"prompt\": \"x\", \"n\": 1, $member}"
        assert_equal "$(jq -r .error <<<"$output")" "line 1: $want"
        ok jsonl --lenient -n 1 <<<"{\"prompt\": \"x\", $member}"
    done <<'END'
"stream_options": {"include_usag": true}	"stream_options" has the unknown member "include_usag"; known are: include_usage include_obfuscation
"response_format": {"type": "json_object", "json_schema": {"schema": {}}}	"response_format" has the unknown member "json_schema"; known are: type schema
"response_format": {"type": "text", "schema": {}}	"response_format" has the unknown member "schema"; known are: type
"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strickt": true}}	"json_schema" has the unknown member "strickt"; known are: name description schema strict
END
    some_fail 1 1 jsonl <<<'{"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"properties": {}}}}'
    assert_equal "$(jq -r .error <<<"$output")" 'line 1: "json_schema" has the unknown member "properties"; known are: name description schema strict'
    # The schema of llama.cpp's json_object, and null members, as pydantic writes them.
    schema='{"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"], "additionalProperties": false}'
    jq -nc --argjson s "$schema" '{prompt: "x", json_schema: $s}, {prompt: "x", response_format: {type: "json_object", schema: $s}},
        {prompt: "x", response_format: {type: "json_schema", json_schema: {name: "x", schema: $s, description: null, strict: null}}}' >in
    ok jsonl -f in
    assert_equal "$(jq -c '[.finish, .text]' <<<"$output" | uniq | wc -l)" 1
    assert_equal "$(jq -r .text <<<"$output" | jq -c . | uniq)" '{"a":7}'
    assert_equal "$(jsonl <<<'{"prompt": "x", "n": 30, "response_format": {"type": "json_object", "schema": {}, "json_schema": null}}' | jq -r '.text[:1]')" '{'
}

@test "n is the number of choices in requests of OpenAI's form" {
    jq -nc '{messages: [{role: "user", content: "x"}], n: 2}, {prompt: "x", n: 2, max_tokens: 3}, {prompt: "x", n: 2, model: "m"}, {prompt: "x", n: 2}' >in
    assert_equal "$(jsonl --chat-template chatml -n 3 -f in 2>/dev/null | jq -c '[(.choices // [.])[].ids | length]' | paste -sd ' ')" '[3,3] [3,3] [3,3] [2]'
    assert_equal "$(jsonl --chat-template chatml <<<'{"messages": [{"role": "user", "content": "x"}], "n": 2, "n_choices": 2}' 2>&1 | jq -r '.error? // empty' 2>/dev/null | head -n 1)" \
        'line 1: "n" and "n_choices" mean the same: give one of them'
}

@test "lines of OpenAI's batches are answered in their form" {
    cat >in <<'END'
{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, "n": 2, "temperature": 1, "logprobs": true, "top_logprobs": 1}}
{"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once upon", "max_tokens": 3, "logprobs": 2}}
{"custom_id": "c", "body": {"prompt": "Once upon", "max_tokens": 9, "stop": [" the"], "stream": false}}
END
    plain=$(jq -c '.body + {id: .custom_id}' in | jsonl --chat-template chatml 2>/dev/null)
    export SOURCE_DATE_EPOCH=7
    run_plain jsonl --chat-template chatml -f in
    assert_equal "$(jq -c '[.id, .custom_id, .error, .response.status_code, .response.request_id]' <<<"$output")" '["batch_req_1","a",null,200,"req-1"]
["batch_req_2","b",null,200,"req-2"]
["batch_req_3","c",null,200,"req-3"]'
    assert_equal "$(jq -c '.response.body | [.id, .object, .created]' <<<"$output")" '["chatcmpl-1","chat.completion",7]
["cmpl-2","text_completion",7]
["cmpl-3","text_completion",7]'
    assert_equal "$(jq -c '.response.body.choices[] | [.index, .message.role, .message.content // .text, .finish_reason]' <<<"$output")" \
        "$(jq -c 'select(.choices) | .choices[] | [.index, "assistant", .text, .finish]' <<<"$plain")
$(jq -c 'select(.choices | not) | [0, null, .text, .finish]' <<<"$plain")"
    assert_equal "$(jq -r '.response.body.choices[0].finish_reason' <<<"$output" | tail -n 1)" stop
    assert_equal "$(head -n 1 <<<"$output" | jq -c '[.response.body.choices[].logprobs]')" "$(head -n 1 <<<"$plain" | jq -c '[.choices[].logprobs]')"
    assert_equal "$(sed -n 2p <<<"$output" | jq -c '.response.body.choices[0].logprobs | [.tokens, .token_logprobs, (.top_logprobs | map(to_entries | map([.key, .value]) | sort)), .text_offset]')" \
        "$(sed -n 2p <<<"$plain" | jq -c '.logprobs | [map(.piece), map(.logprob), map(.top | map([.piece, .logprob]) | sort), [0, (.[0].piece | length), (.[:2] | map(.piece | length) | add)]]')"
    assert_equal "$(jq -c '.response.body.usage | [.completion_tokens, .total_tokens - .prompt_tokens - .completion_tokens]' <<<"$output")" \
        "$(jq -c '[([(.choices // [.])[].ids | length] | add), 0]' <<<"$plain")"
    # Errors.
    cat >in <<'END'
{"custom_id": "a", "url": "/v1/embeddings", "body": {"input": "x"}}
{"custom_id": "b", "url": "/v1/completions", "body": {"messages": []}}
{"custom_id": "c", "body": {"prompt": "x", "stream": true}}
{"custom_id": "d", "body": {"prompt": "x", "max_tokenz": 3}}
{"custom_id": "e"}
{"custom_id": "f", "bodi": 1, "body": {"prompt": "x"}}
{"custom_id": "g", "method": "GET", "body": {"prompt": "x"}}
{"method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}
END
    some_fail 8 8 jsonl -f in
    assert_equal "$(jq -r '[.custom_id, .response.status_code, .response.body.error.message == .error.message] | join(" ")' <<<"$output" | paste -sd ,)" \
        'a 400 true,b 400 true,c 400 true,d 400 true,e 400 true,f 400 true,g 400 true, 400 true'
    assert_equal "$(jq -r '.error.message | sub("^line [0-9]: "; "")' <<<"$output")" '"url" is /v1/embeddings: bmc-gen --embed answers such lines
"body" has no "prompt", which /v1/completions needs
"body" has "stream", which lines of batches do not: leave it out
unknown member "max_tokenz"; did you mean "max_tokens"? (--lenient ignores unknown ones)
"body" is missing, an object is expected
a line of a batch has the unknown member "bodi"; known are: custom_id method url body
"method" is not "POST"
"custom_id" is missing, which a line of a batch with "body" needs'
}

@test "the status of a request is 400 if it is wrong, and 500 if the run or the model fails" {
    jq -nc '("x", [99999], [range(200) | 5], "") as $prompt | {custom_id: "a", body: {prompt: $prompt, max_tokens: 2}}' >in
    jq -nc '{custom_id: "a", body: {prompt: "x", max_tokens: 8, grammar: "root ::= \"\""}}' >>in
    statuses() { jq -c '.response | [.status_code, .body.error.code]' | paste -sd ' '; }
    assert_equal "$(jsonl -c 128 -f in 2>err | statuses)" '[200,null] [400,"invalid_request_error"] [400,"context_length_exceeded"] [400,"invalid_request_error"] [400,"invalid_request_error"]'
    bmc-convert -q "$ROOT/models.d/grimm.bmc" -o nan.bmc
    at=$(bmc-convert --info --format json nan.bmc | jq '.rows[] | select(.name == "final_norm.weight") | .offset')
    printf '\xff\xff\xff\x7f' | patch nan.bmc "$at"
    head -n 1 in >first
    assert_equal "$(bmc-gen -q -m nan.bmc --jsonl -f first 2>err | statuses)" '[500,"server_error"]'
}

@test "--openai: answers are OpenAI's objects, the same seed has the same answer on every line" {
    jq -nc '{prompt: "Once upon a time", max_tokens: 9, temperature: 1, seed: 5} | ., ., . + {id: "mine", n: 2, logprobs: 1}, {messages: [{role: "user", content: "x"}], max_tokens: 2, stream: true, stream_options: {include_usage: true}}' >in
    jsonl --openai --chat-template chatml -f in 2>err | jq -sc 'sort_by(.object)[]' >all # chunks come at once
    grep text_completion all >out
    assert_equal "$(jq -s -c '[.[:3][].id], [.[:3][].choices[0].text] | unique' out)" '["cmpl-1","cmpl-2","mine"]
["'"$(jsonl <<<"$(head -n 1 in)" | jq -r .text)"'"]'
    assert_equal "$(jq -s -c '.[0] | .object, (.usage | .prompt_tokens, .total_tokens, .prompt_tokens_details.cached_tokens), .choices[0].finish_reason' out)" '"text_completion"
4
13
0
"length"'
    # The second answer follows from the first one's KV entries; one hash is that of --stats, as for a run of this line.
    jsonl --openai -f <(head -n 1 in) --stats stats.json >one
    hash=$(jq -r .logits_hash one)
    assert_equal "$(jq -s -r '.[1].logits_hash' out)" "$hash"
    refute [ "$(jq -s -r '.[2].logits_hash' out)" = "$hash" ]
    grep chunk all >out
    assert_equal "$(jq -s -c '(map(.object) | unique), map(.choices[0].delta.role // empty), (.[-1] | .choices, .usage.completion_tokens)' out)" '["chat.completion.chunk"]
["assistant"]
[]
2'
    some_fail 1 1 jsonl --openai <<<'{"id": 7, "prompt": ""}'
    assert_equal "$(jq -c '.id, .error.type' <<<"$output")" $'7\n"invalid_request_error"'
}

@test "--openai: a list of prompts has the choices that each has alone" {
    jq -nc '{prompt: ["Once upon a time", [5, 6, 7], "The wolf"], n: 2, max_tokens: 6, temperature: 1, seed: 5} | ., . + {prompt: .prompt[]}' >in
    for options in '-np 1' '-np 8 --kv segment'; do
        # shellcheck disable=SC2086
        jsonl --openai $options -f in >out
        head -n 1 out | jq -c '[.choices[].text], (.choices | map(.index)), .usage.prompt_tokens, .usage.completion_tokens' >got
        tail -n 3 out | jq -sc '[.[].choices[].text], [range(6)], (map(.usage.prompt_tokens) | add), (map(.usage.completion_tokens) | add)' | diff - got
    done
    some_fail 2 2 jsonl <<<$'{"prompt": ["a", "b"]}\n{"prompt": ["a", 5]}'
    assert_equal "$(jq -r .error <<<"$output")" $'line 1: "prompt" holds 2 prompts, one is expected: write a line for each\nline 2: "prompt" is 5, a string or a list of token ids is expected'
}

@test "--openai: embeddings are those of --embed, as numbers and in base64" {
    embed() { bmc-gen -q -m "$(model grimm)" --embed --jsonl "$@"; }
    embed <<<$'{"text": "The king"}\n{"ids": [5, 6]}' | jq -c .embedding >want
    embed --openai <<<'{"input": ["The king", "Once"]}' >out
    assert_equal "$(jq -c '.object, .usage.prompt_tokens, (.data | map([.object, .index]))' out)" $'"list"\n3\n[["embedding",0],["embedding",1]]'
    jq -c '.data[0].embedding' out | cmp - <(head -n 1 want)
    embed <<<'{"custom_id": "a", "url": "/v1/embeddings", "body": {"input": [[5, 6]]}}' | jq -c '.response.body.data[].embedding' | cmp - <(tail -n 1 want)
    embed --openai <<<'{"input": "The king", "encoding_format": "base64"}' | jq -r '.data[0].embedding' | base64 -d | od -An -v -t f4 -w4 |
        awk '{ printf "%.5f\n", $1 }' | cmp - <(head -n 1 want | jq '.[]' | awk '{ printf "%.5f\n", $1 }')
    run --separate-stderr embed --openai <<<$'{"input": "x", "dimensions": 5}\n{"input": ["x", 5]}\n{}'
    assert_equal "$(jq -r .error.message <<<"$output")" $'line 1: "dimensions": embeddings of this model have '"$(head -n 1 want | jq length)"$'\nline 2: "input" is an integer, a string is expected\nline 3: "input", a text or a list of texts or of ids, is expected'
}

@test "--openai: reasoning and tool calls have their members, in chunks, too" {
    jq -nc '["é", "2" | "<tool_call>\n" + ({name: "f", arguments: {x: "</tool_call> \"\(.)\""}} | tojson) + "\n</tool_call>"] | add as $calls |
        {messages: [{role: "user", content: "x"}], choice: ["<think>\nhm\n</think>\nWell. " + $calls], tools: [{type: "function", function: {name: "f"}}]} |
        ., . + {stream: true}, del(.tools)' >in
    jsonl --openai --chat-template chatml -f in 2>err >out
    grep -v chunk out | jq -s -c '.[0].choices[0] | .finish_reason, (.message | .content, .reasoning_content, (.tool_calls | map(.type, .function.name, (.function.arguments | fromjson | .x)), (map(.id) | unique | length)))' >got
    cat >want <<'END'
"tool_calls"
"Well."
"hm"
["function","f","</tool_call> \"é\"","function","f","</tool_call> \"2\""]
2
END
    diff want got
    grep chunk out | jq -s -c 'map(.choices[0]) | last.finish_reason, (map(.delta) | (map(.content // "") | add), (map(.reasoning_content // "") | add), (map(.tool_calls[]?) | map(.type, .function.name, (.function.arguments | fromjson | .x)), map(.index), (map(.id) | unique | length)))' >got
    sed '/^\["function/a [0,1]' want | diff - got
    # A call that is required streams in pieces; one that is cut off has no other end than length.
    jq -nc '{messages: [{role: "user", content: "x"}], tool_choice: "required", parallel_tool_calls: false, tools: [{type: "function", function: {name: "f", parameters: {
        type: "object", properties: {x: {type: "string", maxLength: 20}, y: {type: "boolean"}}, required: ["x", "y"]}}}], temperature: 1, seed: 4} |
        (., . + {stream: true}), . + {stream: true, max_tokens: 30}' >in
    jsonl --openai --chat-template chatml -f in 2>err >forced
    calls() { jq -sc --arg id "chatcmpl-$1" 'map(select(.id == $id).choices[0]) | [(map(.delta.tool_calls[]?) | length > 5, (map(.function.name // empty) | add), (map(.function.arguments) | add)), last.finish_reason, (map(.delta.content // empty) | add)]' forced; }
    jq -c 'select(.id == "chatcmpl-1").choices[0] | [true, (.message.tool_calls[].function | .name, .arguments), .finish_reason, null]' forced | diff - <(calls 2)
    assert_regex "$(calls 3)" '^\[(true|false),"f","(\{.*)?","length",null\]$'
    # Without tools a call is text.
    assert_equal "$(tail -n 1 out | jq -c '.choices[0] | .finish_reason, .message.reasoning_content, (.message | has("tool_calls"))' | paste -sd ,)" '"stop","hm",false'
    assert_equal "$(tail -n 1 out | jq -r '.choices[0].message.content' | grep -c '<tool_call>')" 2
}
