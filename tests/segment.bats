# Cache policy `segment`: what sequences have in common lies once.
load helper

setup_file() { model grimm >/dev/null; }

@test "sequences that fork, are cut and go on, at random, under every policy; the memory of shared prompts" {
    run "$BMC_BUILD/tests/test_segment"
    [ "$status" -eq 0 ] || fail "test_segment -> $output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

@test "16 rows at a time, or as many as step= or T= says; snapshots keep the number" {
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
        expect_error 2 "cache policy \"$bad\": step=ROWS, r=ROWS, the same, or T=COUNT" bmc-gen -p x --kv $bad
    done
}
