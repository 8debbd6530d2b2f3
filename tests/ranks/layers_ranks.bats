# Recurrent layers, latent attention and attention sinks on several ranks. Without Open MPI all tests are skipped.
load ../helper
load mpi

converted() { [ -e "$1.bmc" ] || bmc-convert -q "$FIXTURES/families/$1" -o "$1.bmc"; }

# Requests with prompts of 3, 110, 9 and 40 tokens, all with the same beginning: prefix caching needs states.
requests() { jq -nc '(3, 110, 9, 40) as $n | {id: $n, ids: [range($n) * 37 % 60 + 3], n: 7}' >in; }

# "same MODEL PARALLELISM PROGRAM OPTION..": two ranks print the ids and logits of one process.
same() {
    bmc-"$3" -q -m "$1.bmc" --jsonl --ignore-eos -t 1 "${@:4}" <in >one
    ok mpirun -n 2 "$BMC_BIN/bmc-$3" -q -m "$1.bmc" --jsonl --ignore-eos -t 1 --parallelism "$2" -f in "${@:4}"
    assert_equal "$1 $2 $(jq -sc 'map([.id, .ids, .logits_hash])' <<<"$output")" "$1 $2 $(jq -sc 'map([.id, .ids, .logits_hash])' one)"
}

@test "pipelines of recurrent layers, latent attention and attention sinks give the bits of one process" {
    needs_mpi
    requests
    kv=(bmc segment paged shift headwise)
    i=0
    for name in lfm2 qwen35 falcon-h1 granite-hybrid gpt-oss deepseek-v3-moe; do
        converted $name
        same $name pipeline gen -np 2 --kv "${kv[i++ % 5]}"
    done
    same granite-hybrid pipeline spec --recycle --always --tree 6 -np 2
    same qwen35 pipeline gen --beams 3 -np 1
}

@test "tensor parallelism of recurrent layers, latent attention and attention sinks gives the bits of one process" {
    needs_mpi
    requests
    for name in qwen3next bamba falcon-h1 deepseek-v3-moe deepseek-v2-lite gpt-oss; do
        converted $name
        same $name tensor gen -np 2
    done
    same bamba tensor spec --recycle --always --tree 6 -np 2
    same deepseek-v3-moe tensor spec --recycle --always --tree 6 -np 2
}
