# bmc-prof quality: divergence from a reference. Expected figures are those of transformers (fixtures/compare_quality.py).
load ../helper

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    text=$FIXTURES/quality.txt
}

# The first row as JSON, or others by a filter.
quality() { "$BMC_BIN/bmc-prof" quality -t 1 --precision f32 --format json "$@"; }
first() { quality "$@" | jq -c '.rows[0]'; }

# Saved logits of grimm over the text, in a file of this name: quality_of NAME ARGUMENT..
save() { quality -m "$(model grimm)" -f "$text" -N 64 --save-logits "$@" | jq -e '.rows[0] | .kld_mean == null and .ppl > 1' >/dev/null; }

@test "quality: figures of two models are those of transformers, of a whole text and of windows" {
    for window in 0 64; do
        first -m "$(model grimm-draft)" --reference "$(model grimm)" -f "$text" $([ $window = 0 ] || echo -N $window) |
            jq -e --slurpfile want "$FIXTURES/quality.json" --arg window $window '
                . as $got | $want[0][$window] | del(.kld_mean_of_50) | length == 11 and all(to_entries[]; ($got[.key] / .value - 1 | fabs) < 1e-5)' || fail "$window"
    done
}

@test "quality: rows of positions make up that of all tokens" {
    cat "$text" "$text" >twice
    quality -m "$(model grimm-draft)" --reference "$(model grimm)" -f twice --plot by-position.svg | jq -e '
        def sum(f): map(f) | add;
        [.rows[].positions] == ["all", "1-255", "256-1023"] and (.rows[0] as $all | .rows[1:] |
            sum(.tokens) == $all.tokens and .[0].tokens == 255 and (sum(.tokens * .kld_mean) / $all.tokens - $all.kld_mean | fabs) < 1e-9 and
            (map(.kld_max) | max) == $all.kld_max and (sum(.tokens * (.ppl | log)) / $all.tokens - ($all.ppl | log) | fabs) < 1e-9)'
    for text in '>256-1023<' '>KL divergence (nats)<' 'reference: precision f32, KV cache f32'; do grep -qF "$text" by-position.svg || fail "$text"; done
}

@test "quality: a configuration equals itself, and adapters and cache types move it" {
    m=$BATS_TEST_TMPDIR/llama.bmc
    bmc-convert "$FIXTURES/families/llama-yarn" -o "$m" 2>/dev/null >&2
    first -m "$m" -f "$text" -N 64 --kv paged:16 | jq -e '.kld_max == 0 and .same_top == 1 and .ppl_ratio == 1 and .ppl_ratio_se == 0'
    first -m "$m" -f "$text" -N 64 --lora "$FIXTURES/lora/llama" | jq -e '.kld_mean > 1e-3'
    first -m "$m" -f "$text" -N 64 --cache-type q4 | jq -e '.kld_mean > 1e-6 and .kld_mean < 1 and .reference_kv_type == "f32" and .kv_type == "q4"'
    "$BMC_BIN/bmc-prof" cache-scales -m "$m" -f "$text" -t 1 -o scales 2>&1 >/dev/null | grep -q 'the text has 903 tokens: the first 160, the model.s context, are used'
    first -m "$m" -f "$text" -N 64 --cache-type q8:scales=scales --reference-cache-type q8 | jq -e '.kld_mean > 0 and .kld_mean < 0.1'
    printf '%s\n' 'sink 4' 'recent 32' '0 0' >heads
    "$BMC_BIN/bmc-prof" quality -m "$m" -f "$text" -N 64 -t 1 --kv headwise:group=1 --retrieval-heads heads --lora "$FIXTURES/lora/llama:0.5" --cache-type q8:scales=scales >table
    [[ $(head -n 3 table | tr '\n' ' ') == "policy headwise:group=1, retrieval_heads heads, streaming_heads 2, streaming_share 0.6667, kv_scales scales, lora $FIXTURES/lora/llama:0.5, reference $m, "* ]] || fail "$(<table)"
    first -m "$m" -f "$text" -N 64 --cache-type q4 --reference-cache-type q4 | jq -e '.kld_max == 0'
}

@test "quality: saved logits stand for their model, all of them or the most probable" {
    save all --save-top 0
    save few --save-top 50
    [ "$(stat -c %s few)" -eq $((256 + 237 * (12 + 6 * 50))) ]
    for file in all few; do
        first -m "$(model grimm-draft)" --reference $file -f "$text" >$file.json
        jq -e --slurpfile want "$FIXTURES/quality.json" --arg file $file '
            . as $got | $want[0]["64"] | all("ppl_ratio", "ppl_ratio_se", "same_top"; . as $f | ($got[$f] / $want[0]["64"][$f] - 1 | fabs) < 1e-5) and
            ($got.kld_mean / (if $file == "all" then .kld_mean else .kld_mean_of_50 end) - 1 | fabs) < 1e-4' $file.json || fail "$file: $(<$file.json)"
    done
}

@test "quality: saved logits of another text, window or vocabulary, and damaged ones are refused" {
    save good --save-top 4
    prof() { expect_error 1 "$1" "$BMC_BIN/bmc-prof" quality -m "$(model "${4:-grimm}")" --reference "$2" -f "${3:-$text}" "${@:5}"; }
    prof 'another text or tokenizer' good "$ROOT/LICENSE"
    prof 'windows of 64 tokens, this run has 32' good "$text" grimm -N 32
    prof '4096 tokens in its vocabulary, .* has' good "$text" llama-2-like
    head -c 300 good >cut
    prof 'has 300 bytes, its header says' cut
    head -c 100 good >cut
    prof 'it has only 100 bytes' cut
    cp good damaged
    printf x | dd of=damaged bs=1 seek=1000 conv=notrunc status=none
    prof 'hash mismatch' damaged
    for window in 0 1; do
        cp good damaged
        bytes_le 8 $window | patch damaged 48
        head -c 32 /dev/zero | patch damaged 56
        hash=$({ tail -c +257 damaged && head -c 256 damaged; } | b2sum -l 256)
        printf '%b' "$(sed 's/ .*//; s/../\\x&/g' <<<"$hash")" | patch damaged 56
        prof "with windows of $window tokens, in which none predicts another" damaged
    done
    expect_error 2 'go with a model' "$BMC_BIN/bmc-prof" quality -m "$(model grimm)" --reference good --reference-precision f32 -f "$text"
    expect_error 2 'measures one policy' "$BMC_BIN/bmc-prof" quality -m "$(model grimm)" --kv bmc,paged:16 -f "$text"
    for job in quality cache-types cache-scales heads; do
        expect_error 1 '/dev/null: is empty: give a longer text' "$BMC_BIN/bmc-prof" $job -m "$(model grimm)" -f /dev/null
    done
    echo other >story
    expect_error 1 'story: exists and is no file of saved logits' "$BMC_BIN/bmc-prof" quality -m "$(model grimm)" -f "$text" --save-logits story
}
