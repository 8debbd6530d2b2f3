# Receipts: true ones are equal under other policies, batches and chunks; a change of any member is found.
load ../helper

setup_file() {
    model grimm >/dev/null
    cd "$BATS_FILE_TMPDIR"
    cat >requests <<'END'
{"prompt":"The king","n":10,"temp":0.9,"seed":3,"n_choices":2}
{"prompt":"Once","n":12,"temp":1.2,"mirostat":2,"seed":18446744073709551615}
{"prompt":"Once upon","n":40,"temp":0.7,"dry_multiplier":0.8,"dry_sequence_breakers":["the"],"repeat_penalty":1.3,"samplers":["top_k","temperature"],"top_k":20,"seed":4}
{"prompt":"A","n":12,"temp":1,"json_schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}
{"prompt":"A","n":9,"regex":"[a-z ]{5,9}","temp":1}
{"prompt":"The king","n":30,"stop":["and"],"logit_bias":{"48":-2.3,"273":false},"temp":0.5,"seed":1}
{"prompt":"The king","n":0}
END
    bmc-gen -q -m "$(model grimm)" --jsonl -f requests --receipt true >/dev/null
}

verify() { bmc-gen -q -m "$(model grimm)" --verify-receipt "$@"; }
forge() { "$BMC_BUILD/tests/forge_receipt" "$(model grimm)" "$@"; }
# The receipt with these tokens at least, alone.
one() { jq -r --arg n "$1" 'select((.tokens | length) >= ($n | tonumber)) | .stream' "$BATS_FILE_TMPDIR/true" | head -n 1 >stream && grep "\"stream\":$(<stream)," "$BATS_FILE_TMPDIR/true"; }

@test "receipts are equal in other batches, chunks and policies, and name tokens and text of the results" {
    ok verify "$BATS_FILE_TMPDIR/true"
    assert_equal "$(cut -d: -f3 <<<"$output" | cut -d, -f1 | sort | uniq -c | xargs)" "8 equal"
    ok verify "$BATS_FILE_TMPDIR/true" -np 1 --chunk 5 -t 1 --kv paged
    assert_equal "$(grep -c ': equal, ' <<<"$output")" 8
    ok bmc-gen -q -m "$(model grimm)" --precision f32 --jsonl -f "$BATS_FILE_TMPDIR/requests"
    assert_equal "$(jq -c '(.choices // [.])[] | [.ids, .text]' <<<"$output" | sort)" "$(jq -c '[.tokens, .text]' "$BATS_FILE_TMPDIR/true" | sort)"
}

@test "the hash chain is what bmc-gen(1) says, by a second implementation" {
    for n in 0 9 30; do
        one $n >plain
        forge <plain >again
        equal_files plain again
    done
}

@test "a change of any member is found; of some, by computing the chain again, not: they are other true receipts" {
    one 9 | jq -c '. as $r | [paths(scalars)] | .[] as $p | $r | setpath($p; getpath($p) |
        if type == "number" then . + 1 elif type == "boolean" then not elif test("^[0-9a-f]+$") then (if .[-1:] == "0" then .[:-1] + "1" else .[:-1] + "0" end) else . + "x" end)' >forged
    [ "$(wc -l <forged)" -ge 60 ]
    one 9 >plain
    cat plain forged >all
    run --separate-stderr verify all
    [ "$status" -eq 1 ]
    assert_equal "${#lines[@]}" "$(wc -l <all)"
    assert_equal "$(grep ': equal' <<<"$output" | cut -d: -f2)" 1
    while read -r path value found; do
        forge "$path" "$value" <plain >forged
        run --separate-stderr verify forged
        [[ $output =~ ^forged:1:\ $found ]] || fail "$path $value: $output"
    done <<'END'
tokens.4 300 differs at token 4: it has token 300, the model gives token
seed 77 differs at token
request.ids [300] differs at token 0
request.temp 0.01 differs at token
finish "eos" differs in "finish"
text "The" differs in "text"
request.mirostat_eta 0.5 equal
END
    jq -c '.tokens[2] = 99999' plain >forged
    run --separate-stderr verify forged
    [[ $output =~ '"tokens": entry 2 is 99999, outside the vocabulary' ]]
}

@test "signatures: of the receipt's own key, of a given one, of another; keys that others can read" {
    (umask 077 && echo 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60 >key && printf '%064d\n' 8 >other)
    bmc-gen -q -m "$(model grimm)" -p The -n 4 --receipt signed --receipt-key key >/dev/null
    ok verify signed
    [[ $output =~ "equal, 4 tokens, signed by its own key" ]]
    jq -r .public_key signed >public
    assert_equal "$(<public)" d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a # RFC 8032, 7.1, test 1
    for file in key public; do
        ok verify signed --receipt-key $file
        [[ $output =~ "signed by the given key" ]]
    done
    run --separate-stderr verify signed --receipt-key other
    [[ $output =~ "it is signed by another key than the given one" ]]
    jq -c 'del(.public_key, .signature)' signed >plain
    run --separate-stderr verify plain --receipt-key public
    [[ $output =~ "it is not signed" ]]
    jq -c '.signature |= .[:-2] + (if .[-2:] == "00" then "01" else "00" end)' signed >changed
    run --separate-stderr verify changed
    [[ $output =~ "changed after it was signed" ]]
    chmod 644 key
    expect_error 1 'key: others than its owner may use this secret key: chmod 600 it' bmc-gen -m "$(model grimm)" -p The --receipt a --receipt-key key
}

@test "what receipts do not go with; files that are none; other models" {
    expect_error 1 'keeps all tokens' bmc-gen -q -m "$(model grimm)" -p The -n 2 --kv shift:S=32 --receipt a
    expect_error 1 '--precision bf16 and bf16x2 do not promise' bmc-gen -q -m "$(model grimm)" -p The -n 2 --precision bf16 --receipt a
    expect_error 2 'not with --beams' bmc-gen -q -m "$(model grimm)" -p The -n 2 --beams 2 --receipt a
    expect_error 2 'generates nothing else' verify a -p The
    echo '{"receipt":1}' >short
    expect_error 1 'short:1: "model" is missing' verify short
    echo The >text
    expect_error 1 'text:1: not valid JSON' verify text
    expect_error 1 'exists and is no file of receipts' bmc-gen -q -m "$(model grimm)" -p The -n 2 --receipt text
    run --separate-stderr bmc-gen -q -m "$(model grimm-draft)" --verify-receipt "$BATS_FILE_TMPDIR/true"
    [ "$status" -eq 1 ]
    [[ ${lines[0]} =~ 'is of model ' ]]
}
