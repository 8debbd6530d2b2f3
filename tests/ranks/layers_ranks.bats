# Recurrent layers, latent attention and attention sinks on several ranks. Without Open MPI all tests are skipped.
load ../helper
load mpi

setup_file() {
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
}

converted() { [ -e "$1.bmc" ] || bmc-convert -q "$FIXTURES/families/$1" -o "$1.bmc"; }

# Requests with prompts of 3, 110, 9 and 40 tokens, all with the same beginning: prefix caching needs states.
requests() { jq -nc '(3, 110, 9, 40) as $n | {id: $n, ids: [range($n) * 37 % 60 + 3], n: 7}' >in; }

# "same MODEL PARALLELISM PROGRAM OPTION..": two ranks print the ids and logits of one process.
same() {
    bmc-"$3" -q -m "$1.bmc" --jsonl --ignore-eos -t 1 --stats of_one "${@:4}" <in >one
    ok mpirun -n 2 "$BMC_BIN/bmc-$3" -q -m "$1.bmc" --jsonl --ignore-eos -t 1 --parallelism "$2" --stats of_two -f in "${@:4}"
    assert_equal "$1 $2 $(jq -sc 'map([.id, .ids])' <<<"$output") $(jq -e .logits_hash of_two)" \
        "$1 $2 $(jq -sc 'map([.id, .ids])' one) $(jq -e .logits_hash of_one)"
}

@test "pipelines of recurrent layers, latent attention and attention sinks give the bits of one process" {
    needs_mpi
    requests
    kv=(bmc segment paged shift headwise)
    i=0
    for name in lfm2 qwen35 falcon-h1 granite-hybrid gpt-oss deepseek-v3-moe; do
        i=$((i + 1))
        sampled 2 || continue
        converted $name
        same $name pipeline gen -np 2 --kv "${kv[i % 5]}"
    done
    converted granite-hybrid
    same granite-hybrid pipeline spec --recycle --always --tree 6 -np 2
    converted qwen35
    same qwen35 pipeline gen --beams 3 -np 1
}

# Small models with 2 KV heads, and heads, keys and channels that end inside blocks of 16.
synth() { # SHAPE TYPE
    local keys=1
    [ "$1" != qwen3-next-80b-a3b ] || keys=2
    sed -e 's/^layers .*/layers 4/; s/^layer_types *\([a-z]*\).*/layer_types \1 full \1*2/; s/^hidden .*/hidden 80/; s/^heads .*/heads 4/' \
        -e 's/^kv_heads .*/kv_heads 2/; s/^head_dim .*/head_dim 20/; s/^rope_dim .*/rope_dim 8/; s/^ffn .*/ffn 56/; s/^vocab .*/vocab 300/' \
        -e 's/^expert_ffn .*/expert_ffn 40/; s/^shared_ffn .*/shared_ffn 56/; s/^experts .*/experts 10/; s/^experts_used .*/experts_used 3/' \
        -e "s/^state_heads .*/state_heads 6/; s/^state_key_heads .*/state_key_heads $keys/; s/^state_key_dim .*/state_key_dim 12/" \
        -e 's/^state_value_dim .*/state_value_dim 20/; s/^eos .*/eos 1/' "$ROOT/models.d/shapes/$1.shape" >a.shape
    bmc-convert -q --synth ./a.shape --type "$2" -o "$1.bmc"
}

@test "tensor parallelism of recurrent layers, latent attention and attention sinks gives the bits of one process" {
    needs_mpi
    requests
    for case in deepseek-v3-moe lfm2-1.2b:q4_0 deepseek-v2-lite qwen3-next-80b-a3b:bf16 granite-4.0-h-tiny:q8_0 gpt-oss falcon-h1-1.5b:f32; do
        sampled 2 || continue
        requests
        name=${case%:*} type=${case#*:}
        if [ "$type" = "$name" ]; then converted "$name"; else synth "$name" "$type"; fi
        same "$name" tensor gen -np 2
        [[ $name != deepseek-v3-moe && $name != qwen3-next* ]] || same "$name" tensor spec --recycle --always --tree 6 -np 2
        case $name in deepseek-v3-moe | lfm2* | qwen3-next* | granite*) predicted_bytes "$name" tensor pipeline ;; esac
    done
    [ -e lfm2-1.2b.bmc ] || synth lfm2-1.2b q4_0
    run_plain mpirun -n 3 "$BMC_BIN/bmc-gen" -q -m lfm2-1.2b.bmc --prompt-ids 5 -n 1 -t 1 --parallelism tensor
    [ "$status" -ne 0 ]
    [[ $stderr == *'2 KV heads cannot be split over 3 ranks; start at most 2'* ]]
}
