# Tensor parallelism with many rows per step: all-gathers of one slice overlap with the computation of the next.
load ../helper
load mpi

@test "slices of steps, overlapped gathers, and gathers that fail" {
    run "$BMC_BUILD/tests/test_shard"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

# RANKS FILE: prints the ids of the requests; statistics go to stats.RANKS.
generate() {
    local launch=(mpirun -n "$1")
    [ "$1" -gt 1 ] || launch=()
    ok "${launch[@]}" "$BMC_BIN/bmc-gen" -q -m model.bmc --jsonl -f "$2" -b 140 -n 6 --ignore-eos -t 1 --parallelism tensor --stats "stats.$1"
}

# RANKS FILE: results equal those of one process.
same() {
    generate 1 "$2"
    wanted=$output
    generate "$1" "$2"
    assert_equal "$output" "$wanted"
    assert_equal "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' "stats.$1")" "$(jq -c '[.logits_hash, .sequences, .decode_tokens]' stats.1)"
}

# 4 KV heads and 200 outputs are no multiples of 3.
@test "long prompts on 3 ranks, a large batch on 2: logits of one process, bytes and calls as bmc-prof ranks predicts" {
    needs_mpi
    tiny_shape tiny.shape heads 8 kv_heads 4 hidden 192 ffn 200 context 512
    ok bmc-convert --synth ./tiny.shape --type q8_0 -o model.bmc
    jq -nc '{ids: [range(300) | 5 + . * 7 % 290]}, {ids: [range(150) | 5 + . * 11 % 290]}' >prompts
    jq -nc 'range(140) | {ids: [5 + .]}' >batch
    same 3 prompts
    same 2 batch
    ok "$BMC_BIN/bmc-prof" ranks -m model.bmc -t 1 -p 4 -n 2 -r 1 --warmup 0 -b 140 --ranks 2 --format json
    # Prompts of one token add a step.
    jq -e --argjson stats "$(cat stats.2)" '($stats.decode_tokens / 140 + 1) as $steps | .rows[] | select(.parallelism == "tensor") |
        [.sent_bytes * $steps / $stats.sent_bytes, .sent_calls * $steps / $stats.sent_calls] |
        all(. > 0.95 and . < 1.05)' <<<"$output" || fail "$(cat stats.2) $output"
}
