# Quantised models: the same results under every cache policy, batch, chunk, number of threads and tree, at int8 and f32.
load ../helper

types='q8_0 q8_channel q4_1 q4_0'

setup_file() {
    for type in $types; do
        "$BMC_BIN/bmc-convert" "$ROOT/tests/fixtures/models/llama-3-like" -o "$BATS_FILE_TMPDIR/$type.bmc" --type $type --pure || return 1
    done
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

few() { echo "$BATS_FILE_TMPDIR/$1.bmc"; }

# BMC_SEED repeats what a failure prints.
@test "logits under every kernel set and policy are those of a sequence alone, for every quantised type" {
    echo "# BMC_SEED=$BMC_SEED" >&3
    for type in $types; do
        run "$BMC_BUILD/tests/test_exact" "$(few $type)" "$BMC_SEED" 1
        assert_success
        assert_line --regexp '^# fused: [0-9]{3,} tokens, logits off by 0 at most$'
        assert_line --regexp '^# eager, f32: [0-9]{3,} tokens'
    done
}

# Four requests of different lengths, as sorted lines of ids.
answers() { # TYPE ARGS..
    jq -c '.cases as $c | range(4) as $i | {id: $i, prompt: $c[$i].prompt[:20], n: (3 + $i * 7 % 11)}' "$(reference llama-3-like)" >in
    bmc-gen -q -m "$(few "$1")" --jsonl --ignore-eos -c 60 -f in --stats stats.json "${@:2}" >out || fail "$*"
    jq -c '[.id, .ids]' out | sort
}

@test "--jsonl: ids of quantised models do not depend on policy, batch, chunk or number of threads" {
    RANDOM=$BMC_SEED turn=0
    echo "# BMC_SEED=$BMC_SEED" >&3
    read -ra policies <<<"$(kv_policies)"
    for type in $types; do for precision in int8 f32; do
        answers $type --precision $precision --kv iterative -b 1 -t 1 --chunk 1 >want
        assert_equal "$(jq -r .precision stats.json)" $precision
        assert_equal "$(wc -l <want)" 4
        # Every policy with one of them or more.
        kv=${policies[turn++ % ${#policies[@]}]}
        answers $type --precision $precision --kv "$kv" -b $((RANDOM % 4 + 1)) -t $((RANDOM % 2 + 1)) --chunk $((RANDOM % 30 + 1)) >got
        equal_files got want
    done; done
    [ "$turn" -ge "${#policies[@]}" ]
}

@test "int8 is the default precision of quantised models" {
    for type in $types; do
        answers $type >plain
        assert_equal "$(jq -r .precision stats.json)" int8
    done
    # It is another product than that of f32.
    hash=$(jq -r .logits_hash stats.json)
    answers $type --precision f32 >got
    refute [ "$(jq -r .logits_hash stats.json)" = "$hash" ]
}

@test "OpenBLAS with quantised weights: int8 is bit for bit plain C's, f32 gives its ids" {
    for type in $types; do
        answers $type --isa ref --precision int8 >want
        hash=$(jq -r .logits_hash stats.json)
        answers $type --isa blas --precision int8 >got
        equal_files want got
        assert_equal "$(jq -r .logits_hash stats.json)" "$hash"
    done
    answers $type --isa ref --precision f32 >want
    answers $type --isa blas --precision f32 >got
    equal_files want got
}
