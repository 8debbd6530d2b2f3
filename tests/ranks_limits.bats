# Limits of caches that are parts of one model's. Where Open MPI is not installed, the test is skipped.
load helper

forgive_mpi

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    command -v mpirun >/dev/null || skip "no mpirun here: make deps-mpi installs Open MPI"
    [ -e "$BMC_BIN/../lib/bmc-mpi.so" ] || skip "no lib/bmc-mpi.so: make mpi builds it"
}

# ranks OPTION..: two processes.
ranks() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
        OMPI_MCA_plm_rsh_agent=false OMPI_MCA_btl_vader_single_copy_mechanism=none TMPDIR=$BATS_TEST_TMPDIR \
        OMPI_MCA_btl_vader_backing_directory=$BATS_TEST_TMPDIR mpirun -n 2 "$BMC_BIN/bmc-gen" -q -t 1 --ignore-eos "$@" </dev/null
}

@test "of a model that is split the largest part's cache decides what ram= holds, and every layer's window how long a step is" {
    # The first three layers' window leaves room for steps of 14 rows, that of the last, which is the cache's, for one.
    printf 'family llama\nlayers 4\nhidden 64\nheads 4\nkv_heads 2\nffn 96\nvocab 300\ncontext 128\nnorm_eps 1e-5\neos 0\nwindow 20\nwindow_every 4\n' >four.shape
    ok bmc-convert --synth ./four.shape -o four.bmc
    jq -nc '90, 60, 80 | {id: ., ids: [range(100; 100 + .)], n: 2}' >in
    bmc-gen -q -m four.bmc -t 1 --jsonl -b 3 --ignore-eos -f in | jq -c '[.id, .ids]' >want
    ranks -m four.bmc --jsonl -b 3 -f in --chunk 40 --kv headwise:ram=160K,group=1 --split layers --layers 1,3 | jq -c '[.id, .ids]' >got
    equal_files want got
    window=(-m four.bmc --prompt-ids "$(seq -s ' ' 20 49)" -n 9 --ids --kv shift:S=33,slack=0)
    wanted=$(bmc-gen -q -t 1 --ignore-eos "${window[@]}")
    ok ranks "${window[@]}" --split layers
    assert_output "$wanted"
}
