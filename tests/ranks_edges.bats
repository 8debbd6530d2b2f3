# Ranks in cases that are not the usual ones. Where Open MPI is not installed, tests are skipped.
load helper

forgive_mpi

setup_file() {
    model grimm >/dev/null || return 1
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=false OMPI_MCA_btl_vader_single_copy_mechanism=none
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export TMPDIR=$BATS_TEST_TMPDIR OMPI_MCA_btl_vader_backing_directory=$BATS_TEST_TMPDIR
    command -v mpirun >/dev/null || skip "no mpirun here: make deps-mpi installs Open MPI"
    [ -e "$BMC_BIN/../lib/bmc-mpi.so" ] || skip "no lib/bmc-mpi.so: make mpi builds it"
}

@test "texts that begin anew while steps are on their way are those of one process" {
    printf '{"prompt": "Once upon a time %s"}\n' 1 22 there >in
    again=(-q -t 1 --jsonl -f in -b 3 -c 16 -n 24 --ignore-eos --kv shift --shift recompute --keep 2)
    ok bmc-gen "${again[@]}"
    wanted=$output
    ok mpirun -n 2 "$BMC_BIN/bmc-gen" --split layers "${again[@]}"
    assert_equal "$output" "$wanted"
}

@test "a rank ends where its launcher ignores the ends of children" {
    # shellcheck disable=SC2016
    ok timeout -s KILL 8 mpirun -n 1 perl -e '$SIG{CHLD} = "IGNORE"; exec @ARGV' \
        "$BMC_BIN/bmc-gen" -q --split tensor -t 1 -p Once -n 2
    assert_equal "$output" "$(bmc-gen -q -t 1 -p Once -n 2)"
}
