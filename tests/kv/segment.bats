# Cache policy `segment`: shared prefixes, aliased beams, and the prefix cache.
load ../helper

setup_file() { model grimm >/dev/null; }

@test "random forks, cuts and continuations under every policy; memory of shared prompts" {
    BMC_SEED=${BMC_SEED:-$RANDOM} run "$BMC_BUILD/tests/test_segment"
    [ "$status" -eq 0 ] || fail "test_segment -> $output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

@test "attention over aliased beams equals attention over copies, bit for bit" {
    run "$BMC_BUILD/tests/test_beam_index"
    [ "$status" -eq 0 ] || fail "test_beam_index -> $(tail <<<"$output")"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

@test "requests that share prefixes of different lengths: results of each alone" {
    jq -nc '[range(64) | 5 + . * 7 % 300] as $a | [range(96) | 9 + . * 11 % 290] as $b |
        {ids: ($a + $b + [7]), n: 40}, {ids: ($a + $b + [8]), n: 40}, {ids: ($a + [9]), n: 40}, {ids: ($a + $b + [10]), n: 40}' >in
    for how in '-b 1 --prefix-cache-mb 0' '-b 4 --kv bmc' '-b 4 --kv segment'; do
        ok bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos $how --stats stats.json -f in
        echo "$(md5sum <<<"$output") $(jq -r .logits_hash stats.json)" >>results
    done
    assert_equal "$(sort -u results | wc -l)" 1
}

@test "kv_copied_bytes equals the copies made, for every policy, cache type and attention backend" {
    BMC_SEED=${BMC_SEED:-$RANDOM} run "$BMC_BUILD/tests/test_copies"
    [ "$status" -eq 0 ] || fail "test_copies -> $(tail <<<"$output")"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

@test "the growth step is 16, or by step= or T=; snapshots keep it" {
    gen() { bmc-gen -q -m "$(model grimm)" -c 128 -n 40 --ignore-eos --stats stats.json "$@"; }
    ok gen -p 'Once upon a time'
    want=$(jq -r .logits_hash stats.json)
    while read -r kv T r from; do
        ok gen -p 'Once upon a time' --kv "$kv" --save-kv s.kv
        assert_equal "$(jq -c '[.logits_hash, .kv_policy, .T, .r, .T_from, .kv_copied_rows]' stats.json)" "[\"$want\",\"segment\",$T,$r,\"$from\",0]"
        ok bmc-convert --info s.kv
        assert_output --partial "segment:step=$r"
    done <<'KV'
segment 8 16 policy
segment:step=40 4 40 option
segment:r=5 26 5 option
segment:T=2 2 64 option
KV
    for bad in segment: segment:16 segment:step=0 segment:q=1; do
        expect_error 2 "cache policy \"$bad\": .*step=ROWS, r=ROWS, the same, T=COUNT or T=tuned is expected" bmc-gen -p x --kv $bad
    done
}

# ---- shared prefixes ----

# 16 requests with a shared prefix of 60 ids, which end together, and 4 of a short prompt.
alike() {
    jq -nc '[range(60) | 5 + . * 7 % 300] as $head | range(20) as $i |
        {id: $i, ids: ($head + [range(1 + $i % 3) | 40 + $i, 50 + $i * 3 % 40]), n: (if $i < 16 then 10 else 10 + $i end)}'
    jq -nc 'range(20; 24) | {id: ., ids: [9, 8, 7, 6, 5], n: 3}'
}

stats_are() { assert_equal "$(jq -c '[.shared_rows, .prefill_tokens, .logits_hash]' stats.json)" "$1"; }

@test "a shared prefix is computed once, for any batch size, policy and chunk, with the results of single requests" {
    BMC_SEED=${BMC_SEED:-$RANDOM}
    alike >in
    gen() { bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos --stats stats.json "$@" <in; }
    ok gen -b 1 --prefix-cache-mb 0
    echo "$output" >want
    hash=$(jq .logits_hash stats.json)
    stats_are "[0,$(jq .ids in | jq -s 'map(length)|add'),$hash]"
    for how in $(kv_policies) 'segment -b 1' 'segment:r=5 -b 3 --chunk 17' 'bmc -b 1'; do
        sampled 2 || continue
        ok gen -b 8 --kv $how
        assert_equal "$output" "$(<want)"
        # The shared prefix once, 4 of 5 ids of the short prompt once, the rest for each request.
        stats_are "[$((19 * 60 + 3 * 4)),$((60 + 2 * 7 + 2 * 2 * 7 + 2 * 3 * 6 + 4 + 4)),$hash]"
    done
    # Without a prefix cache only requests in flight at the same time share.
    ok gen -b 8 --prefix-cache-mb 0
    assert_equal "$output" "$(<want)"
    [ "$(jq .prefill_tokens stats.json)" -ge $((2 * 60 + 80)) ]
    expect_error 2 '--prefix-cache-mb goes with --jsonl' bmc-gen -p x --prefix-cache-mb 1
}

@test "segment stores the shared prefix of 64 requests once" {
    jq -nc '[range(512) | 5 + . * 7 % 300] as $head | range(64) as $i | {ids: ($head + [40 + $i, 17]), n: 2}' >in
    ok bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -b 16 --kv segment --stats stats.json -f in
    jq -e '.prefill_tokens == 512 + 64 * 2 and .shared_rows == 63 * 512' stats.json || fail "$(cat stats.json)"
    # 16 slots have 16 rows each of their own.
    row=$(($(jq .kv_saved_bytes stats.json) / ($(jq .shared_rows stats.json) - 512 * (64 / 16 - 1) * 16)))
    jq -e --argjson row $row '.kv_resident_bytes <= (512 + 16 * 16) * $row' stats.json || fail "$row $(cat stats.json)"
    # Of 16 that end together the first stay in the prefix cache, as memory allows: one is enough.
    ok bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -b 16 --kv segment --prefix-cache-mb 3 --stats stats.json -f in
    jq -e '.prefill_tokens == 512 + 64 * 2' stats.json || fail "$(cat stats.json)"
}

@test "prompts with requested log-probabilities are computed, not taken from the prefix cache" {
    jq -nc '[range(40) | 5 + . * 7 % 300] as $head | {ids: $head, n: 1}, {ids: $head, n: 1, prompt_logprobs: 1}' >in
    ok bmc-gen -q -m "$(model grimm)" --jsonl -b 2 --stats stats.json -f in
    assert_equal "$(jq .shared_rows stats.json)" 0
    assert_equal "$(tail -n 1 <<<"$output" | jq '[.prompt_logprobs[1:][].logprob | type == "number"] | [length, all]' -c)" '[39,true]'
}

@test "with RoPE scaling by sequence length, prefixes are shared within the original context" {
    ok bmc-convert "$FIXTURES/families/llama-longrope" -o long.bmc
    jq -nc '[range(20) | 5 + . * 7 % 60] as $head | range(6) | {ids: $head, n: (if . % 2 == 0 then 2 else 70 end)}' >in
    gen() { bmc-gen -q -m long.bmc --jsonl --ignore-eos --stats stats.json -f in "$@"; }
    ok gen -b 1 --prefix-cache-mb 0
    echo "$output" >want
    for b in 1 2 6; do
        ok gen -b $b
        assert_equal "$output" "$(<want)"
    done
    assert_equal "$(jq .shared_rows stats.json)" $((5 * 19))
}
