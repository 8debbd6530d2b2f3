# Shared by the tests of ranks: mpirun as root, on few cores (ranks that wait yield theirs) and in containers, with its
# temporary files in $TMPDIR.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=false OMPI_MCA_btl_vader_single_copy_mechanism=none \
    OMPI_MCA_mpi_yield_when_idle=1

forgive_mpi

needs_mpi() {
    command -v mpirun >/dev/null || skip "no mpirun here: make deps-mpi installs Open MPI"
    [ -e "$BMC_BIN/../lib/bmc-mpi.so" ] || skip "no lib/bmc-mpi.so: make mpi builds it"
}

# An empty folder, and one for temporary files.
setup() {
    mkdir "$BATS_TEST_TMPDIR/here" "$BATS_TEST_TMPDIR/tmp" && cd "$BATS_TEST_TMPDIR/here" || return 1
    export TMPDIR=$BATS_TEST_TMPDIR/tmp OMPI_MCA_btl_vader_backing_directory=$BATS_TEST_TMPDIR/tmp
}

# predicted_bytes MODEL PARALLELISM..: two ranks send the bytes that bmc-prof predicts, within 5 %.
predicted_bytes() {
    local parallelism
    jq -nc 'range(4) | {ids: [5 + .]}' >in
    ok "$BMC_BIN/bmc-prof" ranks -m "$1.bmc" -b 4 --ranks 2 -t 1 -p 4 -n 2 -r 1 --warmup 0 --format json
    for parallelism in "${@:2}"; do
        rm -f stats
        mpirun -n 2 "$BMC_BIN/bmc-gen" --no-spec -q -m "$1.bmc" -t 1 --jsonl -f in -b 4 -n 12 --ignore-eos --parallelism "$parallelism" --stats stats >/dev/null
        jq -e --argjson stats "$(cat stats)" --arg parallelism "$parallelism" '($stats.decode_tokens / 4 + 1) as $steps |
            .rows[] | select(.parallelism == $parallelism) | .sent_bytes * $steps / $stats.sent_bytes | . > 0.95 and . < 1.05' \
            <<<"$output" || fail "$1 $parallelism: $(cat stats) $output"
    done
}
