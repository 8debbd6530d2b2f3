# Mixtures of experts on several ranks. Without Open MPI all tests are skipped.
load ../helper
load mpi

# Small models of five families, with 2 KV heads and widths that ranks cannot divide evenly.
synth() { # SHAPE TYPE
    sed -e 's/^layers .*/layers 3/; s/^hidden .*/hidden 72/; s/^heads .*/heads 4/; s/^kv_heads .*/kv_heads 2/' \
        -e 's/^head_dim .*/head_dim 20/; s/^ffn .*/ffn 56/; s/^expert_ffn .*/expert_ffn 40/; s/^shared_ffn .*/shared_ffn 56/' \
        -e 's/^vocab .*/vocab 300/; s/^experts .*/experts 10/; s/^experts_used .*/experts_used 3/; s/^eos .*/eos 1/' \
        "$ROOT/models.d/shapes/$1.shape" >a.shape
    bmc-convert --synth ./a.shape --type "$2" -o a.bmc
}

# Requests with prompts of 3, 140 and 9 tokens: the second one is gathered in several parts in models without experts.
requests() { jq -nc '(3, 140, 9) as $n | {id: $n, ids: [range($n) * 37 % 290 + 3], n: 8}' >in; }

@test "tensor parallelism within experts, and whole experts distributed, give the bits of one process" {
    needs_mpi
    requests
    types=(q4_0 f32 q8_0 bf16 q4_1) i=0
    for shape in qwen3-30b-a3b mixtral-8x7b olmoe-1b-7b qwen1.5-moe-a2.7b glm-4.5-air; do
        synth $shape ${types[i++]}
        bmc-gen -q -m a.bmc --jsonl --ignore-eos -np 3 -t 1 --stats of_one <in >one
        ok mpirun -n 2 "$BMC_BIN/bmc-gen" -q -m a.bmc --jsonl --ignore-eos -np 3 -t 1 --parallelism tensor -f in --stats two
        assert_equal "$shape $(jq -sc 'map([.id, .ids])' <<<"$output") $(jq -e .logits_hash two)" "$shape $(jq -sc 'map([.id, .ids])' one) $(jq -e .logits_hash of_one)"
        ok mpirun -n 2 "$BMC_BIN/bmc-gen" -q -m a.bmc --jsonl --ignore-eos -np 3 -t 1 --parallelism expert -f in --stats dealt
        assert_equal "$shape, dealt $(jq -sc 'map([.id, .ids])' <<<"$output") $(jq -e .logits_hash dealt)" "$shape, dealt $(jq -sc 'map([.id, .ids])' one) $(jq -e .logits_hash of_one)"
    done
    # 3 ranks need 3 KV heads; without a shared MLP, all columns of the sum are computed on each rank
    sed -i 's/^heads .*/heads 6/; s/^kv_heads .*/kv_heads 3/; /^shared/d' a.shape
    sed 's/^family .*/family qwen3-moe/; /^expert_first\|^router\|^rope_dim\|^leading/d' a.shape >b.shape
    bmc-convert --synth ./b.shape --type q8_0 -o b.bmc
    bmc-gen -q -m b.bmc --jsonl --ignore-eos -np 3 -t 1 --stats of_one <in >three
    ok mpirun --oversubscribe -n 3 "$BMC_BIN/bmc-gen" -q -m b.bmc --jsonl --ignore-eos -np 3 -t 1 --parallelism expert -f in --stats dealt
    assert_equal "$(jq -sc 'map([.id, .ids])' <<<"$output") $(jq -e .logits_hash dealt)" "$(jq -sc 'map([.id, .ids])' three) $(jq -e .logits_hash of_one)"
    ok mpirun -n 2 "$BMC_BIN/bmc-spec" -q -m a.bmc --recycle --always --jsonl --ignore-eos -np 3 -t 1 --parallelism tensor -f in
    assert_equal "$(jq -sc 'map(.ids)' <<<"$output")" "$(jq -sc 'map(.ids)' one)"
    # In each layer, attention heads (80 floats) and two sums (72); MLP of the first layer (56); of the others, 3 experts (40) and
    # the shared one (56). Half from each rank; rank 1 sends its logits, 140 of 300, and commands are short.
    ok mpirun -n 2 "$BMC_BIN/bmc-gen" -q -m a.bmc --prompt-ids "$(seq -s ' ' 3 60)" -n 60 --ignore-eos --ids -t 1 --stats two
    jq -e '(.prefill_tokens + .decode_tokens) * 4 * (3 * (80 + 72 + 72) + 56 + 2 * (120 + 56)) + (.decode_tokens + 1) * 4 * 140 |
        [., $two.sent_bytes - .] | .[1] >= 0 and .[1] < .[0] / 10' --argjson two "$(cat two)" two >/dev/null || fail "$(cat two)"
}

@test "bmc-prof ranks predicts expert parallelism: bytes and calls that two ranks count, and more time than sharded experts" {
    needs_mpi
    jq -nc 'range(4) | {ids: [5 + .]}' >in
    for shape in qwen3-30b-a3b qwen1.5-moe-a2.7b; do
        synth $shape q8_0
        ok "$BMC_BIN/bmc-prof" ranks -m a.bmc -b 4 --ranks 2,4 -t 1 -p 4 -n 2 -r 1 --warmup 0 --format json
        jq -e '[.rows[] | select(.parallelism == "expert") | .ranks] == [2]' <<<"$output" # 4 ranks need 4 KV heads
        jq -e '.rows | map(select(.ranks == 2)) | map({key: .parallelism, value: .compute_ms}) | from_entries | .expert > .tensor' <<<"$output"
        mpirun -n 2 "$BMC_BIN/bmc-gen" -q -m a.bmc -t 1 --jsonl -f in -b 4 -n 12 --ignore-eos --parallelism expert --stats stats >/dev/null
        jq -e --argjson stats "$(cat stats)" '($stats.decode_tokens / 4 + 1) as $steps | .rows[] | select(.parallelism == "expert") |
            [.sent_bytes * $steps / $stats.sent_bytes, .sent_calls * $steps / $stats.sent_calls] | all(. > 0.95 and . < 1.05)' \
            <<<"$output" || fail "$shape: $(cat stats) $output"
        rm stats
    done
}

@test "experts from disk: pipeline and data parallelism; tensor parallelism is refused" {
    needs_mpi
    requests
    synth qwen3-30b-a3b f32
    bmc-gen -q -m a.bmc --jsonl --ignore-eos -np 3 -t 1 --stats of_one <in >one
    for how in pipeline data; do
        ok mpirun -n 2 "$BMC_BIN/bmc-gen" -q -m a.bmc --jsonl --ignore-eos -np 3 -t 1 --parallelism $how -f in --experts ram=200K --stats two
        assert_equal "$how $(jq -sc 'map([.id, .ids])' <<<"$output") $(jq -e .logits_hash two)" "$how $(jq -sc 'map([.id, .ids])' one) $(jq -e .logits_hash of_one)"
        [ "$(jq .experts_read_bytes two)" -gt 0 ]
    done
    run_plain mpirun -n 2 "$BMC_BIN/bmc-gen" -q -m a.bmc --prompt-ids 5 -n 1 -t 1 --parallelism tensor --experts ram=200K
    [ "$status" -ne 0 ]
    [[ $stderr == *'--experts does not support tensor and expert parallelism: use --parallelism pipeline or data'* ]]
}
