# What caches take: bmc-prof memory against the papers' figures and against runs, and bmc-gen --memory.
load helper

setup_file() {
    model grimm >/dev/null
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
}

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

# bytes FILE POLICY: what memory says of it.
bytes() { jq -r --arg policy "$2" '.rows[] | select(.policy == $policy).kv_bytes' "$1"; }

@test "bmc-prof memory: the equations give the papers' figures" {
    bmc-prof memory --shape llama-2-7b -p 1 -n 1 -N 2048 --kv-type f16 --kv upfront --megabytes 1 --format json >window
    assert_equal "$(bytes window '2(N-1) rows')" 2146435072
    assert_equal "$(bytes window '1.5(N-1) rows')" 1609826304
    # 28 layers of GPT-J; the paper's 137 and 86 GB are those of 32.
    bmc-prof memory --shape gpt-j-6b -b 32 -p 1024 -n 1024 --beams 4 --kv-type f16 --kv segment --megabytes 1 --format json >gptj
    assert_equal "$(bytes gptj 'standard (eq. 2)')" $((32 * 4 * 2048 * 2 * 28 * 4096 * 2))
    assert_equal "$(bytes gptj 'segment (eq. 3)')" $((32 * 5 * 1024 * 2 * 28 * 4096 * 2))
    assert_equal "$(jq '.rows[1].over_standard' gptj)" 0.625
    assert_equal "$(bytes gptj segment)" "$(bytes gptj 'segment (eq. 3)')"
}

@test "bmc-prof memory: every policy holds what its arithmetic says, and the number that fits is the largest" {
    bmc-prof memory -p 100 -n 37 --beams 1,3 -b 2 --memory 20M --format json >all
    run jq -e '[.rows[] | select(.run_bytes)] | length >= 12 and all(.run_over == 1 and .run_layers == .layers and .run_batch == 2)' all
    assert_success
    run jq -e '.rows | all(.fits * .kv_bytes / .batch <= 20971520 and (.fits + 2) * .kv_bytes / .batch > 20971520)' all
    assert_success
    bmc-prof memory -p 3 -n 0 -b 7 --kv bmc --format csv >csv
    assert_equal "$(wc -l <csv)" 6
}
