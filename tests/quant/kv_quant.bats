# Quantised KV caches: the same ids and logits under every policy, batch, chunk and number of threads, with and without
# speculation; snapshots; perplexity.
load ../helper

setup_file() {
    for name in grimm grimm-draft andersen; do model "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
}

gen() { bmc-gen -q -m "$(model "${MODEL:-grimm}")" --ignore-eos -c 80 "$@"; }

# Five requests of different lengths.
requests() { jq -c '.cases as $c | range(5) as $i | {id: $i, prompt: $c[$i % 4].prompt, n: (8 + $i * 5)}' "$(reference "${MODEL:-grimm}")" >in; }

@test "every policy, batch, chunk and number of threads: the same ids and logits" {
    turn=0
    for type in q8 q5 q4 q4_1 k=q8,v=q4 k=f16,v=q6; do
        MODEL=$([ $type = q8 ] && echo grimm || echo andersen)
        requests
        gen --jsonl --cache-type $type --kv upfront -b 1 -t 1 --stats one.json <in | jq -c '[.id, .ids]' >one
        [ "$(wc -l <one)" -eq 5 ]
        for kv in $(kv_policies) bmc:T=5 bmc:r=1 paged:32; do
            turn=$((turn + 1))
            sampled 2 || continue
            gen --jsonl --cache-type $type --kv "$kv" -b $((turn % 4 + 1)) -t $((turn % 2 + 1)) --chunk $((turn * 7 % 30 + 1)) \
                --stats many.json <in | jq -c '[.id, .ids]' >many
            equal_files many one
            assert_equal "$(jq -c '[.logits_hash, .kv_type]' many.json)" "$(jq -c --arg t $type '[.logits_hash, $t]' one.json)"
        done
    done
}

@test "speculation: chains, trees and lookup give the ids and logits of bmc-gen" {
    for type in q8 q6 q4; do
        ids=$(gen --cache-type $type -p "$(reference_text grimm 1 prompt)" -n 30 --ids --stats plain.json)
        for way in "-d $(model grimm-draft) -k 4" "-d $(model grimm-draft) --tree 9" "--recycle --tree 8"; do
            ok bmc-spec -q -m "$(model grimm)" --ignore-eos -c 80 --cache-type $type --kv bmc:r=8 -p "$(reference_text grimm 1 prompt)" -n 30 --ids --always --stats spec.json $way
            assert_equal "$output" "$ids"
            assert_equal "$(jq .logits_hash spec.json)" "$(jq .logits_hash plain.json)"
            jq -e '.drafted > 0' spec.json
        done
    done
}

@test "snapshots: saved, shown, verified, resumed under every policy" {
    for type in q8 q4 q4h k=q5,v=q4; do
        whole=$(gen --cache-type $type -p "$(reference_text grimm 2 prompt)" -n 24 --ids)
        first=$(gen --cache-type $type --kv paged -p "$(reference_text grimm 2 prompt)" -n 10 --ids --save-kv k.kv)
        assert_equal "$(bmc-convert --info --format json k.kv | jq -r .kv_type)" $type
        ok bmc-convert --verify k.kv
        # K and V of 8 layers, 2 heads.
        rows=$(bmc-convert --info --format json k.kv | jq '.rows[0].rows')
        [ "$rows" -gt 9 ]
        for kv in $(kv_policies); do
            sampled 2 || continue
            ok gen --load-kv k.kv --kv "$kv" -n 14 --ids --save-kv again.kv --stats stats.json
            assert_equal "$first $output" "$whole"
            assert_equal "$(jq -r .kv_type stats.json)" $type
            [[ $type != k=* ]] || continue # read_kv reads entries of one type
            # To another reader the rows that were there are the same, and those of later tokens stand behind them.
            "$BMC_BUILD/tests/read_kv" k.kv 0 >rows
            "$BMC_BUILD/tests/read_kv" again.kv 0 >more
            [ "$(wc -l <rows)" -eq $((8 * 2 * 2 * rows)) ]
            [ "$(wc -l <more)" -gt "$(wc -l <rows)" ]
            assert_equal "$(diff rows more | grep '^<')" ''
        done
    done
}

@test "a snapshot of another cache type is converted, with a message" {
    gen -p "$(reference_text grimm 2 prompt)" -n 4 --save-kv f32.kv >&2
    run --separate-stderr gen --load-kv f32.kv --cache-type q8 -n 4 --save-kv q8.kv --ids
    assert_equal "$status/$stderr" "0/bmc-gen: f32.kv: KV entries are converted from f32 to q8"
    assert_equal "$(bmc-convert --info --format json q8.kv | jq -r .kv_type)" q8
    run --separate-stderr gen --load-kv q8.kv --cache-type f32 -n 4 --ids
    assert_equal "$status/$stderr" "0/bmc-gen: q8.kv: KV entries are converted from q8 to f32"
}

@test "a damaged scale is reported" {
    gen --cache-type q8 -p "Once" -n 4 --save-kv k.kv >&2
    ok bmc-convert --verify k.kv
    flip k.kv $((4096 + 35))
    run bmc-convert --verify k.kv
    assert_failure 1
    assert_output --partial 'k.kv: K of layer 0 of sequence 0 has hash'
}

@test "perplexity: q8 and q6 within 0.3 % of an f32 cache, q5 and q4 within 2 %, by both backends" {
    jq -r '.cases[] | .prompt + .greedy_text' "$(reference grimm)" >text
    score() { bmc-gen -q -m "$(model grimm)" --score -f text --format json "$@" | jq .perplexity; }
    f32=$(score)
    for attn in fused blas; do
        for precision in f32 int8; do
            while read -r type most; do
                q=$(score --cache-type $type --attn $attn --precision $precision)
                echo "# $attn, $precision: perplexity $f32 with f32, $q with $type" >&3
                jq -en --argjson f "$f32" --argjson q "$q" "(\$q / \$f - 1 | fabs) < $most" || fail "$type: $q, f32: $f32"
            done <<<$'q8 0.003\nq6 0.003\nq5 0.02\nq4 0.02'
        done
    done
}

@test "memory of a quantised cache is the size of its entries" {
    # 8 layers of 2 heads of 32 values, K and V; 64 rows.
    while read -r type row; do
        ok gen --cache-type "$type" --kv upfront -c 64 -p Once -n 1 --stats stats.json
        assert_equal "$(jq .kv_resident_bytes stats.json)" $((2 * 8 * 2 * 64 * row))
    done <<<$'f32 128\nbf16 64\nq8 36\nq6 27\nq5 23\nq4 19\nq4_1 20\nq4h 20'
    ok gen --cache-type k=q8,v=q4 --kv upfront -c 64 -p Once -n 1 --stats stats.json
    assert_equal "$(jq .kv_resident_bytes stats.json)" $((8 * 2 * 64 * (36 + 19)))
}

@test "--cache-kld: types by layer that keep to a budget, and need fewer bytes" {
    ok "$BMC_BIN/bmc-prof" cache-types -m "$(model grimm)" -f <(reference_text grimm 0 greedy_text) -o costs
    ok gen -p Once -n 1 --kv upfront --cache-kld 0.0003:costs --stats some.json
    ok gen -p Once -n 1 --kv upfront --cache-kld 9:costs --stats all.json
    assert_equal "$(jq .kv_resident_bytes all.json)" $((2 * 8 * 2 * 80 * 19)) # all in q4
    assert_equal "$(jq -r .kv_types_by_layer all.json)" q4
    jq -e '.kv_type == "per layer" and .cache_kld_predicted > 0.0001 and .cache_kld_predicted <= 0.0003' some.json
    jq -en --slurpfile s some.json --slurpfile a all.json '$s[0].kv_resident_bytes > $a[0].kv_resident_bytes and $s[0].kv_resident_bytes < 2 * 8 * 2 * 80 * 128'
    # On another text the divergence is that of the measured one within a factor of 2.
    "$BMC_BIN/bmc-prof" quality -m "$(model grimm)" -f <(reference_text grimm 1 greedy_text) --precision f32 --cache-kld 0.0003:costs --format json \
        >quality.json 2>notes
    jq -e '.rows[0].kld_mean | . > 0 and . < 0.0006' quality.json
    grep -qx "bmc-prof: --cache-kld 0.0003:costs: predicted mean KL divergence 0.000[12][0-9]*, cache types $(jq -r .kv_types_by_layer some.json)" notes
    expect_error 1 'another model' gen -m "$(model grimm-draft)" -p Once -n 1 --cache-kld 0.0003:costs
}

@test "other quantised types are refused as cache types" {
    for type in q4_k q6_k q8_2l; do
        run bmc-gen -m "$(model grimm)" -p x --cache-type $type
        assert_failure 2
        assert_output --partial "\"$type\" is none of f32, bf16, f16, q8, q6, q5, q4, q8_channel, q4_1, q4h"
    done
}

@test "names of cache types; q8_0 and q4_0 are types of weights" {
    for names in 'q8_channel q8_channel' 'Q4_1 q4_1' 'Q6 q6'; do
        read -r alias name <<<"$names"
        gen --cache-type "$alias" -p Once -n 2 --stats stats.json
        assert_equal "$(jq -r .kv_type stats.json)" "$name"
    done
    for type in q8_0 q4_0; do
        expect_error 2 "--cache-type: \"$type\" is a type of weights; the cache has q8, q6, q5 and q4, of rotated K and V, with a scale per KV entry" \
            bmc-gen -m "$(model grimm)" -p x --cache-type $type
    done
}

# f16 ends at 65504, as do the scales of q4_1; a bias makes a value 100 times as large.
@test "values that do not fit the cache's type are said to be that, not a damaged model" {
    cp -r "$FIXTURES/models/qwen2-like" large
    bytes_le 4 0x4ac35000 | patch large/model.safetensors "$(safetensors_at large/model.safetensors model.layers.1.self_attn.v_proj.bias)" # 6400000.0
    bmc-convert large -o large.bmc >/dev/null
    run() { bmc-gen -q -m large.bmc -t 1 --prompt-ids '5 6 7' -n 2 --ids "$@"; }
    ok run --cache-type f32
    want=$output
    for type in bf16 q8 q6 q4; do
        ok run --cache-type $type
        assert_equal "$output" "$want"
    done
    for type in f16 q4_1 q4h; do
        expect_error 1 "do not fit --cache-type $type, .* use bf16, f32 or q8" run --cache-type $type
    done
    run_plain bmc-gen -m large.bmc -t 1 --embed --cache-type f16 -p x
    assert_equal "$status" 1
    [[ $output =~ hidden\ states.*--cache-type\ f16 ]]
    bytes_le 4 0x7f7fffff | patch large/model.safetensors "$(safetensors_at large/model.safetensors model.norm.weight)" # not the cache's fault
    bmc-convert large -o large.bmc >/dev/null
    expect_error 1 'may be damaged' run --cache-type f32
}
