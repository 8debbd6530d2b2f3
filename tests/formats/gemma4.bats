# KV heads of two sizes, layers that share keys and values, inputs of layers of their own, experts beside an MLP (Gemma 4): whatever
# is done to sequences, their logits are those of plain decoding.
load ../helper

LONG='Once there was a cat that knew more than he did, and the king had three daughters by the river.'
NAMES='gemma4 gemma4-moe'

setup_file() {
    for name in $NAMES; do
        bmc-convert "$FIXTURES/families/$name" -o "$BATS_FILE_TMPDIR/$name.bmc" || return 1
        bmc-gen -q -m "$BATS_FILE_TMPDIR/$name.bmc" -p "$LONG" -n 32 --ignore-eos --stats "$BATS_FILE_TMPDIR/$name.json" >"$BATS_FILE_TMPDIR/$name.text" || return 1
    done
}

model() { echo "$BATS_FILE_TMPDIR/$1.bmc"; }

# same NAME WHAT: the run that wrote stats.json and out had the logits and the text of plain decoding.
same() {
    assert_equal "$2 $(jq -r .logits_hash stats.json)" "$2 $(jq -r .logits_hash "$BATS_FILE_TMPDIR/$1.json")"
    cmp out "$BATS_FILE_TMPDIR/$1.text" || fail "$2: another text"
}

@test "snapshots continue under every policy, and are verified" {
    for name in $NAMES; do
        bmc-gen -q -m "$(model $name)" -p "$LONG" -n 9 --ignore-eos --save-kv story.kv >first
        ok bmc-convert --verify story.kv
        bmc-convert --info --format json story.kv | jq -e '.version == 7 and (.layer_sizes | map(select(.kv_heads == 1 and .head_dim == 20)) | map(.layers) | add) == 1' >/dev/null
        for kv in $(kv_policies); do
            bmc-gen -q -m "$(model $name)" --load-kv story.kv -n 23 --ignore-eos --kv "$kv" --stats stats.json >rest
            { head -c -1 first; cat rest; } >out # no newline between them
            [ "$kv" = shift ] || same $name "$kv"
            assert_equal "$(jq .loaded_tokens stats.json)" "$(jq -n "$(printf '%s' "$LONG" | wc -c) + 8")"
        done
        # As many bytes of other sizes.
        cp story.kv other.kv
        layer=$(bmc-convert --info --format json story.kv | jq '[.layer_sizes[] | .layers as $n | . as $s | range($n) | $s] | map(.kv_heads == 1 and .head_dim == 20) | index(true)')
        sizes=$(($(od -A n -t u8 -j 424 -N 8 story.kv) + 24 * layer))
        bytes_le 8 2 | patch other.kv $sizes
        bytes_le 8 10 | patch other.kv $((sizes + 8))
        reseal_kv other.kv
        expect_error 1 "other.kv: has 2 KV heads of 10 in layer $layer, its model .* has 1 of 20: the file is damaged" \
            bmc-gen -q -m "$(model $name)" --load-kv other.kv -n 1
        # A value of the other size's last block.
        tables=$(od -A n -t u8 -j 24 -N 8 story.kv)
        printf '\377' | dd of=story.kv bs=1 seek=$((tables - 4096 + 1)) conv=notrunc status=none
        expect_error 1 'story.kv: V of layer [1-9] of sequence 0 has hash .*: it is damaged' bmc-convert --verify story.kv
    done
}

@test "prompt caches and the prefix cache in files are used, and speculative decoding and beams agree" {
    for name in $NAMES; do
        rm -rf chat.kv blocks
        for loaded in 0 94; do
            bmc-gen -q -m "$(model $name)" -p "$LONG" -n 32 --ignore-eos --prompt-cache chat.kv --stats stats.json >out
            same $name "prompt cache"
            assert_equal "$(jq .loaded_tokens stats.json)" "$loaded"
        done
        for kv in paged reserve; do
            bmc-gen -q -m "$(model $name)" -p "$LONG" -n 32 --ignore-eos --prefix-cache blocks --kv $kv --stats stats.json >out
            same $name "prefix cache, $kv"
        done
        [ "$(jq .prefix_cache_hit_tokens stats.json)" -ge 80 ]
        for drafter in '--lookup -k 4' '--suffix -k 6' '--recycle --tree 8'; do
            # shellcheck disable=SC2086
            bmc-spec -q -m "$(model $name)" $drafter -p "$LONG" -n 32 --ignore-eos --always --kv segment --stats stats.json >out
            same $name "$drafter"
        done
        for kv in bmc segment paged; do
            bmc-gen -q -m "$(model $name)" -p "$LONG" -n 10 --beams 3 --n-best 3 --kv "$kv" >"beams.$kv"
            cmp beams.bmc "beams.$kv"
        done
    done
}

@test "experts beside the MLP are read from disk, and predicted" {
    for prefetch in on off; do
        bmc-gen -q -m "$(model gemma4-moe)" -p "$LONG" -n 32 --ignore-eos --experts ram=200K,prefetch=$prefetch --stats stats.json >out
        same gemma4-moe "prefetch=$prefetch"
        [ "$(jq .experts_read_bytes stats.json)" -gt 0 ]
    done
}

# 5 layers with sliding windows have 2 KV heads of 16, of which 4 have entries; of 3 layers with full attention, 1 KV head of 32, 2 do.
@test "bmc-prof memory counts both sizes, and shared layers once" {
    cat >sizes.shape <<'END'
family gemma4
layers 8
hidden 32
heads 2
kv_heads 2
head_dim 16
full_head_dim 32
full_kv_heads 1
kv_shared 2
layer_input 8
ffn 32
vocab 260
context 128
window 17
layer_types sliding sliding full sliding full sliding full sliding
END
    token=$((2 * 4 * (4 * 2 * 16 + 2 * 32)))
    "$BMC_BIN/bmc-prof" memory --shape ./sizes.shape -N 128 -np 3 -p 100 -n 28 --cache-type f32 --kv upfront,reserve --format json >memory.json
    jq -e --argjson token $token 'all(.rows[]; .token_bytes == $token)' memory.json
    jq -e --argjson token $token '.rows[] | select(.policy == "standard (eq. 2)") | .kv_bytes == 3 * 128 * $token' memory.json
    jq -e --argjson token $token '[.rows[] | select(.policy == "upfront" or .policy == "reserve") | .kv_bytes == 3 * 128 * $token and .run_bytes == .kv_bytes] | length == 2 and all' memory.json
}

# with KEY BYTES TYPE VALUE..: replaces a value of a.gguf, BYTES long; a VALUE is SIZE:NUMBER.
with() {
    local at value
    at=$(($(grep -obUa "gemma4.$1" a.gguf | head -n 1 | cut -d: -f1) + 7 + ${#1}))
    {
        head -c "$at" a.gguf
        bytes_le 4 "$3"
        for value in "${@:4}"; do bytes_le "${value%:*}" "${value#*:}"; done
        tail -c +$((at + 4 + $2 + 1)) a.gguf
    } >b.gguf
    mv b.gguf a.gguf
}

# edited CHANGES: makes a.gguf, the file of gemma4 with `with CHANGE` for each of them, separated by semicolons.
edited() {
    local change last=per_layer_proj_norm.weight # the last tensor's name; its type, size and offset follow
    model=$FIXTURES/gguf/families/gemma4/model.gguf
    end=$(($(grep -obUa "$last" "$model" | tail -n 1 | cut -d: -f1) + ${#last} + 24))
    head -c "$end" "$model" >a.gguf
    while read -r -a change; do with "${change[@]}"; done <<<"${1//;/$'\n'}"
    truncate -s %32 a.gguf
    tail -c +$(((end + 31) / 32 * 32 + 1)) "$model" >>a.gguf
}

@test "GGUF keys with one value for all layers may be lists of equal values" {
    bmc-convert "$FIXTURES/gguf/families/gemma4/model.gguf" -o want.bmc
    edited "attention.key_length_swa 4 9 4:4 8:4 4:8 4:8 4:8 4:8"
    ok bmc-convert a.gguf -o a.bmc
    cmp want.bmc a.bmc
    edited "attention.key_length_swa 4 9 4:4 8:0"
    expect_error 1 "a.gguf: gemma4.attention.key_length_swa is no number" bmc-convert a.gguf -o a.bmc
}

@test "GGUF files with impossible values of layers are refused" {
    while IFS='|' read -r want changes; do
        edited "$changes"
        expect_error 1 "a.gguf: $want" bmc-convert a.gguf -o a.bmc
    done <<END
gemma4.block_count is 1025, more than 1024 layers|block_count 4 4 4:1025;attention.sliding_window_pattern 16 9 4:7 8:1025 $(printf '1:1 %.0s' {1..1025})
gemma4.feed_forward_length is -9223372036854775808 for layer 2, expected 4611686018427387904|feed_forward_length 28 9 4:11 8:4 8:$((1 << 62)) 8:$((1 << 62)) 8:$((1 << 63)) 8:$((1 << 63))
gemma4.feed_forward_length has 3 entries for 4 layers|feed_forward_length 28 9 4:5 8:3 4:12 4:12 4:24
gemma4.attention.key_length_swa is 8 for one layer and 16 for another; only one value for all layers is supported|attention.key_length_swa 4 9 4:4 8:4 4:8 4:8 4:16 4:8
gemma4.attention.shared_kv_layers is 1 for one layer and 2 for another; only one value|attention.shared_kv_layers 4 9 4:4 8:4 4:1 4:1 4:1 4:2
gemma4.attention.shared_kv_layers is no number|attention.shared_kv_layers 4 8 8:1 1:49
gemma4.rope.freq_base_swa differs between layers|rope.freq_base_swa 4 9 4:6 8:2 4:0 4:1
gemma4.attention.head_count differs between layers|attention.head_count 4 9 4:4 8:4 4:2 4:1 4:2 4:1
gemma4.attention.head_count_kv is 2 for layer 2, and -1 for another layer with sliding attention|attention.head_count_kv 4 9 4:5 8:4 4:-1 4:1 4:2 4:1
gemma4.attention.head_count_kv has 2 entries for 4 layers|attention.head_count_kv 4 9 4:5 8:2 4:1 4:1
rope_freqs.weight has 6 elements, expected half of gemma4.attention.key_length, 16|attention.key_length 4 4 4:16;attention.value_length 4 4 4:16;rope.dimension_count 4 4 4:16
END
}
