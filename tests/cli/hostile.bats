# Files that somebody made to do harm: nothing in them reaches a terminal raw, --verify sees through them, and rows that
# nobody vouches for change no result.
load ../helper

setup_file() {
    for name in grimm grimm-draft; do model "$name" >/dev/null; done
}

gen() { bmc-gen -q -m "$(model grimm)" "$@"; }

# No control character but line ends, and none of C1 either, as bytes or in UTF-8: what is printed here has no other bytes
# of that range.
assert_tame() { # FILE..
    if LC_ALL=C grep -naP '[\x00-\x09\x0b-\x1f\x7f-\x9f]' "$@" >found; then fail "$(cat -v found)"; fi
}

# Writes everything that a command says to ./said, and fails if it could steer a terminal.
tame() {
    "$@" >said 2>&1 || true
    [ -s said ]
    assert_tame said
}

make_tiny() {
    tiny_shape tiny.shape rope_scaling linear rope_factor 2 # lines at their defaults would not be there
    bmc-convert --synth ./tiny.shape -o tiny.bmc
}

# Puts text of the same length in the place of a line of the configuration of ./tiny.bmc, under the right hash.
change_config() { # LINE REPLACEMENT
    local at
    at=$(LC_ALL=C grep -obaF "$1"$'\n' tiny.bmc | head -n 1 | cut -d : -f 1)
    [ -n "$at" ]
    printf '%s' "$2" | patch tiny.bmc "$at"
    reseal tiny.bmc
}

# Gives a snapshot whose head or tables were patched the right hash again.
reseal_kv() {
    local hash
    head -c 32 /dev/zero | patch "$1" 64
    hash=$({ head -c 4096 "$1" && tail -c "$(number_at "$1" 32 8)" "$1"; } | b2sum -l 256)
    printf '%b' "$(sed 's/ .*//; s/../\\x&/g' <<<"$hash")" | patch "$1" 64
}

# The hash of bytes [FROM, FROM + SIZE) of a file, at most one piece of 65536, is written at another place of it.
rehash() { # FILE FROM SIZE AT
    [ "$3" -le 65536 ]
    printf '%b' "$(tail -c +$(($2 + 1)) "$1" | head -c "$3" | b2sum -l 256 | sed 's/ .*//; s/../\\x&/g')" | patch "$1" "$4"
}

# ---- terminals ----

escape=$'\e[31m' raw_c1=$'\x9b' c1=$'\xc2\x9b'

@test "keys and values of a model show no control characters, in any format" {
    make_tiny
    change_config 'rope_factor 2' "$escape${c1}fact 2"
    change_config 'rope_original 1' "$escape$c1${raw_c1}origin 1"
    change_config 'family llama' $'family \e[2Jx'
    for format in table md csv json jsonl; do
        tame bmc-convert --info tiny.bmc --format $format
        case $format in
        table | json)
            grep -q 'fact.*2' said
            grep -q 'origin.*1' said
            ;;
        esac
    done
    ok bmc-convert --info tiny.bmc --format json
    assert_equal "$(jq -c '.family' <<<"$output")" '"\u001b[2Jx"'
    tame bmc-gen -m tiny.bmc -p a -n 0 -c 999
}

@test "the name of a draft head shows no control characters" {
    mkdir target
    ln -s "$FIXTURES"/heads/target/* "$FIXTURES"/models/llama-3-like/tokenizer* target/
    bmc-convert target -o target.bmc
    bmc-convert "$FIXTURES/heads/eagle" -o tiny.bmc
    change_config 'family eagle' $'family \e[2Jx'
    tame bmc-spec -m target.bmc -d tiny.bmc -p a -n 2 --always --stats stats.json
    grep -q 'speculation .* = ?\[2Jx, chain' said
    jq -e '.drafter == "?[2Jx"' stats.json
}

@test "a key of the configuration does not pass for what the program found" {
    make_tiny
    id=$(bmc-convert --info tiny.bmc --format json | jq -r .model_id)
    change_config 'rope_factor 2' 'model_id 1234'
    ok bmc-convert --info tiny.bmc --format json
    assert_equal "$(jq -r .model_id <<<"$output")" "$id"
}

@test "names of files, options and requests are shown without control characters" {
    name="none$escape$raw_c1$c1"
    tame bmc-gen -m "$name" -p x
    tame bmc-gen "$name"
    tame bmc-gen -p x "--$name"
    tame bmc-gen -p x -n "$name"
    tame bmc-convert "$name" -o out.bmc
    tame bmc-convert --synth "$name" -o out.bmc
    cp "$(model grimm-draft)" "$name"
    tame bmc-convert --verify "$name"
    tame bmc-convert --info "$name"
}

@test "ids of requests and pieces of tokens are escaped in JSON, and replaced in tables" {
    printf '%s\n' '{"id": "\u001b[31m\u007f\u009b", "ids": [5], "n": 1}' >in
    gen --jsonl --save-kv s.kv <in >out
    assert_tame out
    assert_equal "$(jq -c .id out)" "$(jq -c .id in)"
    for format in table md csv json jsonl; do
        tame bmc-convert --info s.kv --format $format
        printf '\e[31m\x7f\xc2\x9b' | bmc-gen -q -m "$(model grimm)" --tokenize --format $format >out
        assert_tame out
        printf 'a\e[31m\x7f\xc2\x9b' | bmc-gen -q -m "$(model grimm)" --score --format $format >out
        assert_tame out
    done
    # What the model makes is the result, and stays as it is.
    ids=$(printf 'a\e\x7f\xc2\x9b' | bmc-gen -q -m "$(model grimm)" --tokenize --format jsonl | jq -r '.ids | map(tostring) | join(" ")')
    bmc-gen -q -m "$(model grimm)" --detokenize <<<"$ids" >out
    printf 'a\e\x7f\xc2\x9b\n' | cmp - out
}

# ---- what --verify sees ----

@test "--verify computes model_id and the canonical hashes anew" {
    make_tiny
    cp tiny.bmc bad.bmc
    flip bad.bmc 64
    reseal bad.bmc
    ok bmc-convert --info bad.bmc
    expect_error 1 'bad.bmc: .*model_id .* claims to be another model' bmc-convert --verify bad.bmc
    for tensor in 1 2; do # rows and packed
        cp tiny.bmc bad.bmc
        flip bad.bmc $(($(number_at tiny.bmc 128 8) + tensor * 192 + 160))
        reseal bad.bmc
        expect_error 1 'bad.bmc: tensor "layers.0.*canonical' bmc-convert --verify bad.bmc
    done
    ok bmc-convert --verify tiny.bmc
}

@test "--verify finds padding of a packed matrix that is not zero" {
    make_tiny
    entry=$(($(number_at tiny.bmc 128 8) + $(number_at tiny.bmc 136 8) - 192)) # the head, the last one
    at=$(number_at tiny.bmc $((entry + 80)) 8)
    bytes=$(number_at tiny.bmc $((entry + 88)) 8)
    bytes_le 2 32704 | patch tiny.bmc $((at + 36924)) # NaN in row 303 of 300, first column
    rehash tiny.bmc "$at" "$bytes" $((entry + 128))
    reseal tiny.bmc
    expect_error 1 'tensor "head.weight" has non-zero padding' bmc-convert --verify tiny.bmc
}

# spoil_kv OFFSET: a NaN in the first block of ./bad.kv, a copy of ./story.kv, under hashes that are right.
spoil_kv() {
    local blocks
    cp story.kv bad.kv
    blocks=$(number_at bad.kv 240 8)
    bytes_le 4 2143289344 | patch bad.kv $((4096 + $1))
    rehash bad.kv 4096 "$(number_at bad.kv $((blocks + 8)) 8)" $((blocks + 16))
    reseal_kv bad.kv
}

@test "--verify finds what stands behind the rows of a snapshot, and rows that are not finite" {
    gen -p 'Once upon a time' -n 20 --ignore-eos --save-kv story.kv >/dev/null
    spoil_kv $((23 * 128))
    expect_error 1 'bad.kv: K of layer 0 of sequence 0 is not zero after its 23 KV entries' bmc-convert --verify bad.kv
    spoil_kv $((22 * 128))
    expect_error 1 'bad.kv: K of layer 0 of sequence 0 has values that are NaN or infinite' bmc-convert --verify bad.kv
    cp story.kv bad.kv
    bytes_le 1 7 | patch bad.kv 600
    reseal_kv bad.kv
    expect_error 1 'bad.kv: byte 600 after the header is not zero' bmc-convert --verify bad.kv
    ok bmc-convert --verify story.kv
}

@test "--info shows a seed beyond 63 bits as it is" {
    ok bmc-gen -q -p x -n 1 --seed $((0x1234567890abcdef)) --save-kv s.kv
    at=$(LC_ALL=C grep -obUaP '\xef\xcd\xab\x90\x78\x56\x34\x12' s.kv | cut -d : -f 1)
    bytes_le 1 $((0x92)) | patch s.kv $((at + 7))
    reseal_kv s.kv
    ok bmc-convert --info s.kv --format json
    assert_regex "$output" "\"seed\": \"$(printf %u 0x9234567890abcdef)\","
    ok bmc-convert --info s.kv --format csv
    assert_regex "$output" ",$(printf %u 0x9234567890abcdef),"
}

# ---- rows that nobody vouches for ----

# NaN in rows [FROM, 128) of both heads of K and V of layer 0 of ./bad.kv, a copy of ./story.kv.
poison() { # FROM
    local head
    cp story.kv bad.kv
    for head in 0 1 2 3; do
        head -c $(((128 - $1) * 128)) /dev/zero | tr '\0' '\377' | patch bad.kv $((4096 + (head * 128 + $1) * 128))
    done
}

@test "NaN behind the rows of a snapshot changes nothing, under any policy" {
    gen -p 'Once upon a time' -n 100 --ignore-eos --kv bmc:r=64 --save-kv story.kv >/dev/null
    assert_equal "$(bmc-convert --info story.kv --format csv | tail -n 1 | cut -d , -f 4,5)" 103,128
    want=$(gen --load-kv story.kv -n 40 --ids --ignore-eos)
    poison 103
    for kv in $(kv_policies); do
        for rows in policy valid; do
            ok gen --load-kv bad.kv -n 40 --ids --ignore-eos --kv "$kv" --attend $rows
            assert_equal "$kv $output" "$kv $want"
        done
    done
}

@test "a prompt cache of which a part is used: the rest is not trusted either" {
    gen -p 'Once upon a time' -n 100 --ignore-eos --kv bmc:r=64 --save-kv story.kv >/dev/null
    want=$(gen -p 'Once upon a king' -n 12 --ids --ignore-eos)
    poison 4
    for kv in $(kv_policies); do
        cp bad.kv cache.kv
        ok gen --prompt-cache cache.kv -p 'Once upon a king' -n 12 --ids --ignore-eos --kv "$kv"
        assert_equal "$kv $output" "$kv $want"
    done
}

@test "what is adopted can be saved again with its room" {
    gen -p 'Once upon a time' -n 100 --ignore-eos --kv bmc:r=64 --save-kv story.kv >/dev/null
    gen --load-kv story.kv -n 2 --ignore-eos --save-kv again.kv >/dev/null
    assert_equal "$(bmc-convert --info again.kv --format csv | tail -n 1 | cut -d , -f 4,5)" 105,128
    ok bmc-convert --verify again.kv
}

# ---- names twice ----

@test "a tensor that is there twice is refused" {
    cp -r "$(folder llama-bias)" bad
    LC_ALL=C sed -i 's/layers\.0\.self_attn\.q_proj\.weight/layers.0.self_attn.o_proj.weight/' bad/model.safetensors
    expect_error 1 'model.safetensors: .*duplicate object key' bmc-convert bad -o out.bmc
    rm -r bad
    cp -r "$(folder llama-3-like)" bad
    sed -i 's/"weight_map": {/"weight_map": {"lm_head.weight": "model-00001-of-00003.safetensors",/' bad/model.safetensors.index.json
    expect_error 1 'index.json: .*duplicate object key' bmc-convert bad -o out.bmc
    make_tiny
    names=$(number_at tiny.bmc 144 8)
    tail -c +$((names + 5)) tiny.bmc | head -c 8 | patch tiny.bmc $((names + 20))
    reseal tiny.bmc
    expect_error 1 'names 0 and 1 are duplicates' bmc-gen -q -m tiny.bmc -p x -n 1
}

@test "--verify that runs out of memory does not advise to convert the model again" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    m=$(model llama-2-like)
    export BMC_FAIL_CALL=memory
    calls=$(BMC_FAIL_COUNT=9 LD_PRELOAD=$BMC_BUILD/inject.so "$BMC_BIN/bmc-convert" --verify "$m" 9>&1 >/dev/null)
    [ "$calls" -gt 10 ]
    met=0
    for ((at = calls; at > 0; at--)); do
        BMC_FAIL_AT=$at LD_PRELOAD=$BMC_BUILD/inject.so run_plain "$BMC_BIN/bmc-convert" --verify "$m"
        [ "$status" -ne 0 ] || continue
        assert_regex "$stderr" 'memory'
        refute_regex "$stderr" 'convert the model'
        [[ $stderr != *'tensor "'*'" cannot be verified: out of memory' ]] || met=$((met + 1))
    done
    [ "$met" -gt 0 ]
}

@test "--info prints integers of any size exactly" {
    cp "$(model llama-2-like)" big.bmc
    old=$'norm_eps 9.9999999999999995e-07\nposition rope\nrope_original 256'
    at=$(grep -abo 'norm_eps 9.9999999999999995e-07' big.bmc | cut -d : -f 1)
    for number in 9223372036854775807 9223372036854775808 18446744073709551615 99999999999999999999 -9223372036854775808 -9223372036854775809; do
        printf '%-*s' ${#old} $'norm_eps 1\nposition rope\nbig '"$number"$'\n#' | patch big.bmc "$at"
        reseal big.bmc
        ok bmc-convert --info big.bmc
        assert_regex "$output" $'\n'"big +$number"$'\n'
        ok bmc-convert --info big.bmc --format json
        assert_regex "$output" '"big": "?'$number'"?,'
    done
    jq -e '.big | type == "string"' <<<"$output" # beyond 64 bits
}

@test "a newline in a file name does not make a second line of output" {
    cp "$(model grimm-draft)" $'a\nb.bmc'
    ok bmc-convert --verify $'a\nb.bmc'
    assert_equal "$output" 'a?b.bmc: ok'
    bmc-gen -q -m "$(model grimm-draft)" -p x -n 2 --save-kv $'a\nb.kv' >/dev/null
    ok bmc-convert --verify $'a\nb.kv'
    assert_equal "$output" 'a?b.kv: ok'
    expect_error 2 'a\?bmc-tune: ok' bmc-tune $'a\nbmc-tune: ok'
}
