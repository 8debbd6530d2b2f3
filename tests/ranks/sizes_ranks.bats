# Layers that differ (KV heads of two sizes, shared keys and values, inputs of their own, experts beside an MLP) on several
# ranks. Without Open MPI all tests are skipped.
load ../helper
load mpi

# Requests with prompts of 3, 110, 9 and 40 tokens, all with the same beginning.
requests() { jq -nc '(3, 110, 9, 40) as $n | {id: $n, ids: [range($n) * 37 % 60 + 3], n: 7}' >in; }

# same MODEL RANKS "PARALLELISM OPTIONS" PROGRAM OPTION..: ranks print the ids and logits of one process.
same() {
    bmc-"$4" -q -m "$1.bmc" --jsonl --ignore-eos -t 1 --stats of_one "${@:5}" <in >one
    rm -f of_all
    # shellcheck disable=SC2086 # options
    ok mpirun -n "$2" "$BMC_BIN/bmc-$4" -q -m "$1.bmc" --jsonl --ignore-eos -t 1 --parallelism $3 --stats of_all -f in "${@:5}"
    assert_equal "$1 $2 $3 $(jq -sc 'map([.id, .ids])' <<<"$output") $(jq -e .logits_hash of_all)" \
        "$1 $2 $3 $(jq -sc 'map([.id, .ids])' one) $(jq -e .logits_hash of_one)"
}

# Models with random weights: KV heads of 2 x 12 and 4 x 20, and layers from number 4 on that attend to others.
shape() { # LINE..
    printf '%s\n' 'family gemma4' 'layers 7' 'hidden 72' 'heads 8' 'kv_heads 4' 'head_dim 20' 'full_head_dim 12' 'full_kv_heads 2' \
        'ffn 56' 'vocab 300' 'context 256' 'window 17' 'layer_types sliding*2 full sliding*2 full sliding' "$@" >a.shape
}

@test "pipelines of layers that differ give the bits of one process" {
    needs_mpi
    requests
    kv=(bmc segment paged shift) i=0
    for name in gemma3n gemma4 gemma4-heads gemma4-moe; do
        bmc-convert -q "$FIXTURES/families/$name" -o $name.bmc
        same $name 2 pipeline gen -np 2 --kv "${kv[i++ % 4]}"
        same $name 3 pipeline gen -np 3 --kv "${kv[i++ % 4]}" --cache-type q8
    done
    # Shared keys and values of either size are on the rank before.
    same gemma4 2 "pipeline --layers 2,2" gen -np 2
    same gemma4 2 "pipeline --layers 3,1" spec --recycle --always --tree 6 -np 2
    same gemma4 4 pipeline gen --beams 2 -np 1
    same gemma4 4 pipeline gen -np 4 --memory 100K
}

@test "tensor, expert and pipeline parallelism of quantised layers that differ give the bits of one process" {
    needs_mpi
    requests
    shape 'kv_shared 3' 'kv_shared_ffn 104' 'layer_input 10'
    bmc-convert -q --synth ./a.shape --type q8_0 -o shared.bmc
    shape 'experts 10' 'experts_used 3' 'expert_ffn 40' 'expert_beside true'
    bmc-convert -q --synth ./a.shape --type q4_0 -o moe.bmc
    shape 'kv_shared 3' 'layer_input 10' 'layer_scale false' 'streams 3' 'laurel_rank 12' 'activation_sparsity 0.8 0.3 0 0 0.5 0 0'
    bmc-convert -q --synth ./a.shape --type q8_0 -o streams.bmc
    printf '%s\n' 'family bitnet' 'layers 2' 'hidden 40' 'heads 4' 'kv_heads 2' 'head_dim 12' 'ffn 28' 'vocab 300' 'context 256' \
        'round_inputs true' 'sub_norm true' >a.shape
    bmc-convert -q --synth ./a.shape -o rounded.bmc
    same rounded 2 tensor gen -np 3
    same streams 2 tensor gen -np 3 --kv segment
    same streams 2 pipeline gen -np 2
    same shared 2 tensor gen -np 3 --kv segment
    same shared 2 tensor spec --recycle --always --tree 6 -np 2
    same moe 2 tensor gen -np 3
    same moe 2 expert gen -np 2 --cache-type q8
    same shared 2 pipeline gen -np 2
    same moe 3 pipeline gen -np 3 --kv shift
    predicted_bytes streams tensor pipeline
    predicted_bytes shared tensor pipeline
    predicted_bytes moe tensor pipeline expert
    # The number of ranks is limited by the smaller number of KV heads.
    run_plain mpirun -n 3 "$BMC_BIN/bmc-gen" -q -m shared.bmc --prompt-ids 5 -n 1 -t 1 --parallelism tensor
    [ "$status" -ne 0 ]
    [[ $stderr == *'2 KV heads cannot be split over 3 ranks; start at most 2'* ]]
}
