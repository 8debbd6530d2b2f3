# Rolling KV cache: --kv shift, and context shift with recomputation.
load ../helper

setup_file() {
    for name in grimm andersen; do model "$name" >/dev/null; done
    windowed grimm 64 >/dev/null
}

# The model NAME as a Mistral of the same weights whose layers see 64 positions: what `shift:S=64` makes of the model itself.
windowed() {
    local file="$BATS_FILE_TMPDIR/$1-$2.bmc" folder="$BATS_FILE_TMPDIR/$1-$2"
    if [ ! -e "$file" ]; then
        cp -rL "$ROOT/models.d/$1" "$folder"
        sed -i -e 's/LlamaForCausalLM/MistralForCausalLM/' -e 's/"model_type": "llama"/"model_type": "mistral", "sliding_window": '"$2/" \
            -e 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 8192/' "$folder/config.json"
        bmc-convert "$folder" -o "$file" >/dev/null
    fi
    echo "$file"
}

jq_is() { jq -e "$1" stats.json >/dev/null || fail "$1: $(cat stats.json)"; }

@test "unit test: entries, padding, copies and bytes of rolling buffers" {
    run "$BMC_BUILD/tests/test_shift"
    [ "$status" -eq 0 ] || fail "test_shift -> $output"
}

# 100 ids, more than the window, without repetition.
long_prompt() { jq -nr '[range(100) | 260 + . * 7919 % 3000 | tostring] | join(",")'; }

@test "shift equals bmc before the first roll-over, then bmc with a sliding-window model; any slack, chunk, threads, batch, drafts" {
    ids=$(long_prompt)
    gen() { ok "bmc-$1" -q -t 1 --temp 0 --ignore-eos --stats stats.json "${@:2}"; jq -r .logits_hash stats.json; }
    short=$(gen gen -c 64 -p 'Once upon a time' -n 40)
    want=$(gen gen -m "$(windowed grimm 64)" -c 512 --prompt-ids "$ids" -n 50)
    [ "$short" != "$want" ]
    while read -r how; do
        read -ra how <<<"$how"
        assert_equal "$how: $(gen "${how[@]}" -c 64 -p 'Once upon a time' -n 40)" "$how: $short"
        assert_equal "$how: $(gen "${how[@]}" -c 200 --prompt-ids "$ids" -n 50)" "$how: $want"
        [ "$(jq '.kv_policy == "shift" and .kv_copied_rows > 0' stats.json)" = true ]
    done <<'HOW'
gen --kv shift:S=64
gen --kv shift:S=64,slack=0 -t 2
gen --kv shift:S=64,slack=0.5 --attend valid --chunk 7
spec --kv shift:S=64,slack=2 --lookup --always
spec --kv shift:S=64 --recycle --tree 8 --always
HOW
    # Layers with a sliding window keep no more than that.
    assert_equal "$(gen gen -m "$(windowed grimm 64)" --kv shift -c 512 --prompt-ids "$ids" -n 50)" "$want"
    # Two sequences.
    jq -nc --argjson ids "[$ids]" '{$ids, n: 50}, {prompt: "a", n: 9}' >in
    bmc-gen -q -t 1 --temp 0 --jsonl --ignore-eos --kv shift:S=64,slack=1 -c 100 <in | jq -c .ids >two
    bmc-gen -q -t 1 --temp 0 --ids --ignore-eos -m "$(windowed grimm 64)" -c 512 --prompt-ids "$ids" -n 50 >one
    assert_equal "$(head -n 1 two | tr -d '[]')" "$(tr -s ' \n' , <one | sed 's/,*$//')"
}

# The same mask over a cache that keeps all entries: every head a streaming head.
@test "shift with attention sinks equals a whole cache with a mask of sinks and window; any slack, chunk, threads, drafts" {
    printf 'sink 4\nrecent 60\n' >list
    ids=$(long_prompt)
    gen() { ok "bmc-$1" -q -t 1 --temp 0 --ignore-eos --stats stats.json "${@:2}" --prompt-ids "$ids" -n 50; jq -r .logits_hash stats.json; }
    want=$(gen gen --kv headwise --retrieval-heads list)
    [ "$want" != "$(gen gen --kv shift:S=64)" ]
    while read -r how; do
        read -ra how <<<"$how"
        assert_equal "$how: $(gen "${how[@]}")" "$how: $want"
    done <<'HOW'
gen --kv shift:S=64,sinks=4
gen --kv shift:sinks=4,slack=0,S=64 -t 2
gen --kv shift:S=64,sinks=4,slack=0.5 --attend valid --chunk 7
spec --kv shift:S=64,sinks=4 --lookup --always
HOW
    expect_error 1 'sinks=33: a window of 64 rows takes at most 32 attention sinks' bmc-gen -q --kv shift:S=64,sinks=33 -p a -n 1
    expect_error 1 'sinks=1: a window of 2 rows takes at most 0 attention sinks' bmc-gen -q --kv shift:S=2,sinks=1 -p a -n 1
    expect_error 1 'sinks=4 is for a window that slides' bmc-gen -q --kv shift:sinks=4 --context-shift recompute -p a -n 1
    run --separate-stderr bmc-gen -q --ignore-eos --kv shift:S=64,sinks=4 --prompt-ids "$ids" -n 50 --save-kv s.kv
    assert_equal "$status" 1
    [[ $stderr == *'a sequence of 149 tokens is not saved: the rolling cache of 60 entries behind 4 attention sinks'* ]] || fail "$stderr"
}

# gemma2 has 4 layers of one KV head of 40 values; every other layer has a sliding window of 17.
@test "sliding-window layers keep their window only, and the result equals that of bmc" {
    bmc-convert "$FIXTURES/families/gemma2" -o gemma2.bmc
    gen() { ok bmc-gen -q -t 1 -m gemma2.bmc -c 97 --prompt-ids '5 9 14 7' -n 90 --ignore-eos --temp 0 --stats stats.json "$@"; jq -r .logits_hash stats.json; }
    want=$(gen)
    for kv in shift:slack=1 shift:slack=0.5; do
        assert_equal "$(gen --kv $kv --cache-type f32)" "$want"
        slack=${kv#*=}
        jq_is '.kv_resident_bytes == 2 * 40 * 4 * (2 * (96 * (1 + '$slack')) + 2 * 32)'
    done
}

# 5,000 with BMC_FULL=1. Where the best two logits differ by less than 1e-3 either is accepted, and decoding continues with it.
@test "far beyond the context, every token equals that of transformers with sliding_window = 64" {
    n=$([ -n "${BMC_FULL:-}" ] && echo 5000 || echo 400)
    { read -r prompt; read -ra want; read -ra close; } <"$FIXTURES/window.txt"
    [ "${#want[@]}" -eq 5000 ]
    ok bmc-gen -q -t 1 --ids --kv shift -c 64 --prompt-ids "$prompt" -n "$n" --ignore-eos --temp 0 --repeat-penalty 1.3 --repeat-last-n 64 --precision f32 --cache-type f32
    read -ra got <<<"${output//$'\n'/ }"
    [ "${#got[@]}" -eq "$n" ]
    i=0
    while [ "$i" -lt "$n" ] && [ "${got[i]}" = "${want[i]}" ]; do i=$((i + 1)); done
    [ "$i" -eq "$n" ] || [[ " ${close[*]} " == *" $i "* ]] || fail "id $i is ${got[i]}, not ${want[i]}"
}

@test "learned positions end; --context-shift recompute restarts with the last half of the context, and --keep" {
    gen() { bmc-gen -q -t 1 -m "$(model andersen)" -c 64 --temp 0 --ignore-eos --ids --stats stats.json "$@"; }
    expect_error 1 'have 104 tokens, but the model has learned positions for a context of 64: .* --context-shift recompute' gen --kv shift --prompt-ids '5 6 7 8' -n 100
    ok_cut gen --kv shift --prompt-ids '5 6 7 8'
    # Without --keep, too, the tokenizer's BOS stays in front (id 2): the last case.
    for case in '0 5 0' '4 5 4' '0 2 1'; do
        read -r keep first kept <<<"$case"
        how=(--kv shift --context-shift recompute --keep $keep --prompt-ids "$first 6 7 8")
        ok gen "${how[@]}" -n 130
        want="$output $(jq .logits_hash stats.json)"
        read -ra ids <<<"$first 6 7 8 ${output//$'\n'/ }"
        [ "${#ids[@]}" -eq 134 ]
        # 64 tokens are full with id 65; the rest is what the model gives for the kept ones and the last half of those 64.
        head=${ids[*]:0:kept} half=$(((64 - kept) / 2))
        ok gen --prompt-ids "$head ${ids[*]:64-half:half+1}" -n 20
        assert_equal "$(tr -s ' \n' ' ' <<<"$output")" "${ids[*]:65:20} "
        ok gen "${how[@]}" -n 130 --chunk 7 -t 2
        assert_equal "$output $(jq .logits_hash stats.json)" "$want"
        ok bmc-spec -q -t 1 -m "$(model andersen)" -c 64 --temp 0 --ignore-eos --ids --stats stats.json --lookup --always "${how[@]}" -n 130
        assert_equal "$output $(jq .logits_hash stats.json)" "$want"
    done
    # A window that slides leaves BOS behind, and says so; not that of a shorter text, or one without BOS.
    slide() { run_plain bmc-gen -m "$(model llama-3-like)" -t 1 --ignore-eos --ids --kv shift:S=16 "$@"; }
    slide --prompt-ids '403 6 7' -n 20
    [[ $stderr =~ 'the window of 16 left the BOS token behind' ]]
    for how in '403 6 7' '6 7 403'; do
        slide --prompt-ids "$how" -n $([ "$how" = '403 6 7' ] && echo 13 || echo 20)
        [[ $stderr != *BOS* ]]
    done
    expect_error 2 '--context-shift and --keep go with --kv shift' gen --prompt-ids 5 --context-shift recompute
    expect_error 2 '--keep goes with --context-shift recompute' gen --prompt-ids 5 --kv shift --keep 3
    expect_error 1 'of a context of 64 tokens at most 62 can be kept' gen --prompt-ids 5 --kv shift --context-shift recompute --keep 63
    expect_error 2 'neither with --beams nor with snapshots' gen --prompt-ids 5 --kv shift --context-shift recompute --save-kv x.kv
}

@test "a saved window is continued from its first position; for another window the prompt is recomputed" {
    gen() { bmc-gen -q -t 1 -c 100 --temp 0 --ignore-eos --ids --stats stats.json "$@"; }
    ids=$(long_prompt)
    ok gen --kv shift:S=64 --prompt-ids "$ids" -n 40
    want=$(tr -s ' \n' ' ' <<<"$output") hash=$(jq .logits_hash stats.json)
    ok gen --kv shift:S=64 --prompt-ids "$ids" -n 25 --save-kv s.kv
    first=$output
    ok bmc-convert --verify s.kv
    ok bmc-convert --info s.kv --format json
    assert_equal "$(jq -c '[.version, .rows[0].first, .rows[0].rows, .rows[0].least, .rows[0].tokens]' <<<"$output")" '[3,61,63,63,125]'
    for kv in shift:S=64,slack=0 shift:S=64,slack=3; do
        ok gen --load-kv s.kv --kv "$kv" -n 15
        assert_equal "$(tr -s ' \n' ' ' <<<"$first $output") $(jq '[.logits_hash, .loaded_tokens]' -c stats.json)" "$want [$hash,124]"
    done
    # A longer window needs more entries: the prompt is recomputed.
    ok gen --load-kv s.kv --kv shift:S=70 -n 15
    assert_equal "$(jq .loaded_tokens stats.json)" 0
    expect_error 1 'the context holds 100' gen --load-kv s.kv --kv bmc -n 15
    # Of entries computed without a window, the first ones can be used.
    ok bmc-gen -q -t 1 --prompt-ids "$ids" -n 1 --save-kv whole.kv
    ok bmc-gen -q -t 1 -c 100 --temp 0 --ignore-eos --ids --stats stats.json --kv shift:S=64 --prompt-cache whole.kv --prompt-ids "$ids" -n 40
    assert_equal "$(tr -s ' \n' ' ' <<<"$output") $(jq .loaded_tokens stats.json)" "$want 63"
    # A layer's window drops entries before the cache does: all are used, or none.
    w=$(windowed grimm 64)
    ok gen -c 512 -m "$w" --prompt-ids "$ids" -n 10
    want=$output
    ok gen -c 512 -m "$w" --prompt-ids "$ids" -n 1 --kv shift --save-kv layers.kv
    for kv in shift bmc; do
        ok gen -c 512 -m "$w" --load-kv layers.kv --kv $kv -n 9
        assert_equal "$output $(jq .loaded_tokens stats.json)" "$(cut -d ' ' -f 2- <<<"$(tr -s ' \n' ' ' <<<"$want")" | sed 's/ $//') 100"
    done
    run --separate-stderr gen -c 512 -m "$w" --prompt-cache layers.kv --prompt-ids "${ids%,*}" -n 1
    assert_equal "$(jq .loaded_tokens stats.json)" 0
    [[ $stderr =~ "has no prefix of the prompt" ]]
}

# The second request keeps the first 16 entries of a window that has rolled over, and its padding begins before those.
@test "a slot whose window rolled over is truncated for the next request, whose ids are those of a single run" {
    jq -nc '[range(16) | 7 * . % 97 + 1] as $same |
        {ids: ($same + [range(24) | 100]), n: 110}, {ids: ($same + [range(44) | 101]), n: 5}' >in
    tail -n 1 in | bmc-gen -q --jsonl --ignore-eos -c 160 >alone
    for slack in 0 0.3 1; do
        ok bmc-gen -q --jsonl -b 1 --ignore-eos -c 160 --kv "shift:S=160,slack=$slack" --stats stats.json <in
        jq_is '.shared_rows == 16'
        assert_equal "$(tail -n 1 <<<"$output")" "$(cat alone)"
    done
}

# The third request takes the second one's slot when the first, whose prompt it begins with, has dropped those entries.
@test "a request does not wait for a dropped prefix: rolling window, context shift, streaming heads" {
    jq -nc '[range(20) + 1] as $same | {ids: $same, n: 60}, {ids: [99], n: 40}, {ids: ($same + [30]), n: 2}' >in
    printf 'sink 4\nrecent 27\n0 0\n' >heads
    while read -r how; do
        read -ra how <<<"$how"
        while read -r line; do bmc-gen -q --jsonl --ignore-eos "${how[@]}" <<<"$line"; done <in >alone
        timeout 60 "$BMC_BIN/bmc-gen" -q --jsonl -b 2 --ignore-eos "${how[@]}" <in >batch || fail "${how[*]}: exit $?"
        assert_equal "$(wc -l <batch)" 3
        equal_files alone batch
    done <<'HOW'
--kv shift:S=32
--kv shift --context-shift recompute -c 32
--kv headwise --retrieval-heads heads
HOW
}
