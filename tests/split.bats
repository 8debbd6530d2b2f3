# --split tensor: ranks that have parts of one model. Where Open MPI is not installed, all but the first are skipped.
load helper

setup_file() {
    model grimm >/dev/null && model grimm-draft >/dev/null || return 1
    # As root, on few cores, and without what containers forbid.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=false OMPI_MCA_btl_vader_single_copy_mechanism=none
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    export TMPDIR=$BATS_TEST_TMPDIR OMPI_MCA_btl_vader_backing_directory=$BATS_TEST_TMPDIR
}

needs_mpi() {
    command -v mpirun >/dev/null || skip "no mpirun here: make deps-mpi installs Open MPI"
    [ -e "$BMC_BIN/../lib/bmc-mpi.so" ] || skip "no lib/bmc-mpi.so: make mpi builds it"
}

@test "2, 3 and 4 ranks give the logits of one process: families, types, policies, chains and trees, forks and cuts" {
    run "$BMC_BUILD/tests/test_split"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 250 ]
}

# PROGRAM OPTION..: two ranks print what one process prints, of the same logits.
same() {
    ok bmc-"$1" -q -t 1 --stats one "${@:2}"
    wanted=$output
    ok mpirun -n 2 "$BMC_BIN/bmc-$1" -q -t 1 --stats two --split tensor "${@:2}"
    assert_equal "$output" "$wanted"
    assert_equal "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' two)" "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' one)"
}

@test "two ranks print what one process prints" {
    needs_mpi
    same gen -p "Once upon a time" -n 12 --kv-type q8
    # Of each of 8 layers the four activations of 256 + 256 + 704 + 256 floats, a half from each rank; of logits rank 1's half of
    # 4096 floats; orders and counts are short.
    jq -e '(.prefill_tokens + .decode_tokens) * 47104 + (.decode_tokens + 1) * 8192 | [., $two.sent_bytes - .] |
        .[1] >= 0 and .[1] < .[0] / 20' --argjson two "$(cat two)" two >/dev/null
    jq -e '.ranks == 2 and .split == "tensor" and .sent_calls > 0 and .rank_peak_bytes > 0' two >/dev/null
    same spec -p "Once upon a time" -n 12 --tree 8 --kv paged
    printf '{"prompt": "Once upon a time %s"}\n' 1 22 there 4 >in
    same gen --jsonl -f in -b 2 -n 6 --beams 2 --kv segment
    [ "$BMC_FULL" != 1 ] || same gen --score -p "Once upon a time there was a king"
}

@test "what a split model cannot do is one sentence" {
    needs_mpi
    refused() { # RANKS PATTERN OPTION..
        run_plain mpirun -n "$1" "$BMC_BIN/bmc-gen" -q -t 1 -n 2 -p x "${@:3}"
        assert_equal "$status|$output" "1|"
        [[ $(grep '^bmc-gen: ' <<<"$stderr") =~ ^bmc-gen:\ $2$ ]] || fail "$stderr"
    }
    refused 3 '.*: has 2 KV heads, of which 3 ranks cannot have one each; start 2 at most'
    refused 2 '--save-kv needs all of a model in one process: run it without --split' --save-kv out
    assert_folder
}

@test "a rank that is killed ends the run, and what was generated is there" {
    needs_mpi
    mpirun -n 2 "$BMC_BIN/bmc-gen" -q -t 1 -p "Once upon a time" --ignore-eos -n 900 >out 2>err </dev/null &
    pid=$!
    begun() { [ -s out ]; }
    wait_until begun
    follower=$(for guard in $(pgrep -P $pid -x bmc-guard); do pgrep -P "$guard"; done | tail -n 1)
    kill -KILL "$follower"
    SECONDS=0
    status=0
    wait $pid || status=$?
    [ "$SECONDS" -lt 10 ]
    assert_equal "$status" 1
    grep -q '^bmc-gen: rank 1 on .* was ended by signal 9' err
    [ -s out ]
}
