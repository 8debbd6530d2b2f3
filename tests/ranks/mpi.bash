# Shared by the tests of ranks: mpirun as root, on few cores and in containers, with its temporary files in $TMPDIR.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=false OMPI_MCA_btl_vader_single_copy_mechanism=none

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
