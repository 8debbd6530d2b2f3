# bmc-prof ranks: predicted step times on several hosts. Predicted bytes and calls are compared with those that ranks count.
load ../helper
load mpi

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

setup_file() {
    model grimm >/dev/null || return 1
}

# Rows, from few measurements.
expected() { # OPTION..
    ok bmc-prof ranks -t 1 -p 4 -n 2 -r 1 --warmup 0 --format json "$@"
}

@test "predicted bytes and calls of a step are within 5 % of those that two ranks count" {
    needs_mpi
    jq -nc 'range(4) | {ids: [5 + .]}' >in
    expected -m "$(model grimm)" -b 4 --ranks 2
    for parallelism in tensor pipeline; do
        rm -f stats
        mpirun -n 2 "$BMC_BIN/bmc-gen" --no-spec -q -m "$(model grimm)" -t 1 --jsonl -f in -b 4 -n 12 --ignore-eos --parallelism $parallelism --stats stats >/dev/null
        # Prompts of one token add a step. In a pipeline a step of the batch is two of its micro-batches.
        jq -e --argjson stats "$(cat stats)" --arg parallelism $parallelism '($stats.decode_tokens / 4 + 1) as $steps |
            .rows[] | select(.parallelism == $parallelism) | [.sent_bytes * $steps / $stats.sent_bytes, .sent_calls * $steps / $stats.sent_calls] |
            all(. > 0.95 and . < 1.05)' <<<"$output" || fail "$parallelism: $(cat stats) $output"
    done
}

@test "the network adds its latency per call and its time per byte" {
    tiny_shape tiny.shape
    expected --shape ./tiny.shape --ranks 2,3 --network 1Mb,1ms
    # Tensor: gathers of 64, 64, 96 and 64 floats in each of 2 layers, half from each rank; half of 300 logits; 136 bytes of commands.
    # 8 gathers, the logits request and its answer are 10 latencies. Pipeline: 64 floats and 300 logits, 2 latencies.
    jq -e '.rows | map({key: "\(.parallelism) \(.ranks)", value: .network_ms}) | from_entries | (keys | length) == 5 and
        (.["tensor 2"] - (10 + (1152 + 600 + 136) * 0.008) | fabs) < 1e-6 and
        (.["pipeline 2"] - (2 + (256 + 1200 + 136) * 0.008) | fabs) < 1e-6 and
        .["data 2"] == 0 and .["data 3"] == 0 and .["none 1"] == 0' <<<"$output" || fail "$output"
    jq -e '.rows | all((.step_ms - .compute_ms - .network_ms | fabs) < 1e-6 * .step_ms and .tok_s > 0)' <<<"$output"
    # Pipeline of two micro-batches: sending the last rank's logits takes longer than computing a round.
    expected --shape ./tiny.shape --ranks 2 --network 1Kb,0us -b 2
    jq -e '.rows[] | select(.parallelism == "pipeline") | .network_ms / (2 * 1200 * 8) | . > 0.999 and . < 1.001' <<<"$output" || fail "$output"
    # 256 and 2048 rows are cut into four slices; gathers of more than 64 KiB per rank (512 rows of 96 floats) take three latencies.
    expected --shape ./tiny.shape --ranks 2 --network 1Tb,1s -b 256,2048
    jq -e '[.rows[] | select(.parallelism == "tensor").network_ms / 1000 | round] == [8 * 4 + 2 * 16, 6 * 4 + 2 * 4 * 3 + 2 * 128]' <<<"$output" || fail "$output"
}

@test "an invalid network, and more than one policy, are one-line errors" {
    for network in 1 1Gb 1Gb, 1,2us 0Gb,2us 1Gb,us 1Gb,2us, 1gb,2us; do
        expect_error 2 "^bmc-prof: --network: \"$network\" is not RATE,LATENCY, as 100Gb,2us: bits per second \(Kb, Mb, Gb or Tb\), and ns, us, ms or s \(see bmc-prof --help\)$" bmc-prof ranks --network $network
    done
    expect_error 2 '^bmc-prof: --ranks: "1" is not a list of at most 16 whole numbers from 2 to 256, as 1,8,32' bmc-prof ranks --ranks 1
    expect_error 2 '^bmc-prof: --kv: ranks measures under one policy, "bmc,paged" names 2 \(see' bmc-prof ranks --kv bmc,paged
}
