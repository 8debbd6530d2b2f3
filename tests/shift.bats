# Text without end in a window: --kv shift.
load helper

setup_file() {
    model grimm >/dev/null
    windowed grimm 64 >/dev/null
}

# The model NAME as a Mistral of the same weights whose layers see 64 positions: what `shift:S=64` makes of the model itself.
windowed() {
    local file="$BATS_FILE_TMPDIR/$1-$2.bmc" folder="$BATS_FILE_TMPDIR/$1-$2"
    if [ ! -e "$file" ]; then
        cp -rL "$BATS_TEST_DIRNAME/../models.d/$1" "$folder"
        sed -i -e 's/LlamaForCausalLM/MistralForCausalLM/' -e 's/"model_type": "llama"/"model_type": "mistral", "sliding_window": '"$2/" \
            -e 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 8192/' "$folder/config.json"
        bmc-convert "$folder" -o "$file" >/dev/null
    fi
    echo "$file"
}

@test "a window slides in its buffer: rows, padding, copies, bytes, roundings" {
    run "$BMC_BUILD/tests/test_shift"
    [ "$status" -eq 0 ] || fail "test_shift -> $output"
}

# 150 ids, which do not fit the window, and no circle.
long_prompt() { jq -nr '[range(150) | 260 + . * 7919 % 3000 | tostring] | join(",")'; }

@test "before the first roll over as bmc, then as bmc with a model of that window: any slack, chunk, rows, threads, batch, speculation" {
    ids=$(long_prompt)
    gen() { ok "bmc-$1" -q --temp 0 --ignore-eos --stats stats.json "${@:2}"; jq -r .logits_hash stats.json; }
    short=$(gen gen -c 64 -p 'Once upon a time' -n 40)
    want=$(gen gen -m "$(windowed grimm 64)" -c 512 --prompt-ids "$ids" -n 150)
    [ "$short" != "$want" ]
    while read -r how; do
        read -ra how <<<"$how"
        assert_equal "$how: $(gen "${how[@]}" -c 64 -p 'Once upon a time' -n 40)" "$how: $short"
        assert_equal "$how: $(gen "${how[@]}" -c 200 --prompt-ids "$ids" -n 150)" "$how: $want"
        [ "$(jq '.kv_policy == "shift" and .kv_copied_rows > 0' stats.json)" = true ]
    done <<'HOW'
gen --kv shift:S=64
gen --kv shift:S=64,slack=0 -t 1
gen --kv shift:S=64,slack=0.5 --rows valid --chunk 7
spec --kv shift:S=64,slack=2 --lookup --always
spec --kv shift:S=64 --recycle --tree 8 --always
HOW
    # Layers that have windows keep no more than those; each by itself and side by side with another text.
    assert_equal "$(gen gen -m "$(windowed grimm 64)" --kv shift -c 512 --prompt-ids "$ids" -n 150)" "$want"
    small=$(jq .kv_resident_bytes stats.json)
    gen gen --kv shift:S=64 -c 512 --prompt-ids "$ids" -n 150 >/dev/null
    assert_equal "$small" "$(jq .kv_resident_bytes stats.json)"
    jq -nc --argjson ids "[$ids]" '{$ids, n: 150}, {prompt: "a", n: 9}' >in
    bmc-gen -q --temp 0 --jsonl --ignore-eos --kv shift:S=64,slack=1 -c 100 <in | jq -c .ids >two
    bmc-gen -q --temp 0 --ids --ignore-eos -m "$(windowed grimm 64)" -c 512 --prompt-ids "$ids" -n 150 >one
    assert_equal "$(head -n 1 two | tr -d '[]')" "$(tr -s ' \n' , <one | sed 's/,*$//')"
}

# 5,000 with BMC_FULL=1. Where the best two are closer than 1e-3 either may come, and the text goes on from there.
@test "token after token as transformers has them with sliding_window = 64, far beyond the context" {
    n=$([ -n "${BMC_FULL:-}" ] && echo 5000 || echo 900)
    { read -r prompt; read -ra want; read -ra close; } <"$FIXTURES/window.txt"
    [ "${#want[@]}" -eq 5000 ]
    ok bmc-gen -q --ids --kv shift -c 64 --prompt-ids "$prompt" -n "$n" --ignore-eos --temp 0 --repeat-penalty 1.3 --repeat-last-n 64 --precision f32 --kv-type f32
    read -ra got <<<"${output//$'\n'/ }"
    [ "${#got[@]}" -eq "$n" ]
    i=0
    while [ "$i" -lt "$n" ] && [ "${got[i]}" = "${want[i]}" ]; do i=$((i + 1)); done
    [ "$i" -eq "$n" ] || [[ " ${close[*]} " == *" $i "* ]] || fail "id $i is ${got[i]}, not ${want[i]}"
}
