# Retrieval and streaming heads: attention, memory, lists, and bmc-prof heads.
load ../helper

# A prompt of 300 tokens and 12 more; 8 layers of 2 KV heads.
prompt="$(seq -s ' ' 100 399)"
gen() { bmc-gen -q -m "$(model grimm)" --prompt-ids "$prompt" -n 12 --ids --ignore-eos -t 2 --kv headwise "$@"; }
hashed() { gen "$@" --stats stats.json >/dev/null && jq -r .logits_hash stats.json; }
list() { printf '%s\n' "$@" >list; }
some=('sink 4' 'recent 20' '0 0' '1 1' '5 0' '6 0' '6 1')

@test "retrieval heads only equal bmc; streaming heads without sinks equal a sliding window" {
    want=$(hashed --kv bmc)
    list 'sink 4' 'recent 400' '0 0'
    assert_equal "$(hashed --retrieval-heads list)" "$want"
    list 'recent 64' 'sink 0'
    want=$(hashed --kv shift:S=64 --chunk 64)
    assert_equal "$(hashed --retrieval-heads list --chunk 100)" "$want"
    [ "$(jq .kv_resident_bytes stats.json)" -lt $((800 << 10)) ]
}

@test "logits with streaming heads do not depend on group, budget, chunk, batch and threads" {
    list "${some[@]}"
    want=$(hashed --retrieval-heads list)
    [ "$(jq .streaming_heads stats.json)" -eq 11 ]
    [ "$want" != "$(hashed)" ]
    [ "$(jq .streaming_heads stats.json)" -eq 0 ]
    full=$(jq .kv_resident_bytes stats.json)
    assert_equal "$(hashed --retrieval-heads list --chunk 1 -t 1)" "$want"
    [ "$(jq .kv_resident_bytes stats.json)" -lt $((full * 6 / 10)) ]
    assert_equal "$(hashed --retrieval-heads list --chunk 60 --kv headwise:ram=850K,group=1)" "$want"
    [ "$(jq .kv_resident_bytes stats.json)" -le $((850 << 10)) ]
    assert_equal "$(hashed --retrieval-heads list --chunk 33 --kv headwise:ram=850K,group=2)" "$want"
}

@test "streaming heads in batches and beams, and with the other attention backend" {
    list "${some[@]}"
    for n in 90 60 30; do jq -nc --argjson n $n '{id: $n, ids: [range(100; 100 + $n)], n: 12}'; done >in
    jsonl() { bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -f in --retrieval-heads list "$@" | jq -c 'del(.ms)'; }
    jsonl --kv headwise -b 1 >want
    jsonl --kv headwise:ram=800K,group=1 -b 2 --chunk 20 >got
    equal_files want got
    jsonl --kv headwise -b 1 --beams 2 >want
    jsonl --kv headwise:ram=1900K,group=1 -b 2 --beams 2 --chunk 20 >got
    equal_files want got
    score() { bmc-gen -q -m "$(model grimm)" -p "$(seq -s ' ' 1 60)" --score --summary --format json --kv headwise --precision f32 "$@" | jq .mean_logprob; }
    sparse=$(score --retrieval-heads list)
    jq -ne --argjson a "$sparse" --argjson b "$(score --retrieval-heads list --attn blas)" --argjson full "$(score)" \
        '($a - $b | fabs) < 1e-4 and ($a - $full | fabs) > 1e-2'
}

heads() { "$BMC_BIN/bmc-prof" heads -m "$(model grimm)" --recent 32 -t 2 --format json "$@"; }

@test "bmc-prof heads makes a text that repeats needles, and warns of a text that repeats nothing" {
    heads -N 400 >json 2>warning
    jq -e '.rows[0].tokens == 400 and .rows[0].repeats > 100 and (.rows | map(.score) | max < 1 and min >= 0)' json
    equal_files warning /dev/null
    expect_error 1 'a text of 60 tokens has no room for needles beside 4 sinks and a window of 32: raise -N to 132' heads -N 60
    seq -s ' ' 1 60 | heads -f - >json 2>warning
    grep -q 'the text repeats 0 tokens from beyond the window, of at least 32: it cannot tell retrieval heads' warning
    printf '%s ' {1..60} {1..60} | heads -f - >json 2>warning
    equal_files warning /dev/null
}

@test "bmc-prof heads lists the retrieval heads; errors of a short or missing text" {
    seq -s ' ' 1 60 >text
    of() { heads -f text "$@"; }
    of --sparsity 0.25 -o list >json
    jq -e '.rows | length == 16 and all(.[]; .streaming_heads == 4 and .streaming_share == 0.25)' json
    assert_equal "$(jq '[.rows[] | select(.sparse)] | length' json) $(grep -c '^[0-9]' list) $(grep -xc -e 'sink 4' -e 'recent 32' list)" "4 12 2"
    jq -e '[.rows[] | select(.sparse).score] as $few | [.rows[] | select(.sparse | not).score] as $far |
        ($few | max) <= ($far | min) and ($few | min) >= 0 and ($far | max) < 1 and .rows[0].tokens > 100' json
    assert_equal "$(jq -r '.rows[] | select(.sparse | not) | "\(.layer) \(.head)"' json)" "$(grep '^[0-9]' list)"
    ok gen --retrieval-heads list
    assert_equal "$(of -t 1 | jq -c '.rows | map(.score)')" "$(jq -c '.rows | map(.score)' json)"
    expect_error 1 '30 tokens are computed, of which every head sees the first 4 and the last 32' of -N 30
    expect_error 1 'none: cannot' heads -f none
    expect_error 2 '--sparsity' of --sparsity 1.5
}

@test "an invalid list is refused with the line" {
    while IFS='|' read -r lines why; do
        printf "$lines" >list
        expect_error 1 "$why" gen --retrieval-heads list
    done <<'END'
|list: the list of retrieval heads is empty
# 0 0\n|list: the list of retrieval heads is empty
8 0\n|list:1: layer 8, head 0: the model has 8 layers of 2 KV heads
\n0 2\n|list:2: layer 0, head 2: the model has
0 0\n0 0\n|list:2: layer 0, head 0 is listed a second time
0 -1\n|list:1: a layer and a KV head, sink ROWS or recent ROWS is expected, found "0 -1"
0 1 1\n|found "0 1 1"
0\n|found "0 "
x\033 99999999999999999999\n|list:1: a layer and a KV head
sink x\n|list:1: a number of rows is expected, found "sink x"
recent 0\n|list:1: a number of rows is expected
recent 18446744073709551615\n|list:1: a number of rows is expected
0 0\0\n|has a zero byte
END
    expect_error 1 'no: cannot' gen --retrieval-heads no
}

@test "--retrieval-heads needs --kv headwise, and excludes snapshots" {
    list "${some[@]}"
    expect_error 2 '--retrieval-heads goes with --kv headwise' gen --kv bmc --retrieval-heads list
    expect_error 2 '--retrieval-heads goes neither with --save-kv' gen --retrieval-heads list --save-kv x
    expect_error 2 '--retrieval-heads goes neither with --save-kv' gen --retrieval-heads list --prompt-cache x
}

@test "unit test: attention over streaming heads, released memory, retrieval scores" {
    run "$BMC_BUILD/tests/test_streaming"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}
