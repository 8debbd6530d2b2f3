# Tool calls: what models write, and its formats.
load ../helper

@test "answers with tool calls, in all formats and hostile ones, say the same however they are cut" {
    run "$BMC_BUILD/tests/test_tools" "$ROOT/models.d" "$FIXTURES/tools.jsonl"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 80000 ]
}
