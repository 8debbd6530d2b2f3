# Steps of many rows under --split tensor: what ranks gather of one piece comes while they compute another.
load helper

forgive_mpi

setup_file() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=false OMPI_MCA_btl_vader_single_copy_mechanism=none
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    export TMPDIR=$BATS_TEST_TMPDIR OMPI_MCA_btl_vader_backing_directory=$BATS_TEST_TMPDIR
}

@test "pieces of steps, gathers beside arithmetic, and those that fail" {
    run "$BMC_BUILD/tests/test_part"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

needs_mpi() {
    command -v mpirun >/dev/null || skip "no mpirun here: make deps-mpi installs Open MPI"
    [ -e "$BMC_BIN/../lib/bmc-mpi.so" ] || skip "no lib/bmc-mpi.so: make mpi builds it"
}

# RANKS FILE: ids of the requests; statistics in stats.RANKS.
generate() {
    local launch=(mpirun -n "$1")
    [ "$1" -gt 1 ] || launch=()
    ok "${launch[@]}" "$BMC_BIN/bmc-gen" -q -m model.bmc --jsonl -f "$2" -b 140 -n 3 --ignore-eos -t 1 --split tensor --stats "stats.$1"
}

# RANKS FILE: they give what one process gives.
same() {
    generate 1 "$2"
    wanted=$output
    generate "$1" "$2"
    assert_equal "$output" "$wanted"
    assert_equal "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' "stats.$1")" "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' stats.1)"
}

# 4 KV heads and 200 outputs do not divide by 3.
@test "long prompts in 3 ranks, a large batch in 2: logits of one process, bytes and calls as they are reckoned" {
    needs_mpi
    tiny_shape tiny.shape heads 8 kv_heads 4 hidden 192 ffn 200 context 512
    ok bmc-convert --synth ./tiny.shape --type q8 -o model.bmc
    jq -nc '{ids: [range(300) | 5 + . * 7 % 290]}, {ids: [range(150) | 5 + . * 11 % 290]}' >prompts
    jq -nc 'range(140) | {ids: [5 + .]}' >batch
    same 3 prompts
    same 2 batch
    ok "$BMC_BIN/bmc-prof" ranks -m model.bmc -t 1 -p 4 -n 2 -r 1 --warmup 0 -b 140 --ranks 2 --format json
    # Prompts of one token are one more step.
    jq -e --argjson stats "$(cat stats.2)" '($stats.decode_tokens / 140 + 1) as $steps | .rows[] | select(.split == "tensor") |
        [.sent_bytes * $steps / $stats.sent_bytes, .sent_calls * $steps / $stats.sent_calls] |
        all(. > 0.95 and . < 1.05)' <<<"$output" || fail "$(cat stats.2) $output"
}
