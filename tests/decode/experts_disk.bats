# Experts from disk (--experts): weights of experts that are read from the model file.
load ../helper

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

setup_file() {
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
    RANDOM=$BMC_SEED
    cd "$BATS_FILE_TMPDIR" || return 1
    # 52 MiB of experts in 4 layers; the last tensor of the file is 4 KiB behind those of the last layer
    sed -e 's/^\(layers\|kv_heads\|heads\) .*/\1 4/' -e 's/^\(hidden\|expert_ffn\|ffn\) .*/\1 256/' \
        -e 's/^head_dim .*/head_dim 64/' -e 's/^vocab .*/vocab 512/' -e 's/^experts .*/experts 64/' \
        -e 's/^tied_head .*/tied_head true/' -e 's/^eos .*/eos 1/' "$ROOT/models.d/shapes/qwen3-30b-a3b.shape" >large.shape
    "$BMC_BIN/bmc-convert" --synth ./large.shape --type q8_0 -o large.bmc
    for family in mixtral qwen2-moe qwen3-moe olmoe glm4-moe; do
        for type in auto q4_0; do
            "$BMC_BIN/bmc-convert" "$FIXTURES/families/$family" --type $type -o $family-$type.bmc
        done
    done
}

# Requests with prompts of 1 to 40 tokens.
requests() { jq -nc --argjson seed "$1" 'range(5) | {id: ., ids: [range((. * 13 + $seed) % 40 + 1) * 37 % 250 + 3], n: 9}'; }

results() { jq -sc 'map([.id, .ids, .logits_hash, .error])' "$@"; }

@test "results are the same bits for every memory, policy, batch, chunk, thread count and speculation" {
    RANDOM=$BMC_SEED
    echo "# BMC_SEED=$BMC_SEED" >&3
    for family in mixtral qwen2-moe qwen3-moe olmoe glm4-moe; do
        pick m "$BATS_FILE_TMPDIR/$family-"{auto,q4_0}.bmc
        requests $RANDOM >in
        bmc-gen -q -m "$m" --jsonl --ignore-eos -np 1 -t 1 <in >plain
        least=$(bmc-gen -q -m "$m" -p x --experts ram=1 2>&1 | grep -o 'ram=[0-9]*K' | grep -o '[0-9]*')
        for ((i = 0; i < 5; i++)); do
            pick prefetch "" ,prefetch=off
            pick slots 1 2 5
            pick chunk 1 3 7 512
            pick kv bmc paged reserve segment iterative headwise:ram=300K,dir=.
            how="--experts ram=$((least + RANDOM % (2 * least)))K$prefetch -np $slots -t $((RANDOM % 2 + 1)) --chunk $chunk --kv $kv"
            bmc-gen -q -m "$m" --jsonl --ignore-eos $how <in >other || fail "$m $how"
            assert_equal "$m $how $(results other)" "$m $how $(results plain)"
            bmc-spec -q -m "$m" --recycle --jsonl --ignore-eos --always $how <in >other || fail "$m --recycle $how"
            assert_equal "$m --recycle $how $(results other)" "$m --recycle $how $(results plain)"
        done
    done
}

@test "snapshots and beams do not depend on --experts" {
    m=$BATS_FILE_TMPDIR/qwen3-moe-auto.bmc
    how=(--experts ram=150K)
    ids=$(bmc-gen -q -m "$m" --prompt-ids '5 6 7 8' -n 20 --ignore-eos --ids)
    ok bmc-gen -q -m "$m" --prompt-ids '5 6 7 8' -n 10 --ignore-eos --ids --save-kv a.kv "${how[@]}"
    first=$output
    ok bmc-gen -q -m "$m" --load-kv a.kv -n 10 --ignore-eos --ids "${how[@]}"
    assert_equal "$first $output" "$ids"
    assert_equal "$(bmc-gen -q -m "$m" --prompt-ids '5 6 7 8' -n 9 --beams 3 --ids "${how[@]}")" \
        "$(bmc-gen -q -m "$m" --prompt-ids '5 6 7 8' -n 9 --beams 3 --ids)"
}

@test "memory is bounded, and the statistics add up" {
    m=$BATS_FILE_TMPDIR/large.bmc
    for how in '' '--experts ram=8M' '--experts ram=8M,prefetch=off' '--experts ram=1G'; do
        bmc-gen -q -m "$m" --prompt-ids "$(seq -s ' ' 100)" -n 20 --ignore-eos --ids --stats "stats$how" $how >"ids$how"
        equal_files ids "ids$how"
        assert_equal "$(jq .logits_hash "stats$how")" "$(jq .logits_hash stats)"
    done
    all=$(jq .peak_resident_bytes stats)
    for how in '--experts ram=8M' '--experts ram=8M,prefetch=off'; do
        [ "$(jq .peak_resident_bytes "stats$how")" -lt $((all - (30 << 20))) ] || fail "$all $(cat "stats$how")"
        jq -e '.experts_memory_bytes <= 8388608 and .experts_memory_bytes > 8000000 and
               .experts_total_bytes > 50000000 and .experts_hits > 0 and .experts_hits < .experts_uses and
               .experts_needed_bytes / (.experts_uses - .experts_hits) == .experts_total_bytes / 256 and
               .experts_prefetch_hits <= .experts_prefetched' "stats$how" >/dev/null || fail "$(cat "stats$how")"
    done
    jq -e '.experts_prefetched == 0 and .experts_read_bytes == .experts_needed_bytes' 'stats--experts ram=8M,prefetch=off' >/dev/null
    jq -e '.experts_memory_bytes == 0 and .experts_uses == 0' 'stats--experts ram=1G' >/dev/null
    ok bmc-prof bench -m "$m" -p 4 -n 4 -r 1 --warmup 0 --experts ram=8M --format json
    # a line for people
    run_plain bmc-gen -m "$m" -p x -n 4 --experts ram=8M
    [[ $stderr =~ "experts          = 7."[0-9]*" of "5[0-9.]*" MiB in memory: "[0-9.]*" % of "[0-9]*" uses hit, " ]] || fail "$stderr"
    run_plain bmc-gen -m "$m" -p x -n 4 --experts ram=1G
    [[ $stderr == *"experts          = all fit in memory"* ]] || fail "$stderr"
}

@test "a model file that is truncated during the run is an error" {
    cp "$BATS_FILE_TMPDIR/large.bmc" a.bmc
    mkfifo in
    bmc-gen -q -m a.bmc --jsonl -np 1 --experts ram=3M -f in >out 2>err &
    pid=$!
    exec 7>in
    echo '{"ids": [5, 6, 7], "n": 2}' >&7
    wait_until test -s out
    truncate -s -3M a.bmc # in the last layer's experts
    jq -nc '{ids: [range(200)], n: 2}' >&7
    exec 7>&-
    code=0
    wait $pid || code=$?
    assert_equal "$code" 1
    assert_equal "$(jq -r '.error // "none"' out | paste -sd ' ')" 'none line 2: the run ended: a.bmc: the file was truncated while in use'
}

@test "--experts: errors" {
    m=$BATS_FILE_TMPDIR/large.bmc
    expect_error 1 '--experts: .*grimm.*\.bmc has no experts' bmc-gen -m "$(model grimm)" -p x --experts ram=1M
    expect_error 1 '--experts: .*grimm.*\.bmc has no experts' bmc-spec -m "$(model grimm)" --lookup -p x --experts ram=1M
    expect_error 1 '--experts: ram=4096 is too small: an expert has 208896 bytes and two must fit, ram=408K is the least; ram=51M holds all experts$' \
        bmc-gen -m "$m" -p x --experts ram=4K
    ok bmc-gen -q -m "$m" -p x -n 1 --experts ram=408K
    expect_error 1 'ram=416768 is too small' bmc-gen -m "$m" -p x --experts ram=407K
    for text in 8G ram= ram=x ram=0 ram=1G,ram=2G ram=1G,prefetch=maybe prefetch=off ram=1G,; do
        expect_error 2 '--experts is ".*", expected is ram=BYTES' bmc-gen -m "$m" -p x --experts "$text"
        expect_error 2 '--experts is ".*", expected is ram=BYTES' bmc-prof bench -m "$m" --experts "$text"
    done
    expect_error 2 '--experts does not go with --mlock, which keeps all weights in memory' bmc-gen -m "$m" -p x --experts ram=8M --mlock
    expect_error 1 '--experts needs a model file: .*large.shape has random weights' \
        bmc-prof bench --shape "$BATS_FILE_TMPDIR/large.shape" --layers 1 --type q4_0 -p 1 -n 0 --experts ram=8M
}
