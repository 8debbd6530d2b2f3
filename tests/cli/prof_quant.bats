# bmc-prof and bmc-tune with quantised types: synthetic weights, bytes of a step, peaks, precision, names of types.
#
# Times are never compared, since the machine may be busy.

load ../helper

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
step_bytes() { jq '.rows[] | select(.test == "decode") | .step_bytes' out; }

@test "random weights of every quantised type, and of a mixture" {
    for type in q8_0 q8_channel q4_1 q4_0 q4_k q6_k q8_2l q5_0 q5_1 q5_k q3_k q2_k iq4_nl iq4_xs q4_k_m; do
        bench --type $type -p 2 -n 1
        assert_equal "$(jq -r '.rows[] | "\(.test) \(.weight_type) \(.precision)"' out | paste -s -d ,)" \
            "prefill $type int8,decode $type int8"
    done
    expect_error 2 '^bmc-prof: --type is that of random weights: it goes with --shape' bmc-prof bench -m "$(model grimm)" --type q4_1
    expect_error 2 '^bmc-tune: --type is that of random weights: it goes with --shape' bmc-tune -m "$(model grimm)" --type q4_1
    expect_error 2 "--type.*q7_k" bmc-prof bench --shape ./tiny.shape --type q7_k
}

@test "precision: int8 is the default for quantised weights or caches only" {
    precision() {
        bench -p 0 -n 1 "$@"
        jq -r '.rows[0].precision' out
    }
    assert_equal "$(precision --type f32)" "$(precision --type f16 --cache-type f16)"
    assert_equal "$(precision --type q4_1)" int8
    assert_equal "$(precision --type q4_1 --precision f32)" f32
    assert_equal "$(precision --type f32 --cache-type q8)" int8
    run -0 precision --type f32
    refute_output int8
    bmc-convert "$ROOT/models.d/grimm-draft" --type q8_channel -o few.bmc 2>/dev/null
    ok bmc-prof bench -m few.bmc --layers 1 -p 0 -n 1 -r 1 --warmup 0 -t 1 --megabytes 1 --format json
    assert_equal "$(jq -r '.rows[0] | "\(.weight_type) \(.precision)"' <<<"$output")" "q8_channel int8"
}

@test "bytes of a step include the scales of KV entries" {
    # 2 (K, V) * 2 layers * 1 head * 128 entries * bytes of a row of 32
    for case in f32:128 bf16:64 f16:64 q8:36 q6:27 q4:19 q4_1:20; do
        bench --type f32 --cache-type "${case%:*}" -p 0 -n 2 -d 0,128
        assert_equal "$(jq -r '.rows[].kv_type' out | sort -u)" "${case%:*}"
        step_bytes >bytes
        assert_equal "${case%:*} $(($(sed -n 2p bytes) - $(sed -n 1p bytes)))" "${case%:*} $((2 * 2 * 128 * ${case#*:}))"
    done
}

@test "bytes of a step include the scales of weights" {
    # Numbers of the matrices of 2 layers and the head, and bytes of 32 of them; 5 vectors of 64 in f32; an entry of the cache, read and written
    numbers=$((2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64) + 300 * 64))
    for case in f32:128 bf16:64 q8_0:34 q5_1:24 q5_0:22 q4_1:20 q4_0:18; do
        bench --type "${case%:*}" -p 0 -n 1
        assert_equal "${case%:*} $(step_bytes)" "${case%:*} $((numbers / 32 * ${case#*:} + 5 * 64 * 4 + 2 * 2 * 32 * 4 * 2))"
    done
}

@test "roof measures the int8 peak with a usable kernel set" {
    ok bmc-prof roof -r 1 -t 1 --megabytes 1 --format json
    jq -e '.rows[0] | .int8_gop_s > 0 and (.int8_isa | IN("ref", "avx2", "avx512", "avxvnni", "vnni", "amx"))' <<<"$output"
    ok bmc-prof roof -r 1 -t 1 --megabytes 1
    [[ $output == *int8_gop_s* ]]
}

@test "the peak loops of every usable set count their operations" {
    run -0 "$BMC_BUILD/tests/test_peaks"
}

@test "prefill with quantised weights is compared with the int8 peak, with --precision f32 with the f32 peak" {
    kind() {
        bench -p 256 -n 0 "$@"
        jq -r '.rows[].roof_kind' out
    }
    # Reading, measured once, may bound what tiles multiply faster; the f32 peak would be a hundred times too far.
    assert_regex "$(kind --type q4_0 --cache-type q8)" '^(int8|read)$'
    assert_equal "$(kind --type q4_0 --precision f32)" f32
    assert_equal "$(kind --type f32 --cache-type q8)" f32 # int8 concerns attention scores there
    ok bmc-prof roof -r 1 -t 1 --megabytes 1 --format json
    bf16=$(jq '.rows[0].bf16_isa != null' <<<"$output")
    [[ $(kind --type bf16) == f32 || $bf16 == true ]]
}

@test "compare distinguishes quantised types" {
    bench --type q8_0 --cache-type q8 -p 2 -n 1 -r 4
    cp out q8.json
    bench --type q4_1 --cache-type q4 -p 2 -n 1 -r 4
    cp out q4.json
    ok bmc-prof compare q8.json q8.json --format json
    assert_equal "$(jq -r '.rows[] | "\(.weight_type) \(.kv_type) \(.precision)"' <<<"$output" | sort -u)" "q8_0 q8 int8"
    sed 's/"weight_type":"q8_0"/"weight_type":"q8"/; s/"weight_type": "q8_0"/"weight_type": "q8"/' q8.json >old.json
    if cmp -s q8.json old.json; then fail "no type was renamed"; fi
    ok bmc-prof compare old.json q8.json # the name of an earlier version
    run_plain bmc-prof compare q8.json q4.json
    assert_equal "$status" 1
    [[ $stderr == *"no measurement in common"* ]]
}

# ---- bmc-tune ----

# A profile of this machine for -t 1 and TYPE with all rates equal: T comes from the formula alone.
even_profile() { # TYPE
    local kept=$BATS_FILE_TMPDIR/$1
    [ -e "$kept" ] || bmc-tune --shape ./tiny.shape -N 64 -t 1 --cache-type "$1" --state cold --evict 1 --megabytes 1 --seconds 0.1 --no-sweep --no-batch-knee -q --profile "$kept"
    cp "$kept" measured
    awk '$1 == "constant" { $11 = $2 == "alloc_s" ? 1e-15 : 1e9 } $1 != "T"' measured >"$1.profile"
}

@test "eq. 8 takes Q from the bytes of a KV entry with its scales; profiles name cache types" {
    # sqrt(G Q N / 2) with G = 2, N = 64 and rows of 128 bytes in f32: of 36 in q8, of 19 in q4
    for case in q8:36 q4:19; do
        type=${case%:*}
        even_profile "$type"
        grep -q "^T fused $type 64 2 2 1 64 " measured
        ok bmc-tune --shape ./tiny.shape -N 64 -t 1 --cache-type "$type" --state cold --evict 1 --constants "$type.profile" --no-sweep --no-batch-knee --dry-run --format json
        jq -e --argjson bytes "${case#*:}" '.rows[0] | (.T_closed_gq - (2 * 128 / $bytes * 32 | sqrt) | fabs) < 0.01
            and (.T_closed - (2 * 32 | sqrt) | fabs) < 0.01' <<<"$output" || fail "$output"
        assert_equal "$(jq -r '.rows[0].kv_type' <<<"$output")" "$type"
    done
}

@test "bmc-prof takes T by the cache's type from the profile" {
    even_profile q8
    # The table has T of q8 only; there are rates of f32, nothing of q4.
    printf 'T fused q8 64 2 2 1 64 32\n' >>q8.profile
    for case in q8:profile:32 f32:formula:8 q4:default:2; do
        ok bmc-prof bench --shape ./tiny.shape -p 0 -n 64 -r 1 --warmup 0 -t 1 --megabytes 1 --kv bmc --cache-type "${case%%:*}" --profile q8.profile --format json
        assert_equal "${case%%:*}:$(jq -r '.rows[0] | "\(.T_from):\(.T)"' <<<"$output")" "$case"
    done
}

@test "a profile with an unknown cache type is refused" {
    even_profile q8
    for type in q8_0 q4_0 q8_2l; do
        sed "s/^\(constant [a-z_]* [a-z-]*\) q8 /\1 $type /" q8.profile >wrong.profile
        expect_error 1 'a constant cannot be read' bmc-tune --shape ./tiny.shape -N 64 -t 1 --constants wrong.profile --no-sweep --no-batch-knee --dry-run
    done
}

@test "the machine is calibrated for every cache type" {
    ok bmc-tune --state cold --evict 1 --megabytes 1 --seconds 0.1 --no-sweep --no-batch-knee --dry-run --format json -t 1 --attn fused
    assert_equal "$(jq -c '[.points[].kv_type] | unique' <<<"$output")" '["bf16","f16","f32","q4","q4_1","q4h","q5","q6","q8","q8_channel"]'
}
