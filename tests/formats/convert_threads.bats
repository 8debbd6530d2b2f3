# Writing model files: blocks are packed and hashed while previous ones are written, on several threads.
load ../helper

setup_file() {
    tiny_shape "$BATS_FILE_TMPDIR/wide.shape" hidden 512 ffn 1024 vocab 4096
    bmc-convert --synth "$BATS_FILE_TMPDIR/wide.shape" -o "$BATS_FILE_TMPDIR/wide.bmc" -t 1
}

@test "the number of threads and a non-seekable output do not change the file" {
    [ "$(stat -c %s "$BATS_FILE_TMPDIR/wide.bmc")" -gt $((8 << 20)) ] # some blocks
    for threads in 2 3; do
        ok bmc-convert --synth "$BATS_FILE_TMPDIR/wide.shape" -o wide.bmc -t $threads
        equal_files wide.bmc "$BATS_FILE_TMPDIR/wide.bmc"
    done
    bmc-convert --synth "$BATS_FILE_TMPDIR/wide.shape" -t 2 -o - | cat >piped.bmc
    equal_files piped.bmc "$BATS_FILE_TMPDIR/wide.bmc"
    ok bmc-convert --verify wide.bmc
}

@test "a closed pipe ends the program by SIGPIPE, whichever thread writes" {
    for i in 1 2 3 4; do
        {
            status=0
            bmc-convert --synth "$BATS_FILE_TMPDIR/wide.shape" -t 2 -o - 2>err || status=$?
            echo $status >status
        } | head -c 1 >/dev/null
        assert_equal "$(<status)" 141
        [ ! -s err ]
    done
}
