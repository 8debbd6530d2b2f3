# Limits of caches under model parallelism. Without Open MPI the test is skipped.
load ../helper
load mpi

# ranks OPTION..: two processes.
ranks() { mpirun -n 2 "$BMC_BIN/bmc-gen" -q -t 1 --ignore-eos "$@" </dev/null; }

@test "under model parallelism the largest shard decides what ram= holds, and the windows of all layers the length of a step" {
    needs_mpi
    # The window of the first three layers allows steps of 14 rows, that of the last one, which is the cache's, of one row.
    printf 'family llama\nlayers 4\nhidden 64\nheads 4\nkv_heads 2\nffn 96\nvocab 300\ncontext 128\nnorm_eps 1e-5\neos 0\nwindow 20\nwindow_every 4\n' >four.shape
    ok bmc-convert --synth ./four.shape -o four.bmc
    jq -nc '90, 60, 80 | {id: ., ids: [range(100; 100 + .)], n: 2}' >in
    bmc-gen -q -m four.bmc -t 1 --jsonl -b 3 --ignore-eos -f in | jq -c '[.id, .ids]' >want
    ranks -m four.bmc --jsonl -b 3 -f in --chunk 40 --kv headwise:ram=160K,group=1 --parallelism pipeline --layers 1,3 | jq -c '[.id, .ids]' >got
    equal_files want got
    window=(-m four.bmc --prompt-ids "$(seq -s ' ' 20 49)" -n 9 --ids --kv shift:S=33,slack=0)
    wanted=$(bmc-gen -q -t 1 --ignore-eos "${window[@]}")
    ok ranks "${window[@]}" --parallelism pipeline
    assert_output "$wanted"
}
