# bmc-prof and bmc-tune with types of few bits: synthetic weights, bytes of a step, peaks, precision, names of types.
#
# Times are never held against each other: any machine may be busy.

load helper

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    printf 'family llama\nlayers 2\nhidden 64\nheads 2\nkv_heads 1\nffn 96\nvocab 300\ncontext 512\nnorm_eps 1e-5\neos 0\n' >tiny.shape
}

# bench OPTION ..: rows as JSON in the file out.
bench() {
    ok bmc-prof bench --shape ./tiny.shape -r 1 --warmup 0 -t 1 --megabytes 1 --format json "$@"
    printf '%s' "$output" >out
}

# Bytes of a step, as roof_share counts them.
step_bytes() { jq '.rows[] | select(.test == "decode") | .roof_share * .step_ms * .roof_gb_s * 1e6 | round' out; }

@test "weights of every type that can be made, and no other" {
    for type in q8 q8c q4 q4s; do
        bench --type $type -p 2 -n 1
        assert_equal "$(jq -r '.rows[] | "\(.test) \(.weight_type) \(.precision)"' out | paste -s -d ,)" \
            "prefill $type int8,decode $type int8"
    done
    expect_error 2 '^bmc-prof: --type is that of random weights: it goes with --shape' bmc-prof bench -m "$(model grimm)" --type q4
    for type in q4k q6k q8k; do
        expect_error 2 "--type.*$type" bmc-prof bench --shape ./tiny.shape --type $type
    done
}

@test "precision: int8 is the default where weights or the cache are of few bits, and only there" {
    precision() {
        bench -p 0 -n 1 "$@"
        jq -r '.rows[0].precision' out
    }
    assert_equal "$(precision --type f32)" "$(precision --type f16 --kv-type f16)"
    assert_equal "$(precision --type q4)" int8
    assert_equal "$(precision --type q4 --precision f32)" f32
    assert_equal "$(precision --type f32 --kv-type q8)" int8
    run -0 precision --type f32
    refute_output int8
    bmc-convert "$ROOT/models.d/grimm-draft" --type q8c -o few.bmc 2>/dev/null
    ok bmc-prof bench -m few.bmc --layers 1 -p 0 -n 1 -r 1 --warmup 0 -t 1 --megabytes 1 --format json
    assert_equal "$(jq -r '.rows[0] | "\(.weight_type) \(.precision)"' <<<"$output")" "q8c int8"
}

@test "a step reads the rows of the cache with their scales" {
    # 2 (K, V) * 2 layers * 1 head * 128 rows * bytes of a row of 32
    for case in f32:128 bf16:64 f16:64 q8:36 q4:20; do
        bench --type f32 --kv-type "${case%:*}" -p 0 -n 2 -d 0,128
        assert_equal "$(jq -r '.rows[].kv_type' out | sort -u)" "${case%:*}"
        step_bytes >bytes
        assert_equal "${case%:*} $(($(sed -n 2p bytes) - $(sed -n 1p bytes)))" "${case%:*} $((2 * 2 * 128 * ${case#*:}))"
    done
}

@test "a step reads the weights with their scales" {
    # Numbers of the matrices of 2 layers and the head, and bytes of 32 of them; 5 vectors of 64 in f32; half a row of the cache
    numbers=$((2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64) + 300 * 64))
    for case in f32:128 bf16:64 q8:34 q4:20 q4s:18; do
        bench --type "${case%:*}" -p 0 -n 1
        assert_equal "${case%:*} $(step_bytes)" "${case%:*} $((numbers / 32 * ${case#*:} + 5 * 64 * 4 + 2 * 2 * 32 * 4 / 2))"
    done
}

@test "roof measures the peak of int8 products, with a set that the machine has" {
    ok bmc-prof roof -r 1 -t 1 --megabytes 1 --format json
    jq -e '.rows[0] | .int8_gop_s > 0 and (.int8_isa | IN("ref", "avx2", "avx512", "avxvnni", "vnni", "amx"))' <<<"$output"
    ok bmc-prof roof -r 1 -t 1 --megabytes 1
    [[ $output == *int8_gop_s* ]]
}

@test "the loops of every set that runs here count what they multiply" {
    run -0 "$BMC_BUILD/tests/test_peaks"
}

@test "prefill of few-bit weights is held against the int8 peak, at --precision f32 against that of f32" {
    kind() {
        bench -p 2 -n 1 "$@"
        jq -r '.rows[].roof_kind' out | paste -s -d ,
    }
    assert_equal "$(kind --type q4s)" int8,read
    assert_equal "$(kind --type q4s --precision f32)" f32,read
    assert_equal "$(kind --type f32 --kv-type q8)" f32,read # int8 is the scores' affair there
    ok bmc-prof roof -r 1 -t 1 --megabytes 1 --format json
    bf16=$(jq '.rows[0].bf16_isa != null' <<<"$output")
    [[ $(kind --type bf16) == f32,read || $bf16 == true ]]
}

@test "compare takes rows of few bits, and tells types apart" {
    for type in q8 q4; do
        bench --type $type --kv-type $type -p 2 -n 1 -r 4
        cp out $type.json
    done
    ok bmc-prof compare q8.json q8.json --format json
    assert_equal "$(jq -r '.rows[] | "\(.weight_type) \(.kv_type) \(.precision)"' <<<"$output" | sort -u)" "q8 q8 int8"
    run_plain bmc-prof compare q8.json q4.json
    assert_equal "$status" 1
    [[ $stderr == *"measured nothing alike"* ]]
}

# ---- bmc-tune ----

# A profile of this machine for -t 1 and TYPE, with constants of 1 for all it knows: T comes from the formula alone.
even_profile() { # TYPE
    local kept=$BATS_FILE_TMPDIR/$1
    [ -e "$kept" ] || bmc-tune --shape ./tiny.shape -N 64 -t 1 --kv-type "$1" --state cold --evict 1 --megabytes 1 --seconds 1 --no-sweep --no-rows -q --profile "$kept"
    cp "$kept" measured
    awk '$1 == "constant" { $11 = $2 == "alloc_s" ? 1e-15 : 1e9 } $1 != "T"' measured >"$1.profile"
}

@test "eq. 8 takes Q from the bytes of a row, scales and all; profiles name the cache's types" {
    # sqrt(G Q N / 2) with G = 2, N = 64 and rows of 128 bytes in f32: of 36 in q8, of 20 in q4
    for case in q8:36 q4:20; do
        type=${case%:*}
        even_profile "$type"
        grep -q "^T fused $type 64 2 2 1 64 " measured
        ok bmc-tune --shape ./tiny.shape -N 64 -t 1 --kv-type "$type" --state cold --evict 1 --constants "$type.profile" --no-sweep --no-rows --dry-run --format json
        jq -e --argjson bytes "${case#*:}" '.rows[0] | (.T_closed_gq - (2 * 128 / $bytes * 32 | sqrt) | fabs) < 0.01
            and (.T_closed - (2 * 32 | sqrt) | fabs) < 0.01' <<<"$output" || fail "$output"
        assert_equal "$(jq -r '.rows[0].kv_type' <<<"$output")" "$type"
    done
}

@test "bmc-prof takes T by the cache's type from the profile" {
    even_profile q8
    # The table has T of q8 alone; of f32 there are constants, of q4 nothing.
    printf 'T fused q8 64 2 2 1 64 32\n' >>q8.profile
    for case in q8:profile:32 f32:formula:8 q4:default:2; do
        ok bmc-prof bench --shape ./tiny.shape -p 0 -n 64 -r 1 --warmup 0 -t 1 --megabytes 1 --kv bmc --kv-type "${case%%:*}" --profile q8.profile --format json
        assert_equal "${case%%:*}:$(jq -r '.rows[0] | "\(.T_from):\(.T)"' <<<"$output")" "$case"
    done
}

@test "a profile with a type that no cache has is refused" {
    even_profile q8
    for type in q8c q4s q8k; do
        sed "s/^\(constant [a-z_]* [a-z-]*\) q8 /\1 $type /" q8.profile >wrong.profile
        expect_error 1 'a constant cannot be read' bmc-tune --shape ./tiny.shape -N 64 -t 1 --constants wrong.profile --no-sweep --no-rows --dry-run
    done
}

@test "the machine is calibrated for every type that a cache has" {
    ok bmc-tune --state cold --evict 1 --megabytes 1 --seconds 1 --no-sweep --no-rows --dry-run --format json -t 1 --attn fused
    assert_equal "$(jq -c '[.points[].kv_type] | unique' <<<"$output")" '["bf16","f16","f32","q4","q8"]'
}
