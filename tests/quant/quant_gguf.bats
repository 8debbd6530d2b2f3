# Quantised GGUF files: blocks are transcoded losslessly, packed, shown and checked.
load ../helper

GGUF=$FIXTURES/gguf/quant-types.gguf

# The model with everything taken over, made once.
taken() {
    local file=$BMC_BUILD/models/quant-types.bmc
    if [ ! "$file" -nt "$BMC_BIN/bmc-convert" ]; then
        mkdir -p "$BMC_BUILD/models" && bmc-convert "$GGUF" -o "$file" || return 1
    fi
    echo "$file"
}

setup_file() {
    taken >/dev/null
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

entry_of() { # FILE NAME: where the tensor's entry begins
    local offset at i n
    offset=$(info_of "$1" "$2" .offset)
    at=$(number_at "$1" 128 8)
    n=$(($(number_at "$1" 136 8) / 192))
    for ((i = 0; i < n; i++)); do
        if [ "$(number_at "$1" $((at + 192 * i + 80)) 8)" -eq "$offset" ]; then
            echo $((at + 192 * i))
            return
        fi
    done
    return 1
}

info_of() { # FILE NAME WHAT
    bmc-convert --info --format json "$1" | jq -r --arg n "$2" ".rows[] | select(.name == \$n) | $3"
}

# Puts bytes of a tensor in place in ./bad.bmc, with a stored hash and a header that fit them.
spoil() { # NAME OFFSET BYTES NUMBER
    local at bytes entry hash
    cp "$(taken)" bad.bmc
    at=$(info_of bad.bmc "$1" .offset)
    bytes=$(info_of bad.bmc "$1" .bytes)
    entry=$(entry_of bad.bmc "$1")
    bytes_le "$3" "$4" | patch bad.bmc $((at + $2))
    [ "$bytes" -le 65536 ] # a hash of one piece
    hash=$(tail -c +$((at + 1)) bad.bmc | head -c "$bytes" | b2sum -l 256 | cut -c -64)
    printf '%b' "$(sed 's/../\\x&/g' <<<"$hash")" | patch bad.bmc $((entry + 128))
    reseal bad.bmc
}

# ---- values ----

@test "blocks of every type are transcoded, packed and read losslessly" {
    run "$BMC_BUILD/tests/test_transcode" "$FIXTURES/gguf/blocks.bin"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -gt 100 ]
}

@test "a model of all types has the values and logits of the dequantised model" {
    bmc-convert --type f32 "$GGUF" -o wide.bmc
    # What gguf's own functions make of the blocks, as an F32 file, gives this model: make_quant_gguf.py.
    assert_equal "$(bmc-convert --info --format json wide.bmc | jq -r .model_id)" b78d819a51ebf491da01432c2e9495f8c8193d32b0e97a6adf58fd21c197673a
    run "$BMC_BUILD/tests/test_transcode" "$(taken)" wide.bmc
    [ "$status" -eq 0 ] || fail "$output"
    for isa in $(isas); do
        sampled 2 || continue
        for model in "$(taken)" wide.bmc; do
            BMC_ISA=$isa bmc-gen -m "$model" -p 'Once upon a time' -n 8 --ignore-eos --temp 0 --precision f32 -q --stats $(basename "$model").json >/dev/null
        done
        assert_equal "$(jq -r .logits_hash quant-types.bmc.json)" "$(jq -r .logits_hash wide.bmc.json)"
    done
}

# The table of bmc-convert(1): "GGUF BITS STORED BITS".
table_of_types() { sed -n '/^GGUF\tbits/,/^\.TE/p' "$ROOT/man/bmc-convert.1" | grep -E '^[A-Z0-9_]+\s' | grep -v '^GGUF' | tr '\t' ' '; }

@test "types that grow are reported, with bits and bytes before and after; not with -q" {
    run_plain bmc-convert "$GGUF" -o a.bmc
    assert_success
    assert_output ""
    # Of 64 x 256 in blocks of 256: 110 bytes, and 3 bits a weight with a scale of a byte for 16 and one of two for 256; 136
    # bytes, and 4 bits a weight with a scale of a byte for 32 and one of two for 256. Blocks of 16 rows are whole lines of 64.
    for line in 'Q3_K grows from 3.438 to 3.625 bits per weight, stored as q3_k: 1 tensor, 7424 bytes, 7040 bytes before' \
        'IQ4_XS grows from 4.25 to 4.375 bits per weight, stored as iq4_xs: 1 tensor, 8960 bytes, 8704 bytes before'; do
        grep -qxF "bmc-convert: $GGUF: $line" <<<"$stderr" || fail "$line is not in: $stderr"
    done
    refute grep -E 'Q8_0|Q4_0|Q4_1|Q5_0|Q5_1|Q2_K|IQ4_NL' <<<"$stderr"
    ok bmc-convert -q "$GGUF" -o a.bmc
    # What is quantised anew does not grow unasked, but loses: Q4_1, of which the file has one, is kept.
    run_plain bmc-convert --pure --type q4_1 "$GGUF" -o a.bmc
    [[ $stderr =~ ^bmc-convert:\ $GGUF:\ ([0-9]+)\ matrices\ of\ 5\ bits\ or\ fewer\ \(as\ [a-z0-9_]+\)\ are\ quantised\ again,[^$'\n']*$ ]] || fail "$stderr"
    assert_equal "${BASH_REMATCH[1]}" "$(bmc-convert --dry-run "$GGUF" --format json | jq '[.rows[] | select(.source | test("Q[245]_|Q3_|IQ4_")) | select(.source != "Q4_1" and (.shape | test("x")))] | length')"
}

@test "the man page's table of types has the reader's types, their block sizes and stored types" {
    table_of_types >table
    # Every type is stored as the one of the same name.
    sed -nE 's/^    (X\(|.*\{")([A-Z0-9_]+)"?, [0-9]+, (SMALL|SUPER|[0-9]+), ([0-9]+), .*/\2 \3 \4/p' "$ROOT/lib/format/gguf/block_types.c" |
        sed 's/SMALL/32/; s/SUPER/256/' | awk '{ print $1, 8 * $3 / $2, tolower($1) }' | sort >read
    [ "$(wc -l <read)" -eq 28 ]
    cut -d ' ' -f 1-3 table | sort >named
    equal_files named read
    # Stored bits, of matrices without padding; but 16 rows of 256 inputs of q6_k are 3360 bytes in whole lines of 64, as of
    # q3_k and iq4_xs.
    bmc-convert --info --format json "$(taken)" | jq -r '.rows[] | select(.source and (.shape | startswith("259") | not)) | "\(.source) \(.type) \(.bits)"' | sed 's/q6_k 6.625$/q6_k 6.5625/; s/q3_k 3.625$/q3_k 3.5625/; s/iq4_xs 4.375$/iq4_xs 4.3125/' | sort -u >stored
    [ "$(wc -l <stored)" -ge 12 ]
    while read -r source type bits; do grep -qE "^$source [0-9.]+ $type $bits\$" table || fail "$source $type $bits"; done <stored
}

@test "output does not depend on threads, or on whether it can seek" {
    bmc-convert -t 1 "$GGUF" -o one.bmc
    equal_files one.bmc "$(taken)"
    bmc-convert "$GGUF" -o - | cat >two.bmc
    equal_files two.bmc "$(taken)"
}

@test "a requested type is quantised, except where the source has it: those blocks are transcoded" {
    bmc-convert --pure --type q8_0 "$GGUF" -o a.bmc
    assert_equal "$(bmc-convert --info --format json a.bmc | jq -c '[.weight_type, ([.rows[] | .source, (.type | select(. != "f32"))] | unique)]')" '["q8_0",[null,"Q8_0","q8_0"]]'
    # Without --pure blocks that take no more bytes are kept.
    bmc-convert -q --type q5_0 "$GGUF" -o b.bmc
    assert_equal "$(bmc-convert --info --format json b.bmc | jq -c '[.rows[] | select(.type == "q5_0") | .source] | unique')" '[null,"Q5_0"]'
    assert_equal "$(bmc-convert --info --format json b.bmc | jq -c '[.rows[] | select(.source) | .source] - ["F32", "Q6_K", "Q8_0"] | unique | length')" 8
    ok bmc-convert --verify a.bmc
}

@test "scales that are NaN or infinite are refused" {
    # d of the last block of a Q6_K, m of the second block of a Q4_1, d of the first one of a Q4_K.
    for place in 99412:output.weight:q6_k 121462:blk.0.attn_v.weight:q4_1 7712:token_embd.weight:q4_k; do
        IFS=: read -r at name type <<<"$place"
        for scale in $((0x7c00)) $((0xfe01)); do
            cp "$GGUF" bad.gguf
            bytes_le 2 "$scale" | patch bad.gguf "$at"
            expect_error 1 "bad.gguf: tensor \"$name\" has weights that are NaN or infinite as $type; the model is damaged$" \
                bmc-convert bad.gguf -o a.bmc
            assert_folder bad.gguf
        done
    done
}

@test "quantised tensors with false entries are refused" {
    entry=$(entry_of "$(taken)" head.weight)
    n=0
    while IFS='|' read -r sentence edits; do
        cp "$(taken)" bad.bmc
        for edit in $edits; do # OFFSET:BYTES:NUMBER
            IFS=: read -r at bytes number <<<"$edit"
            bytes_le "$bytes" $((number)) | patch bad.bmc $((entry + at))
        done
        reseal bad.bmc
        expect_error 1 "^bmc-convert: bad.bmc: tensor [0-9]+ $sentence" bmc-convert --verify bad.bmc
        n=$((n + 1))
    done <<'END'
has an unknown type 99, layout 1 or number of dimensions 2$|0:4:99
has the wrong padding for layout "rows"$|4:4:0
has the wrong padding for layout "rows"$|4:4:0 48:8:259 56:8:256
has the wrong padding for layout "packed"$|8:4:1 24:8:1 56:8:1
has 57664 bytes, its shape needs 40256$|0:4:7
has 57664 bytes, its shape needs 119345390125318144$|16:8:1<<49 48:8:1<<49
has an invalid shape$|16:8:1<<58 48:8:1<<58
has an invalid shape$|24:8:1<<62 56:8:1<<62
END
    [ "$n" -eq 8 ]
}

# ---- what is shown ----

@test "--info shows stored types, source types and bits per weight" {
    bmc-convert --info --format json "$(taken)" >info
    assert_equal "$(jq -r '.rows[] | select(.source) | "\(.source) \(.type) \(.layout)"' info | sort -u | xargs)" \
        "IQ4_NL iq4_nl packed IQ4_XS iq4_xs packed Q2_K q2_k packed Q3_K q3_k packed Q4_0 q4_0 packed Q4_1 q4_1 packed Q4_K q4_k packed Q5_0 q5_0 packed Q5_1 q5_1 packed Q5_K q5_k packed Q6_K q6_k packed Q8_0 q8_0 packed"
    assert_equal "$(jq -c '[.rows[] | select(.name == "layers.0.q.weight", .name == "layers.0.k.weight", .name == "layers.1.q.weight", .name == "layers.1.v.weight", .name == "layers.1.k.weight") | .bits]' info)" \
        '[4.5,8.5,5.625,4.625,6.625]'
    assert_equal "$(jq -c '[.weight_type, .bits_per_weight]' info)" '["q6_k+q8_0+q5_k+q5_1+q5_0+q4_k+iq4_nl+iq4_xs+q3_k+q2_k+q4_1+q4_0",5.704]'
    jq -e '([.rows[].bytes] | add) * 8 / .parameters - .bits_per_weight | fabs < 0.001' info
    bmc-convert --info --format csv "$(taken)" | head -n 1 | grep -qx 'name,type,source,bits,layout,shape,padded,offset,bytes,blake2b'
    ok bmc-convert --info --format json "$(model grimm)"
    assert_equal "$(jq -c '[.weight_type, .bits_per_weight, ([.rows[] | .source, .bits] | unique)]' <<<"$output")" '["bf16",16.01,[null,16,32]]'
}

@test "--verify finds damaged weights, scales and padding, and scales that are not finite" {
    ok bmc-convert --verify "$(taken)"
    head=$(info_of "$(taken)" head.weight .offset)
    for at in 0 3100 3339; do # a code, a scale and a d of q6_k, blocks of 3392 bytes
        cp "$(taken)" bad.bmc
        flip bad.bmc $((head + at))
        expect_error 1 'bad.bmc: tensor "head.weight" has hash' bmc-convert --verify bad.bmc
    done
    spoil head.weight 0 1 $(($(number_at "$(taken)" "$head" 1) ^ 1))
    expect_error 1 'tensor "head.weight" does not match its canonical hash' bmc-convert --verify bad.bmc
    for at in $((16 * 3392 + 12)) 3391 $((16 * 3392 + 3072 + 3)); do # a code of row 259 of 259, behind the planes, a scale of row 259
        spoil head.weight $at 1 1
        expect_error 1 'tensor "head.weight" has non-zero padding' bmc-convert --verify bad.bmc
    done
    spoil head.weight $((3072 + 256)) 2 31744
    expect_error 1 'tensor "head.weight" has weights that are NaN or infinite' bmc-convert --verify bad.bmc
    spoil layers.0.attn_norm.weight 0 4 $((0x7fc00000)) # f32
    expect_error 1 'tensor "layers.0.attn_norm.weight" has weights that are NaN or infinite' bmc-convert --verify bad.bmc
}
