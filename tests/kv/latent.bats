# Latent attention (MLA): one KV entry per token for all heads, with V as a part of K. The results of a run do not depend on
# policy, batch, chunk, threads or drafts; snapshots, forks, beams and the memory that is saved.
load ../helper
load ../ranks/mpi

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

# A DeepSeek with YaRN and a latent of queries; one without; one with experts; and 5 heads with a latent of 96 + 10 elements, random weights.
setup_file() {
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
    mkdir -p "$BMC_BUILD/models"
    for name in deepseek-v2 deepseek-v3 deepseek-v3-moe; do
        bmc-convert "$FIXTURES/families/$name" -o "$BMC_BUILD/models/latent-$name.bmc" >/dev/null
    done
    latent_shape >"$BATS_FILE_TMPDIR/wide.shape"
    bmc-convert --synth "$BATS_FILE_TMPDIR/wide.shape" --seed 5 -o "$BMC_BUILD/models/latent-wide.bmc" >/dev/null
}

latent_shape() { # [KEY VALUE]..
    printf '%s %s\n' family deepseek layers 2 hidden 64 heads 5 kv_lora_rank 96 q_lora_rank 40 nope_dim 24 rope_dim 10 v_dim 48 \
        ffn 96 vocab 260 context 512 "$@" | tac | sort -u -k 1,1
}

latent() { echo "$BMC_BUILD/models/latent-$1.bmc"; }

requests() {
    jq -nc '[range(40) | 5 + . * 7 % 240] as $head | range(5) as $i |
        {id: $i, ids: ($head[:(40 - 9 * ($i % 3))] + [range(1 + $i * 3) | 40 + $i, 50 + . * 3 % 90]), n: (12 + $i)}'
}

# Results and logits_hash of a run, in one line.
result() { # MODEL OPTION..
    local name=$1
    shift
    bmc-gen -q -m "$(latent "$name")" --jsonl --ignore-eos --stats stats.json "$@" >out || fail "$name $*"
    echo "$(md5sum <out) $(jq -r .logits_hash stats.json)"
}

@test "every policy, cache type, batch, chunk and number of threads gives the same bits" {
    requests >in
    for name in deepseek-v2 deepseek-v3 deepseek-v3-moe wide; do for type in f32 bf16 q8 q4 q4h; do
        sampled 2 || [ $type = f32 ] || continue
        want=$(result $name --cache-type $type -np 1 --chunk 1 --threads 1 --prefix-cache-mb 0 --kv iterative -f in)
        for how in $(kv_policies) bmc:T=3 'reserve:r=5 --chunk 7' 'segment:r=5 -np 2 --chunk 17' 'paged:32 --threads 1'; do
            sampled 3 || continue
            assert_equal "$how: $(result $name --cache-type $type -np 4 --kv $how -f in)" "$how: $want"
        done
    done; done
}

@test "every instruction set gives the same bits in any batch, at every precision" {
    requests >in
    for isa in $(isas); do for precision in f32 bf16x2; do
        [ $isa != blas ] || continue
        want=$(result wide --isa $isa --precision $precision -np 1 --chunk 1 --threads 1 --kv upfront -f in)
        assert_equal "$isa $precision: $(result wide --isa $isa --precision $precision -np 5 --kv paged -f in)" "$isa $precision: $want"
    done; done
    for type in q8_0 q4_1 q8_channel; do
        bmc-convert --synth "$BATS_FILE_TMPDIR/wide.shape" --seed 5 --type $type -o "$BMC_BUILD/models/latent-$type.bmc" >/dev/null
        want=$(result $type -np 1 --chunk 1 --threads 1 --kv upfront -f in)
        assert_equal "$type: $(result $type -np 5 --kv bmc -f in)" "$type: $want"
    done
}

@test "speculative decoding, also of trees, gives the ids of plain decoding" {
    requests >in
    for name in deepseek-v3 deepseek-v3-moe wide; do
        bmc-gen -q -m "$(latent $name)" --jsonl --ignore-eos -f in >want
        for how in '--lookup' '--recycle -k 6' '--suffix --kv paged' '--recycle --tree 12 --kv segment'; do
            ok bmc-spec -q -m "$(latent $name)" $how --always --jsonl --ignore-eos -np 2 -f in --stats spec.json
            assert_equal "$(jq -c '[.id, .ids]' <<<"$output" | sort)" "$(jq -c '[.id, .ids]' want | sort)"
            jq -e '.drafted > 0' spec.json >/dev/null || fail "$name $how: no drafts"
        done
    done
}

@test "beams of reordered entries equal beams of copies" {
    for type in f32 q8; do for kv in upfront segment paged headwise; do
        bmc-gen -q -m "$(latent wide)" -p 'abcdefghijklmnopqrstuvwxyz' -n 40 --ignore-eos --beams 4 --cache-type $type --kv $kv --ids >beams.$kv || fail "$kv"
        cmp -s beams.$kv beams.upfront || fail "$type $kv: $(diff beams.$kv beams.upfront)"
    done; done
}

@test "snapshots hold the latents once, and continue under every policy and type" {
    requests | jq -c '.n = 5' >first
    requests | jq -c '.n = 11' >all
    jq -c '{id}' first >rest
    for type in f32 bf16 f16 q8 q4 q4h; do
        sampled 2 || continue
        want=$(result wide --cache-type $type -f all | cut -d ' ' -f 3)
        cp out whole
        result wide --cache-type $type --kv segment --save-kv k.kv -f first >/dev/null
        cp out before
        ok bmc-convert --verify k.kv
        "$BMC_BUILD/tests/read_kv" k.kv >about || fail "$type: $(cat about)"
        jq -e '.version == 5 and .kv_heads == 1 and .head_dim == 106 and .v_dim == 96' <(bmc-convert --info --format json k.kv) >/dev/null || fail "$type: $(bmc-convert --info k.kv)"
        for kv in $(kv_policies); do
            assert_equal "$kv $(result wide --kv $kv --load-kv k.kv -n 6 <rest | cut -d ' ' -f 3)" "$kv $want"
            assert_equal "$(jq -sc 'group_by(.id) | map(map(.ids) | add)' before out)" "$(jq -sc 'sort_by(.id) | map(.ids)' whole)"
        done
    done
}

@test "snapshots with other widths of V are refused" {
    bmc-gen -q -m "$(latent wide)" -p abc -n 3 --ignore-eos --save-kv k.kv >/dev/null
    reseal() {
        head -c 32 /dev/zero | patch "$1" 64
        hash=$({ head -c 4096 "$1" && tail -c "$(number_at "$1" 32 8)" "$1"; } | b2sum -l 256)
        printf '%b' "$(sed 's/ .*//; s/../\\x&/g' <<<"$hash")" | patch "$1" 64
    }
    while read -r at bytes message; do
        cp k.kv bad.kv
        printf "$bytes" | patch bad.kv "$at"
        reseal bad.kv
        expect_error 1 "$message" bmc-gen -q -m "$(latent wide)" --load-kv bad.kv -n 1
    done <<'END'
360 \x00 bad.kv: version 5 with V of 0 of 106 elements of K: the file is damaged
360 \x6b bad.kv: version 5 with V of 107 of 106 elements of K: the file is damaged
8 \x02 bad.kv: version 2 with V of 96 of 106 elements of K: the file is damaged
360 \x50 bad.kv: has 2 layers of 1 heads of 106
END
}

@test "offloading, and the prompt cache" {
    long=$(printf 'once upon a time %.0s' {1..20})
    latent_shape layers 8 >deep.shape
    bmc-convert --synth ./deep.shape --seed 5 -o deep.bmc
    ok bmc-gen -q -m deep.bmc -p "$long" -n 20 --ignore-eos --ids
    want=$output
    ok bmc-gen -q -m deep.bmc -p "$long" -n 20 --ignore-eos --ids --kv headwise:ram=700K,dir=. --chunk 32 --stats stats.json
    assert_equal "$output" "$want"
    # 360 entries of 424 bytes in 8 layers
    jq -e '.kv_peak_bytes <= 700 * 1024 and 700 * 1024 < 360 * 424 * 8' stats.json >/dev/null || fail "$(<stats.json)"
    for i in 1 2; do
        ok bmc-gen -q -m deep.bmc -p "$long" -n 20 --ignore-eos --ids --prompt-cache p.kv --stats stats.json
        assert_equal "$output" "$want"
    done
    jq -e '.loaded_tokens > 300' stats.json >/dev/null || fail "$(<stats.json)"
}

@test "bmc-prof memory: bytes of latents, and of the keys and values that they replace" {
    bmc-prof memory --shape youtu-llm-2b -np 1 -p 512 -n 512 --kv reserve --cache-type f16 --format json >memory.json
    # 32 layers of 576 elements; 16 heads with keys of 192 and values of 128 elements otherwise.
    jq -e '.rows | all(.token_bytes == 32 * 576 * 2 and .full_token_bytes == 32 * 16 * (192 + 128) * 2) and length > 0' memory.json >/dev/null || fail "$(head -c 600 memory.json)"
    jq -e '.rows | any(.policy == "reserve" and .kv_bytes == 1024 * 32 * 576 * 2 and .run_over == 1)' memory.json >/dev/null || fail "$(head -c 600 memory.json)"
    bmc-prof memory --shape opt-125m -np 1 -p 16 -n 16 --kv reserve --format json | jq -e '.rows | all(.full_token_bytes == .token_bytes)' >/dev/null
}

# ---- refusals ----

@test "hostile widths of latent attention are refused" {
    bad() { # MESSAGE KEY VALUE..
        latent_shape "${@:2}" >bad.shape
        expect_error 1 "$1" bmc-convert --synth ./bad.shape -o bad.bmc
        [ ! -e bad.bmc ]
    }
    bad 'multiples of 16, and a nope_dim above 0; found 90, 48 and 24' kv_lora_rank 90
    bad 'multiples of 16, and a nope_dim above 0; found 96, 40 and 24' v_dim 40
    bad 'multiples of 16, and a nope_dim above 0; found 96, 0 and 24' v_dim 0
    bad 'multiples of 16, and a nope_dim above 0; found 96, 48 and 0' nope_dim 0
    bad 'which needs a kv_lora_rank above 0' kv_lora_rank 0
    bad 'rope_dim must be even' rope_dim 11
    bad 'head_dim of kv_lora_rank [+] rope_dim, 96 [+] 10; found 1 KV heads of 107' head_dim 107
    bad 'found 5 KV heads of 106' kv_heads 5
    bad 'kv_lora_rank is "18446744073709551615", a whole number from 0 to 1024 is expected' kv_lora_rank 18446744073709551615 head_dim 106
    bad 'head_dim is "1034", a whole number from 0 to 1024 is expected' kv_lora_rank 1024
    bad 'wider than the limit of 1048576' heads 65536
    bad 'latent attention excludes qk_norm' qk_norm head
    bad 'latent attention excludes' bias_qkv true
    bad 'latent attention excludes' attn_gate true
}
