# Shared scales of quantised KV caches: bmc-prof cache-scales measures them, --cache-type q8:scales=FILE uses them. Entries by hand are
# in test_kv_scales.
load ../helper

setup_file() {
    for name in grimm grimm-draft andersen; do model "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
    cd "$BATS_FILE_TMPDIR" || return 1
    jq -r '.cases[] | .prompt + .greedy_text' "$(reference grimm)" >text
    "$BMC_BIN/bmc-prof" cache-scales -m "$(model grimm)" -f text -o scales >&2
    "$BMC_BIN/bmc-prof" cache-scales -m "$(model grimm)" -f text -N 9 -o narrow >&2
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    cp "$BATS_FILE_TMPDIR"/{text,scales,narrow} .
}

gen() { bmc-gen -q -m "$(model grimm)" --ignore-eos -c 80 "$@"; }

@test "every policy, batch, chunk and number of threads, and speculation: the same ids and logits" {
    turn=0
    jq -c '.cases as $c | range(5) as $i | {id: $i, prompt: $c[$i % 4].prompt, n: (8 + $i * 5)}' "$(reference grimm)" >in
    for type in q8_channel q4_1; do
        gen --jsonl --cache-type $type:scales=narrow --kv upfront -np 1 -t 1 --stats one.json <in | jq -c '[.id, .ids]' >one
        gen --jsonl --cache-type $type --kv upfront -np 1 -t 1 --stats other.json <in >/dev/null
        [ "$(wc -l <one)" -eq 5 ]
        [ "$(jq .logits_hash one.json)" != "$(jq .logits_hash other.json)" ]
        for kv in $(kv_policies) bmc:r=1; do
            turn=$((turn + 1))
            sampled 2 || continue
            gen --jsonl --cache-type $type:scales=narrow --kv "$kv" -np $((turn % 4 + 1)) -t $((turn % 2 + 1)) --chunk $((turn * 7 % 30 + 1)) \
                --stats many.json <in | jq -c '[.id, .ids]' >many
            equal_files many one
            assert_equal "$(jq -c '[.logits_hash, .kv_type]' many.json)" "$(jq -c --arg t $type '[.logits_hash, $t]' one.json)"
        done
        for way in "-d $(model grimm-draft) -k 4" "-d $(model grimm-draft) --tree 9" --lookup; do
            # shellcheck disable=SC2086 # words
            bmc-spec -q -m "$(model grimm)" --ignore-eos -c 80 $way --always --jsonl -np 1 --cache-type $type:scales=narrow --stats many.json <in | jq -c '[.id, .ids]' >many
            equal_files many one
            assert_equal "$(jq -c '.logits_hash, .drafted > 0' many.json)" "$(jq -c '.logits_hash, true' one.json)"
        done
    done
}

@test "ranges are those of the entries of a snapshot" {
    head -c 200 text >some
    gen -f some -n 1 --precision f32 --save-kv k.kv >&2
    "$BMC_BUILD/tests/read_kv" k.kv 0 | awk '
        { name = $1 " " $2 " " $3
          for (i = 5; i <= NF; i++) { if (!(name in low) || $i < low[name]) low[name] = $i; if (!(name in high) || $i > high[name]) high[name] = $i } }
        END { for (name in low) printf "%s %.6g %.6g\n", name, low[name], high[name] }' | sort >want
    "$BMC_BIN/bmc-prof" cache-scales -m "$(model grimm)" -f some --precision f32 -o file --format jsonl |
        jq -r '[.layer, "K", .head, .k_low, .k_high], [.layer, "V", .head, .v_low, .v_high] | join(" ")' | awk '{ printf "%s %s %s %.6g %.6g\n", $1, $2, $3, $4, $5 }' | sort >got
    [ "$(wc -l <want)" -eq 32 ]
    equal_files got want
    # the file has the same
    awk '/^[0-9]/ { printf "%s K %s %.6g %.6g\n%s V %s %.6g %.6g\n", $1, $2, $3, $4, $1, $2, $5, $6 }' file | sort >got
    equal_files got want
}

@test "perplexity: q8 within 0.3 % of an f32 cache, q4 within 4 %" {
    score() { bmc-gen -q -m "$(model grimm)" --score --summary -f text --precision f32 --format json "$@" | jq .perplexity; }
    f32=$(score) q8=$(score --cache-type q8:scales=scales) q4=$(score --cache-type q4:scales=scales)
    echo "# perplexity $f32 with f32, $q8 with q8, $q4 with q4" >&3
    jq -en --argjson f "$f32" --argjson q "$q8" '($q / $f - 1 | fabs) < 0.003' || fail "q8: $q8, f32: $f32"
    jq -en --argjson f "$f32" --argjson q "$q4" '($q / $f - 1 | fabs) < 0.04' || fail "q4: $q4, f32: $f32"
}

@test "snapshots are continued with the scales that made them only" {
    whole=$(gen --cache-type q8:scales=scales -p "The king" -n 24 --ids)
    first=$(gen --cache-type q8:scales=scales -p "The king" -n 10 --ids --save-kv k.kv)
    ok bmc-convert --verify k.kv
    ok gen --load-kv k.kv --cache-type q8:scales=scales --kv paged -n 14 --ids
    assert_equal "$first $output" "$whole"
    expect_error 1 'k.kv: its KV entries have other shared scales \([0-9a-f]{16}..\) than this cache: load it with --cache-type q8_channel:scales=FILE' gen --load-kv k.kv -n 4
    [[ $stderr$output =~ scales\ \(([0-9a-f]{16}) ]]
    assert_equal "$(bmc-convert --info --format json k.kv | jq -r '.kv_scales[:16]')" "${BASH_REMATCH[1]}"
    expect_error 1 'k.kv: its KV entries have other shared scales' gen --load-kv k.kv --cache-type q8:scales=narrow -n 4
    gen --cache-type q8_channel -p "The king" -n 4 --save-kv own.kv >&2
    expect_error 1 'own.kv: each of its KV entries has a scale of its own, this cache has shared scales' gen --load-kv own.kv --cache-type q8:scales=scales -n 4
    # Other types are converted.
    run --separate-stderr gen --load-kv k.kv --cache-type f32 -n 4 --ids
    assert_equal "$status/$stderr" "0/bmc-gen: k.kv: KV entries are converted from q8_channel to f32"
    # A prompt cache with other scales is not used, and replaced.
    gen --cache-type q8_channel -p "The king" -n 4 --prompt-cache c.kv >&2
    want=$(gen --cache-type q8:scales=scales -p "The king" -n 8 --ids)
    run --separate-stderr gen --cache-type q8:scales=scales -p "The king" -n 8 --prompt-cache c.kv --ids
    assert_equal "$output" "$want"
    [[ $stderr = *"c.kv: each of its KV entries has a scale of its own"*"the prompt cache is not used" ]] || fail "$stderr"
    run --separate-stderr gen --cache-type q8:scales=scales -p "The king" -n 8 --prompt-cache c.kv --ids
    assert_equal "$output/$stderr" "$want/"
}

@test "blocks of a prefix cache are used with the same scales only" {
    prompt="$(head -c 300 text)"
    for type in q4 q4:scales=narrow q4:scales=scales; do
        gen -c 200 --cache-type $type -p "$prompt" -n 8 --ids --stats want.json >want
        for hits in false true; do
            gen -c 200 --cache-type $type -p "$prompt" -n 8 --ids --prefix-cache cache --stats stats.json >got
            equal_files got want
            assert_equal "$(jq -c '[.logits_hash, .prefix_cache_hit_tokens > 0]' stats.json)" "$(jq -c --argjson hits $hits '[.logits_hash, $hits]' want.json)"
        done
    done
}

@test "latent attention, KV heads of two sizes, recurrent layers: batches and chunks do not matter" {
    for name in deepseek-v2-moe gemma4-heads qwen3next; do
        bmc-convert "$FIXTURES/families/$name" -o "$name.bmc"
        bmc-gen -q -m $name.bmc --prompt-ids "$(seq -s ' ' 20 60)" -n 1 --ids --save-kv k.kv >/dev/null
        bmc-convert --info --format json k.kv >info
        heads=($(jq '(.layer_sizes // [{layers, kv_heads}])[] | .kv_heads as $h | range(.layers) | $h' info))
        [ ${#heads[@]} -gt 0 ]
        {
            echo "model_id $(jq -r .model_id info)"
            jq -r 'if .layer_sizes then "layers in_order" else empty end, if .version == 9 then "keys scaled" else empty end' info
            [ $name != qwen3next ] || echo "keys scaled" # whose version is that of recurrent states
            for ((l = 0; l < ${#heads[@]}; l++)); do
                for ((h = 0; h < heads[l]; h++)); do
                    if [ $name = deepseek-v2-moe ]; then echo "$l $h -3 4"; else echo "$l $h -3 4 -2.5 2"; fi
                done
            done
        } >s
        jq -nc '{ids: [range(20; 60)], n: 20}, {ids: [range(90; 100)], n: 20}' >in
        bmc-gen -q -m $name.bmc --jsonl -np 1 --cache-type q8:scales=s --stats one.json <in | jq -c .ids >one
        bmc-gen -q -m $name.bmc --jsonl -np 2 --chunk 7 --cache-type q8:scales=s --stats many.json <in | jq -c .ids >many
        equal_files many one
        [ "$(wc -l <one)" -eq 2 ]
        assert_equal "$(jq .logits_hash many.json)" "$(jq .logits_hash one.json)"
    done
}

@test "what is refused" {
    expect_error 1 'scales: has the scales of another model' bmc-gen -m "$(model andersen)" -p x --cache-type q8:scales=scales
    expect_error 1 'none: ' gen -p x --cache-type q8:scales=none
    expect_error 2 '"q4h:scales=scales" is expected to be a type, q8:scales=FILE or q4:scales=FILE' gen -p x --cache-type q4h:scales=scales
    for type in q8: q8:scales= q8:scale=x; do expect_error 2 'is expected to be a type' gen -p x --cache-type $type; done
    sed 3d scales >some
    expect_error 1 'some: layer 0, head 0 is missing' gen -p x --cache-type q8:scales=some
    # Nothing is written if it fails.
    expect_error 1 'the text has no tokens|is empty' "$BMC_BIN/bmc-prof" cache-scales -m "$(model grimm)" -f /dev/null -o no
    [ ! -e no ]
}
