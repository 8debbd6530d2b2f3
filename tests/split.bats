# Ranks that have parts of one model: --split tensor and --split layers. Where Open MPI is not installed, all but the first are skipped.
load helper

forgive_mpi

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

# "OPTIONS OF THE SPLIT" PROGRAM OPTION..: two ranks print what one process prints, of the same logits.
same() {
    ok bmc-"$2" -q -t 1 --stats one "${@:3}"
    wanted=$output
    # shellcheck disable=SC2086
    ok mpirun -n 2 "$BMC_BIN/bmc-$2" -q -t 1 --stats two --split $1 "${@:3}"
    assert_equal "$output" "$wanted"
    assert_equal "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' two)" "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' one)"
}

requests() { printf '{"prompt": "Once upon a time %s"}\n' 1 22 there 4 >in; }

@test "two ranks with half of every matrix print what one process prints" {
    needs_mpi
    same tensor gen -p "Once upon a time" -n 12 --kv-type q8
    # Of each of 8 layers the four activations of 256 + 256 + 704 + 256 floats, a half from each rank; of logits rank 1's half of
    # 4096 floats; orders and counts are short.
    jq -e '(.prefill_tokens + .decode_tokens) * 47104 + (.decode_tokens + 1) * 8192 | [., $two.sent_bytes - .] |
        .[1] >= 0 and .[1] < .[0] / 20' --argjson two "$(cat two)" two >/dev/null
    jq -e '.ranks == 2 and .split == "tensor" and .sent_calls > 0 and .rank_peak_bytes > 0' two >/dev/null
    same tensor spec -p "Once upon a time" -n 12 --tree 8 --kv paged
    requests
    same tensor gen --jsonl -f in -b 2 -n 6 --beams 2 --kv segment
    [ "$BMC_FULL" != 1 ] || same tensor gen --score -p "Once upon a time there was a king"
}

@test "two ranks with some layers each print what one process prints, one group of sequences after the other, or two at a time" {
    needs_mpi
    requests
    same "layers --layers 3,5" gen --jsonl -f in -b 3 -n 9 --temp 0.8
    # A row of 256 floats for each token, logits of 4096 for each that is sampled; orders are short.
    jq -e '(.prefill_tokens + .decode_tokens) * 1024 + .sampled_tokens * 16384 | [., $two.sent_bytes - .] |
        .[1] >= 0 and .[1] < .[0] / 20' --argjson two "$(cat two)" two >/dev/null
    [ "$(jq .decode_steps two)" -gt "$(jq .decode_steps one)" ]
    same "layers --in-flight 1" gen --jsonl -f in -b 3 -n 5
    [ "$(jq .decode_steps two)" -eq "$(jq .decode_steps one)" ]
    [ "$BMC_FULL" != 1 ] || same layers spec -p "Once upon a time" -n 12
}

@test "what a split model cannot do is one sentence" {
    needs_mpi
    refused() { # RANKS PATTERN OPTION..
        run_plain mpirun -n "$1" "$BMC_BIN/bmc-gen" -q -t 1 -n 2 -p x "${@:3}"
        assert_equal "$status|$output" "1|"
        [[ $(grep '^bmc-gen: ' <<<"$stderr") =~ ^bmc-gen:\ $2$ ]] || fail "$stderr"
    }
    refused 3 '.*: has 2 KV heads, of which 3 ranks cannot have one each; start 2 at most'
    refused 2 '--layers "2,3,3": a number of layers for each of the 2 ranks is expected, as 10,12' --split layers --layers 2,3,3
    [ "$BMC_FULL" != 1 ] || refused 2 '.*: has 8 layers, one at least for each rank; 7 are shared out' --split layers --layers 2,5
    refused 2 '--save-kv needs all of a model in one process: run it without mpirun and --split' --save-kv out
    assert_folder
    expect_error 2 'layers goes with --split layers' bmc-gen -p x --layers 4,4
    expect_error 2 'in-flight goes with --split layers' bmc-gen -p x --split tensor --in-flight 2
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
