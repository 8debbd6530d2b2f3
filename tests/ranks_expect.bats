# bmc-prof ranks: the step to be expected of several hosts. Bytes and calls are held against those that ranks count.
load helper

forgive_mpi

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

setup_file() {
    model grimm >/dev/null || return 1
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=false OMPI_MCA_btl_vader_single_copy_mechanism=none
}

# Rows of few measurements.
expected() { # OPTION..
    ok bmc-prof ranks -t 1 -p 4 -n 2 -r 1 --warmup 0 --format json "$@"
}

@test "a step's bytes and calls are those that two ranks count, within 5 %" {
    command -v mpirun >/dev/null || skip "no mpirun here: make deps-mpi installs Open MPI"
    [ -e "$BMC_BIN/../lib/bmc-mpi.so" ] || skip "no lib/bmc-mpi.so: make mpi builds it"
    jq -nc 'range(4) | {ids: [5 + .]}' >in
    expected -m "$(model grimm)" -b 4 --ranks 2
    for split in tensor layers; do
        rm -f stats
        OMPI_MCA_btl_vader_backing_directory=$BATS_TEST_TMPDIR TMPDIR=$BATS_TEST_TMPDIR \
            mpirun -n 2 "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -t 1 --jsonl -f in -b 4 -n 12 --ignore-eos --split $split --stats stats >/dev/null
        # Prompts of one token are one more step. By layers two groups take turns: a step of all is two of theirs.
        jq -e --argjson stats "$(cat stats)" --arg split $split '($stats.decode_tokens / 4 + 1) as $steps |
            .rows[] | select(.split == $split) | [.sent_bytes * $steps / $stats.sent_bytes, .sent_calls * $steps / $stats.sent_calls] |
            all(. > 0.95 and . < 1.05)' <<<"$output" || fail "$split: $(cat stats) $output"
    done
}

@test "what the network adds is latencies and bytes" {
    tiny_shape tiny.shape
    expected --shape ./tiny.shape --ranks 2,3 --network 1Mb,1ms
    # Gathers of 64, 64, 96 and 64 floats in each of 2 layers, half of each from each rank; half of 300 logits; 136 bytes of orders.
    # 8 gathers, the question for logits and their way are 10 latencies. By layers: 64 floats and 300 logits, 2 latencies.
    jq -e '.rows | map({key: "\(.split) \(.ranks)", value: .network_ms}) | from_entries | (keys | length) == 5 and
        (.["tensor 2"] - (10 + (1152 + 600 + 136) * 0.008) | fabs) < 1e-6 and
        (.["layers 2"] - (2 + (256 + 1200 + 136) * 0.008) | fabs) < 1e-6 and
        .["requests 2"] == 0 and .["requests 3"] == 0 and .["none 1"] == 0' <<<"$output" || fail "$output"
    jq -e '.rows | all((.step_ms - .compute_ms - .network_ms | fabs) < 1e-6 * .step_ms and .tok_s > 0)' <<<"$output"
    # Two groups by layers, which the last rank has to send logits of: its network is busy for longer than a round takes.
    expected --shape ./tiny.shape --ranks 2 --network 1Kb,0us -b 2
    jq -e '.rows[] | select(.split == "layers") | .network_ms / (2 * 1200 * 8) | . > 0.999 and . < 1.001' <<<"$output" || fail "$output"
    # 256 and 2048 rows go in four pieces; gathers of more than 64 KiB from a rank, those of 512 rows of 96 floats, take three latencies.
    expected --shape ./tiny.shape --ranks 2 --network 1Tb,1s -b 256,2048
    jq -e '[.rows[] | select(.split == "tensor").network_ms / 1000 | round] == [8 * 4 + 2 * 16, 6 * 4 + 2 * 4 * 3 + 2 * 128]' <<<"$output" || fail "$output"
}

@test "what is no network, and more than one policy, are one sentence" {
    for network in 1 1Gb 1Gb, 1,2us 0Gb,2us 1Gb,us 1Gb,2us, 1gb,2us; do
        expect_error 2 "^bmc-prof: --network: \"$network\" is no rate and latency, as 100Gb,2us: bits a second \(Kb, Mb, Gb or Tb\), and ns, us, ms or s \(see bmc-prof --help\)$" bmc-prof ranks --network $network
    done
    expect_error 2 '^bmc-prof: --ranks: "1" is no list of at most 16 whole numbers from 2 to 256, as 1,8,32' bmc-prof ranks --ranks 1
    expect_error 2 '^bmc-prof: --kv: ranks measures under one policy, "bmc,paged" names 2 \(see' bmc-prof ranks --kv bmc,paged
}
