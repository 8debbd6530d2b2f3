# Model parallelism over ranks: --parallelism tensor and pipeline. Without Open MPI all tests but the first are skipped.
load ../helper
load mpi

setup_file() {
    model grimm >/dev/null && model grimm-draft >/dev/null || return 1
}

@test "2, 3 and 4 ranks give the logits of one process: families, types, policies, chains and trees, forks and truncation" {
    run "$BMC_BUILD/tests/test_model_parallel"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 250 ]
}

# "PARALLELISM OPTIONS" PROGRAM OPTION..: two ranks print what one process prints, from the same logits.
same() {
    ok bmc-"$2" -q -t 1 --stats one "${@:3}"
    wanted=$output
    # shellcheck disable=SC2086
    ok mpirun -n 2 "$BMC_BIN/bmc-$2" -q -t 1 --stats two --parallelism $1 "${@:3}"
    assert_equal "$output" "$wanted"
    assert_equal "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' two)" "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' one)"
}

requests() { printf '{"prompt": "Once upon a time %s"}\n' 1 22 there 4 >in; }

@test "tensor parallelism on two ranks prints what one process prints" {
    needs_mpi
    same tensor gen -p "Once upon a time" -n 12 --cache-type q8
    # 8 layers gather activations of 256 + 256 + 704 + 256 floats, half from each rank; rank 1 sends half of the 4096 logits;
    # commands and statistics are short.
    jq -e '(.prefill_tokens + .decode_tokens) * 47104 + (.decode_tokens + 1) * 8192 | [., $two.sent_bytes - .] |
        .[1] >= 0 and .[1] < .[0] / 20' --argjson two "$(cat two)" two >/dev/null
    jq -e '.ranks == 2 and .parallelism == "tensor" and .sent_calls > 0 and .rank_peak_bytes > 0' two >/dev/null
    same tensor spec -p "Once upon a time" -n 12 --tree 8 --kv paged
    requests
    same tensor gen --jsonl -f in -b 2 -n 6 --beams 2 --kv segment
    [ "$BMC_FULL" != 1 ] || same tensor gen --score -p "Once upon a time there was a king"
}

@test "pipeline parallelism on two ranks prints what one process prints, with one or two micro-batches in flight" {
    needs_mpi
    requests
    same "layers --layers 3,5" gen --no-spec --jsonl -f in -b 3 -n 9 --temp 0.8
    # 256 floats for each token, 4096 logits for each sampled one; commands are short.
    jq -e '(.prefill_tokens + .decode_tokens) * 1024 + .sampled_tokens * 16384 | [., $two.sent_bytes - .] |
        .[1] >= 0 and .[1] < .[0] / 20' --argjson two "$(cat two)" two >/dev/null
    [ "$(jq .decode_steps two)" -gt "$(jq .decode_steps one)" ]
    same "layers --micro-batches 1" gen --no-spec --jsonl -f in -b 3 -n 5
    [ "$(jq .decode_steps two)" -eq "$(jq .decode_steps one)" ]
    [ "$BMC_FULL" != 1 ] || same layers spec -p "Once upon a time" -n 12
}

@test "a language model reranks on ranks as in one process" {
    needs_mpi
    bmc-convert -q "$FIXTURES/rerankers/qwen3" -o qwen3.bmc
    printf '%s\n' '{"query": "x", "documents": ["one", "two, longer"]}' '{"query": "y", "documents": ["three"]}' >in
    for parallelism in tensor pipeline; do
        same $parallelism gen -m qwen3.bmc --rerank -f in -np 2
    done
}

@test "unsupported options under model parallelism are one-line errors" {
    needs_mpi
    refused() { # RANKS PATTERN OPTION..
        run_plain mpirun -n "$1" "$BMC_BIN/bmc-gen" -q -t 1 -n 2 -p x "${@:3}"
        assert_equal "$status|$output" "1|"
        [[ $(grep '^bmc-gen: ' <<<"$stderr") =~ ^bmc-gen:\ $2$ ]] || fail "$stderr"
    }
    refused 3 '.*: 2 KV heads cannot be split over 3 ranks; start at most 2'
    refused 2 '--layers "2,3,3": a number of layers for each of the 2 ranks is expected, as 10,12' --parallelism pipeline --layers 2,3,3
    [ "$BMC_FULL" != 1 ] || refused 2 '.*: has 8 layers, at least one per rank; 7 are assigned' --parallelism pipeline --layers 2,5
    refused 2 '--save-kv needs the whole model in one process: run without mpirun and --parallelism' --save-kv out
    assert_folder
    expect_error 2 'layers goes with --parallelism pipeline' bmc-gen -p x --layers 4,4
    expect_error 2 'micro-batches goes with --parallelism pipeline' bmc-gen -p x --parallelism tensor --micro-batches 2
}

@test "a killed rank ends the run; text generated before is printed" {
    needs_mpi
    mpirun -n 2 "$BMC_BIN/bmc-gen" -q -t 1 -p "Once upon a time" --ignore-eos -n 900 >out 2>err </dev/null &
    pid=$!
    begun() { [ -s out ]; }
    wait_until begun
    follower=$(pgrep -P $pid -x bmc-gen | tail -n 1)
    kill -KILL "$follower"
    SECONDS=0
    status=0
    wait $pid || status=$?
    [ "$SECONDS" -lt 60 ]
    assert_equal "$status" 137
    grep -q 'process rank 1 .* exited on signal 9 (Killed)' err
    [ -s out ]
}
