# GGUF types whose weights are points of a grid, and ternary ones: stored at their own width, the values of the gguf package, and
# the same logits whatever runs beside them. Values of single blocks are in quant_gguf.bats.
load ../helper

GGUF=$FIXTURES/gguf/quant-grids.gguf

taken() {
    local file=$BMC_BUILD/models/quant-grids.bmc
    if [ ! "$file" -nt "$BMC_BIN/bmc-convert" ]; then
        mkdir -p "$BMC_BUILD/models" && bmc-convert -q "$GGUF" -o "$file" || return 1
    fi
    echo "$file"
}

setup_file() {
    taken >/dev/null
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
}

@test "a model of these types has the values and logits of the dequantised model" {
    bmc-convert --type f32 "$GGUF" -o wide.bmc
    # What gguf's own functions make of the blocks, as an F32 file, gives this model: make_quant_gguf.py.
    assert_equal "$(bmc-convert --info --format json wide.bmc | jq -r .model_id)" 67f714ce70dface152d794ddf3766ce6e5da7de120ea574b59ea908f58823f18
    run "$BMC_BUILD/tests/test_transcode" "$(taken)" wide.bmc
    [ "$status" -eq 0 ] || fail "$output"
    for isa in $(isas); do
        for model in "$(taken)" wide.bmc; do
            BMC_ISA=$isa bmc-gen -m "$model" -p 'Once upon a time' -n 8 --ignore-eos --temp 0 --precision f32 -q --stats $(basename "$model").json >/dev/null
        done
        assert_equal "$(jq -r .logits_hash quant-grids.bmc.json)" "$(jq -r .logits_hash wide.bmc.json)"
    done
}

@test "they are stored in as many bytes (IQ1_M: 2 more per 256 weights), in blocks of 16 rows of whole lines" {
    bmc-convert --info --format json "$(taken)" | jq -r '.rows[] | select(.source) | "\(.source) \(.type) \(.shape | sub("x"; " ")) \(.bytes)"' >stored
    n=0
    while read -r source type out in bytes; do
        case $source in
        IQ3_S) block=110 ;; IQ3_XXS) block=98 ;; IQ2_S) block=82 ;; IQ2_XS) block=74 ;; IQ2_XXS | TQ2_0) block=66 ;; TQ1_0) block=54 ;; IQ1_S) block=50 ;; IQ1_M) block=58 ;; *) continue ;;
        esac
        assert_equal "$source $bytes" "$source $(((out + 15) / 16 * ((16 * block * in / 256 + 63) / 64 * 64)))"
        assert_equal "$type" "${source,,}"
        n=$((n + 1))
    done <stored
    [ "$n" -eq 14 ]
    ok bmc-convert --verify "$(taken)"
}

@test "every set: the same ids and logits under every policy, batch, chunk and number of threads, and with speculation" {
    gen() { bmc-gen -q -m "$(taken)" --ignore-eos --temp 0 -c 200 "$@"; }
    for i in 1 2 3 4 5; do echo "{\"id\": $i, \"prompt\": \"$(printf 'Once upon a time %.0s' $(seq $i))\", \"n\": $((4 + 3 * i))}"; done >in
    turn=0
    for isa in $(isas); do
        [ "$isa" != blas ] || continue # its sums depend on the batch: a draw of two logits can fall either way
        export BMC_ISA=$isa
        gen --jsonl --kv upfront -b 1 -t 1 --stats one.json <in | jq -c '[.id, .ids]' >one
        [ "$(wc -l <one)" -eq 5 ]
        for kv in $(kv_policies); do
            turn=$((turn + 1))
            sampled 8 || continue
            gen --jsonl --kv "$kv" -b $((turn % 5 + 1)) -t $((turn % 2 + 1)) --chunk $((turn * 7 % 30 + 1)) --stats many.json <in | jq -c '[.id, .ids]' >many
            equal_files many one
            assert_equal "$kv $(jq .logits_hash many.json)" "$kv $(jq .logits_hash one.json)"
        done
        ids=$(gen -p 'Once upon' -n 30 --ids --stats plain.json)
        ok bmc-spec -q -m "$(taken)" --ignore-eos --temp 0 -c 200 -p 'Once upon' -n 30 --ids --recycle --tree 8 --always --stats spec.json
        assert_equal "$output $(jq .logits_hash spec.json)" "$ids $(jq .logits_hash plain.json)"
    done
    [ "$turn" -gt 8 ]
}

@test "f16 scales that are NaN or infinite are refused, any other bytes are weights" {
    size=$(wc -c <"$GGUF")
    head -c $((size / 2)) "$GGUF" >bad.gguf
    head -c $((size - size / 2)) /dev/zero | tr '\0' '\377' >>bad.gguf # d = NaN, in every type
    expect_error 1 'has weights that are NaN or infinite as ' bmc-convert bad.gguf -o a.bmc
    head -c $((size / 2)) "$GGUF" >bad.gguf
    head -c $((size - size / 2)) /dev/zero | tr '\0' '\73' >>bad.gguf # 0x3b3b: d = 0.9
    ok bmc-convert -q bad.gguf -o a.bmc
    ok bmc-convert --verify a.bmc
}
