# Corner cases of ranks. Without Open MPI the tests are skipped.
load ../helper
load mpi

setup_file() {
    model grimm >/dev/null || return 1
}

@test "context recomputation while micro-batches are in flight gives the text of one process" {
    needs_mpi
    printf '{"prompt": "Once upon a time %s"}\n' 1 22 there >in
    again=(-q -t 1 --jsonl -f in -b 3 -c 16 -n 24 --ignore-eos --kv shift --context-shift recompute --keep 2)
    ok bmc-gen "${again[@]}"
    wanted=$output
    ok mpirun -n 2 "$BMC_BIN/bmc-gen" --parallelism pipeline "${again[@]}"
    assert_equal "$output" "$wanted"
}

@test "a rank ends even if its launcher ignores SIGCHLD" {
    needs_mpi
    # shellcheck disable=SC2016
    ok timeout -s KILL 8 mpirun -n 1 perl -e '$SIG{CHLD} = "IGNORE"; exec @ARGV' \
        "$BMC_BIN/bmc-gen" -q --parallelism tensor -t 1 -p Once -n 2
    assert_equal "$output" "$(bmc-gen -q -t 1 -p Once -n 2)"
}

@test "a model that must be converted is so by the first rank, for all ranks" {
    needs_mpi
    export XDG_CACHE_HOME=$PWD/cache
    ln -s "$(folder grimm)" king
    expected=$("$BMC_BIN/bmc-gen" -q -t 1 -m "$(model grimm)" -p Once -n 3)
    for parallelism in tensor pipeline; do
        run_plain mpirun -n 2 "$BMC_BIN/bmc-gen" -q -t 1 -m king --parallelism $parallelism -p Once -n 3
        assert_equal "$status $output" "0 $expected"
        [[ $stderr =~ ^bmc-gen:\ king:\ was\ converted[^$'\n']*$ ]] || fail "$stderr"
        assert_equal "$(ls cache/bmc | sed 's/[0-9a-f]*\.bmc$//')" $'king-\nlock'
        rm -r cache
    done
}
