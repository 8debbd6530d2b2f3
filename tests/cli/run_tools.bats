# Commands that a model calls: the sandbox, and a conversation with a tool. tests/unit/pty.c plays the user.
load ../helper

setup_file() { model grimm >/dev/null; }

# A folder with tools; outside of it a secret.
tools() {
    mkdir t
    echo yes >t/readable
    echo hidden-word >secret
    printf '#!/bin/sh\nprintf "%%s|%%s|" "$@"; cat\n' >t/script
    printf '#!/bin/sh\ncat; echo done; cat ../secret\n' >t/echo
    chmod +x t/script t/echo
    jq -nc '[{type: "function", command: ["./echo"], function: {name: "echo", description: "says it again",
        parameters: {type: "object", properties: {word: {const: "a\"b\n\\ é 😀"}}, required: ["word"]}}}]' >t/tools.json
}

@test "the sandbox: input and output pass unchanged, nothing else does" {
    tools
    run "$BMC_BUILD/tests/test_sandbox" "$PWD/t"
    [ "$status" -ne 77 ] || skip "$output"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 60 ]
}

@test "a call is run when the user agrees, and its result goes back to the model; else it is declined" {
    tools
    printf '%s\n' 'wait > ' 'type Go' 'wait declined: ' 'type y' 'wait ]' 'wait > ' '/save s.json' 'wait > ' 'end' | sed 's/^\/save/type &/' >script
    TERM=dumb timeout 60 "$BMC_BUILD/tests/pty" "$BMC_BIN/bmc-gen" -m "$(model grimm)" --chat --chat-template chatml --temp 0 -n 200 -c 1024 -i \
        --tools t/tools.json --run-tools --tool-choice required --no-parallel-tool-calls <script >raw 2>pty.err || fail "$(cat pty.err raw)"
    grep -q '^command: ./echo' <(tr -d '\r' <raw) || fail "$(cat raw)"
    # What the command was given came back unchanged; it saw no secret.
    jq -r '.messages[2].content' s.json >result
    sed -n 1p result | sed 's/done$//' >line
    assert_equal "$(jq -c . line)" '{"word":"a\"b\n\\ é 😀"}'
    run ! grep hidden-word result
    assert_equal "$(jq -c '[.messages[].role]' s.json)" '["user","assistant","tool","assistant"]'
    assert_equal "$(jq -c '.messages | .[1].tool_calls[0].id == .[2].tool_call_id' s.json)" true
    printf '%s\n' 'wait > ' 'type Go' 'wait declined: ' 'type n' 'wait ]' 'wait > ' 'type /save n.json' 'wait > ' 'end' >script
    TERM=dumb timeout 60 "$BMC_BUILD/tests/pty" "$BMC_BIN/bmc-gen" -m "$(model grimm)" --chat --chat-template chatml --temp 0 -n 200 -c 1024 -i \
        --tools t/tools.json --run-tools --tool-choice echo --no-parallel-tool-calls <script >raw 2>pty.err || fail "$(cat pty.err raw)"
    assert_equal "$(jq -r '.messages[2].content' n.json)" '[the user declined this call]'
    expect_error 2 'go(es)? with --tools' bmc-gen -q -m "$(model grimm)" --chat --run-tools x
    expect_error 2 'goes with -i' bmc-gen -q -m "$(model grimm)" --chat --tools t/tools.json --run-tools x
}
