# Snapshots (saved KV caches): continuing one equals not having stopped. Ids are compared with uninterrupted runs and
# with the fixtures' reference ids; files with an independent reader written from bmc-kv(5).
load ../helper

setup_file() {
    for name in grimm grimm-draft andersen llama-3-like; do model "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

gen() { bmc-gen -q -m "$(model grimm)" "$@"; }
read_kv() { "$BMC_BUILD/tests/read_kv" "$@"; }

# A story of 4 + 20 tokens in story.kv.
tell() { gen -p 'Once upon a time' -n 20 --ignore-eos --save-kv story.kv "$@" >/dev/null; }

# ---- exactness ----

# The fused backend is bitwise reproducible, so logits_hash is compared, too.
fused() { bmc-gen -p x --attn '?' 2>&1 >/dev/null </dev/null | grep -q 'there are:.*fused'; }

# T is 1, 8 and N in a context of 64.
kv_values() {
    for policy in $(kv_policies); do
        case $policy in
        bmc) printf '%s\n' bmc:r={64,8,1} ;;
        *) echo "$policy" ;;
        esac
    done
}

run_batch() { # MODEL KV BATCH CONTEXT OPTION..
    local name=$1 kv=$2 batch=$3 context=$4
    shift 4
    bmc-gen -q -m "$(model "$name")" --jsonl --ignore-eos -b "$batch" -c "$context" --kv "$kv" --logprobs 3 --stats stats.json "$@"
}

@test "a snapshot made on one kernel set continues on another with the same bits" {
    local isa how=(--precision f32 --cache-type q8 --ignore-eos)
    gen -p 'Once upon a time' -n 12 "${how[@]}" --stats whole.json >/dev/null
    tell -n 5 "${how[@]}" --isa ref
    for isa in $(isas); do
        [ "$isa" = blas ] || ok gen -n 7 --load-kv story.kv "${how[@]}" --isa "$isa" --check-hash "$(jq -r .logits_hash whole.json)"
    done
}

# The reference's first BATCH prompts, N tokens each.
stories() { # MODEL BATCH N
    jq -c --argjson b "$2" --argjson n "$3" '.cases as $c | range($b) as $i | {id: "s\($i)", prompt: $c[$i % 4].prompt, n: $n}' "$(reference "$1")"
}

# BATCH requests with prompts of 1 to 4 tokens from the reference cases, which end MORE tokens after
# they had ROWS tokens.
requests() { # MODEL BATCH ROWS MORE
    jq -c --argjson b "$2" --argjson rows "$3" --argjson more "$4" '.cases as $c | range($b) as $i | ([$rows, 1 + $i % 4] | min) as $p |
        {id: "s\($i)", ids: $c[$i % 4].prompt_ids[:$p], n: ($rows + 1 - $p + $more)}' "$(reference "$1")"
}

# Compares, for each sequence, ROWS + MORE tokens of an uninterrupted run with those before and after the cut of every
# pair; log-probabilities of the same tokens must agree to 1e-4. Prints the first pair that differs.
same_results() { # BATCH WHOLE PIECES
    local status=0
    jq -nre --argjson n "$1" --slurpfile want "$2" --slurpfile all "$3" '
        def near(a; b): (a - b) | fabs < 2e-4;
        ($all | length / 2 / $n) as $pairs |
        if ($want | length) != $n or $pairs < 1 or $pairs != ($pairs | floor) then "another number of results" else
        first(range($pairs) as $k | range($n) as $i | $want[$i] as $w | $all[2 * $n * $k + $i] as $a | $all[2 * $n * $k + $n + $i] as $b |
            ($a.logprobs + $b.logprobs) as $got | select((
            $a.id == $w.id and $b.id == $w.id and $a.ids + $b.ids == $w.ids and $a.text + $b.text == $w.text and
            ($got | length) == ($w.logprobs | length) and
            all(range($got | length); . as $j | near($got[$j].logprob; $w.logprobs[$j].logprob))) | not) |
            "pair \($k), sequence \($i): \($a.ids) \($a.text) + \($b.ids) \($b.text), not \($w.ids) \($w.text)"), empty end
    ' >differs || status=$?
    # 4: no output. Unreadable input counts as a difference.
    [ "$status" -eq 4 ] || fail "jq ended with $status: $(head -c 2000 differs)"
}

# cut MODEL BATCH ROWS HOW TYPE WRITER..: saves sequences of ROWS tokens under each policy WRITER, and continues them
# under every policy.
cut_and_continue() {
    local name=$1 batch=$2 rows=$3 context=64 more=6 writer reader options=(--cache-type "$5") attn=()
    [ "$rows" -lt 50 ] || context=128
    if fused; then attn=(--attn fused); fi
    [ "$4" = greedy ] || options+=(--temp 0.9 --top-k 0 --min-p 0 --seed 11)
    requests "$name" "$batch" "$rows" $more | run_batch "$name" bmc:r=8 "$batch" $context "${attn[@]}" "${options[@]}" >whole
    local hash
    hash=$(jq .logits_hash stats.json)
    requests "$name" "$batch" "$rows" 0 >first
    for ((i = 0; i < batch; i++)); do echo "{\"id\": \"s$i\"}"; done >rest
    rm -f pieces all-stats
    for writer in "${@:6}"; do
        run_batch "$name" "$writer" "$batch" $context "${attn[@]}" "${options[@]}" --save-kv k.kv <first >a || fail "$*"
        read_kv k.kv >about || fail "$*: $(cat about)"
        [ "$(cut -d ' ' -f 1 about | sort -u)" -eq "$rows" ] || fail "$*: not $rows rows: $(cat about)"
        for reader in $(kv_values); do
            sampled 5 || continue
            cat a >>pieces
            run_batch "$name" "$reader" "$batch" $context "${attn[@]}" --threads 1 -n $more --load-kv k.kv <rest >>pieces || fail "$*, $reader"
            cat stats.json >>all-stats
        done
    done
    same_results "$batch" whole pieces || fail "$*"
    jq -se --argjson hash "$hash" --argjson fused "$(fused && echo true || echo false)" 'all(
        .loaded_tokens > 0 and .prefill_tokens == .sequences and (($fused | not) or .logits_hash == $hash) and
        if .kv_policy | test("^(bmc|reserve|segment)") then .kv_adopted_bytes > 0 else .kv_adopted_bytes == 0 and .kv_copied_rows > 0 end
        or (debug | false))' all-stats >/dev/null || fail "$*"
}

# A covering subset: every writer with a model, batch, length, sampling and type; a fifth of the readers reads it.
every_pair() { # MODEL..
    local writers lengths=(1 2 7 8 9 15 16 17 63 64 65) batches=(1 5) how=(greedy sampled) types=(f32) name batch rows h t k=$BMC_SEED models=("$@")
    mapfile -t writers < <(kv_values)
    # With OpenBLAS the last digit of a key may change its rounding to bf16, and thus a sampled token.
    if fused; then types+=(bf16); fi
    if [ "$BMC_FULL" = 1 ]; then
        for name in "$@"; do for batch in 1 5; do for rows in "${lengths[@]}"; do for h in "${how[@]}"; do for t in "${types[@]}"; do
            cut_and_continue "$name" $batch "$rows" "$h" "$t" "${writers[@]}"
        done; done; done; done; done
        return
    fi
    echo "# BMC_SEED=$BMC_SEED" >&3
    for writer in "${writers[@]}"; do
        cut_and_continue "${models[k % $#]}" "${batches[k / 3 % 2]}" "${lengths[k * 3 % 11]}" "${how[k / 2 % 2]}" "${types[k % ${#types[@]}]}" "$writer"
        k=$((k + 1))
    done
}

@test "saved and continued under every pair of policies: the same ids, text and logits" {
    if [ "$BMC_FULL" = 1 ]; then every_pair grimm; else every_pair grimm andersen llama-3-like; fi
}

@test "saved and continued with learned positions" {
    [ "$BMC_FULL" = 1 ] || skip "is in the one before"
    every_pair andersen
}

@test "saved and continued with BOS" {
    [ "$BMC_FULL" = 1 ] || skip "is in the first one"
    every_pair llama-3-like
}

@test "the comparison detects a different token, logit and text" {
    fused # else hashes of logits would not be compared at all
    run_batch grimm bmc 2 64 < <(stories grimm 2 6) >want
    run_batch grimm bmc 2 64 --save-kv k.kv < <(stories grimm 2 4) >pieces
    run_batch grimm bmc 2 64 --load-kv k.kv -n 2 < <(printf '{"id": "s%d"}\n' 0 1) >>pieces
    cat pieces pieces >twice
    same_results 2 want pieces
    same_results 2 want twice
    for edit in '.ids[1] += 1' '.logprobs[0].logprob += 0.001' '.text += "x"' '.id = "t"' 'empty'; do
        command jq -c "if input_line_number == 7 then $edit else . end" twice >other
        run same_results 2 want other
        [ "$status" -ne 0 ] || fail "$edit"
    done
    head -c 900 twice >torn
    run same_results 2 want torn
    [ "$status" -ne 0 ] || fail "a torn file"
}

@test "the reference ids, decoded in runs of 1, 7 and the rest from one file" {
    for kv in $(kv_policies); do
        rm -f story.kv
        got=$(gen -p 'Once upon a time' -n 5 --ids --ignore-eos --save-kv story.kv --kv "$kv")
        for n in 1 7 1 20; do got+=" $(gen --load-kv story.kv --save-kv story.kv -n $n --ids --ignore-eos --kv "$kv")"; done
        assert_equal "$got" "$(greedy_ids grimm 0 34)"
        assert_folder story.kv
    done
}

@test "new text is appended, tokenized by itself and without BOS" {
    m=$(model llama-3-like) # its template has a start token
    bmc-gen -q -m "$m" -p 'The wolf' -n 3 --save-kv story.kv --ids >first
    more=$(echo ' said' | bmc-gen -m "$m" --tokenize --format jsonl | jq -r '.ids[1:] | map(tostring) | join(" ")')
    start=$(echo 'The wolf' | bmc-gen -m "$m" --tokenize --format jsonl | jq -r '.ids | map(tostring) | join(" ")')
    ok bmc-gen -q -m "$m" --load-kv story.kv -p ' said' -n 6 --ids
    assert_output "$(bmc-gen -q -m "$m" --prompt-ids "$start $(cat first) $more" -n 6 --ids)"
    by_text=$output
    ok bmc-gen -q -m "$m" --load-kv story.kv --prompt-ids "$more" -n 6 --ids
    assert_output "$by_text"
    printf ' said' >more
    ok bmc-gen -q -m "$m" --load-kv story.kv -f more -n 6 --ids
    assert_output "$by_text"
    # Standard input is read only if named.
    ok bmc-gen -q -m "$m" --load-kv story.kv -n 2 --ids < <(echo x)
    assert_output "$(bmc-gen -q -m "$m" --prompt-ids "$start $(cat first)" -n 2 --ids)"
}

@test "saved within a UTF-8 character: the next run prints it, and the outputs concatenate" {
    m=$(model llama-3-like) # a random model: many tokens are single bytes
    for seed in 5 6; do
        options=(--prompt-ids "400 355 298 259" --ignore-eos --temp 1.5 --top-k 0 --min-p 0 --top-p 1 --seed $seed)
        whole=$(bmc-gen -q -m "$m" "${options[@]}" -n 60 && echo .)
        [ -n "$(tr -d '\000-\177' <<<"$whole")" ]
        for step in 1 7; do
            rm -f story.kv
            text=$(bmc-gen -q -m "$m" "${options[@]}" -n $step --save-kv story.kv && echo .)
            text=${text%$'\n.'}
            for ((n = step; n + step < 60; n += step)); do
                piece=$(bmc-gen -q -m "$m" --load-kv story.kv -n $step --ignore-eos --save-kv story.kv && echo .)
                text+=${piece%$'\n.'}
            done
            piece=$(bmc-gen -q -m "$m" --load-kv story.kv -n $((60 - n)) --ignore-eos && echo .)
            assert_equal "$text$piece" "$whole"
        done
        # With --echo the output is the whole text.
        bmc-gen -q -m "$m" "${options[@]}" -n 60 --echo >want
        for n in 9 10 11 12; do
            bmc-gen -q -m "$m" "${options[@]}" -n $n --save-kv story.kv >/dev/null
            bmc-gen -q -m "$m" --load-kv story.kv -n $((60 - n)) --ignore-eos --echo >got
            equal_files got want
        done
    done
}

# The bytes of a euro sign are ids 158, 224 and 105; 20 tokens without text, id 403, follow the first one.
@test "an incomplete character is kept over any number of tokens without text" {
    next() { ok bmc-gen -q -m "$(model llama-3-like)" --ignore-eos --logit-bias "$1=1e6" -n "$2" "${@:3}"; }
    next 403 20 --prompt-ids 158 --save-kv part.kv
    assert_output ''
    next 224 1 --load-kv part.kv --save-kv part.kv
    assert_output ''
    next 105 1 --load-kv part.kv
    assert_output '€'
}

@test "--echo prints the old text, too" {
    gen -p 'Once upon a time' -n 12 --echo >whole
    gen -p 'Once upon a time' -n 5 --save-kv story.kv >/dev/null
    gen --load-kv story.kv -n 7 --echo >out
    equal_files out whole
}

@test "sampler settings and seed come from the snapshot by default" {
    options=(--temp 0.9 --top-k 5 --top-p 0.8 --min-p 0.01 --repeat-penalty 1.3 --repeat-last-n -1 --seed 77)
    whole=$(gen -p 'The king' -n 30 --ids "${options[@]}")
    gen -p 'The king' -n 10 --ids "${options[@]}" --save-kv story.kv >first
    ok gen --load-kv story.kv -n 20 --ids --stats stats.json
    assert_equal "$(cat first) $output" "$whole"
    assert_equal "$(jq .seed stats.json)" 77
    ids=$(read_kv story.kv | sed 's/.*: //')
    ok gen --load-kv story.kv -n 20 --ids --temp 0
    assert_output "$(gen --prompt-ids "$ids" -n 20 --ids --repeat-penalty 1.3 --repeat-last-n -1)"
    ok gen --load-kv story.kv -n 20 --ids --seed 78
    assert_output "$(gen --prompt-ids "$ids" -n 20 --ids "${options[@]}" --seed 78)"
    ok gen --load-kv story.kv -n 20 --ids --top-k 1
    assert_output "$(gen --prompt-ids "$ids" -n 20 --ids "${options[@]}" --top-k 1)"
}

# A request for each sampling parameter: those of 60 tokens at once, and of 30 and 30. None has the ids of another.
@test "every sampling parameter is stored by name, with the state of its sampler" {
    cat >in <<'REQUESTS'
{"id": "temp", "temp": 0.7}
{"id": "top_k", "top_k": 3}
{"id": "top_p", "top_p": 0.5}
{"id": "min_p", "min_p": 0.3}
{"id": "top_n_sigma", "top_n_sigma": 0.6}
{"id": "typical_p", "typical_p": 0.4}
{"id": "repeat_penalty", "repeat_penalty": 1.5}
{"id": "repeat_last_n", "repeat_penalty": 1.5, "repeat_last_n": 20}
{"id": "presence_penalty", "presence_penalty": 2}
{"id": "frequency_penalty", "frequency_penalty": 1}
{"id": "xtc_probability", "xtc_probability": 0.9}
{"id": "xtc_threshold", "xtc_probability": 0.9, "xtc_threshold": 0.03}
{"id": "dynatemp_range", "dynatemp_range": 0.9}
{"id": "dynatemp_exponent", "dynatemp_range": 0.9, "dynatemp_exponent": 3}
{"id": "dry_multiplier", "dry_multiplier": 5}
{"id": "dry_base", "dry_multiplier": 5, "dry_base": 3}
{"id": "dry_allowed_length", "dry_multiplier": 5, "dry_allowed_length": 1}
{"id": "dry_penalty_last_n", "dry_multiplier": 5, "dry_allowed_length": 1, "dry_penalty_last_n": 25}
{"id": "dry_sequence_breakers", "dry_multiplier": 5, "dry_sequence_breakers": ["k", "in"]}
{"id": "mirostat", "mirostat": 2}
{"id": "mirostat_tau", "mirostat": 2, "mirostat_tau": 2}
{"id": "mirostat_eta", "mirostat": 2, "mirostat_eta": 0.5}
{"id": "samplers", "samplers": ["min_p", "temperature"]}
REQUESTS
    jq -c '{prompt: "Once upon a time there was a king, and the king said: the king, the king", temp: 1.1, seed: 5} + .' in >requests
    batch() { gen --jsonl --ignore-eos -t 1 "$@" | jq -c '[.id, .ids]'; }
    batch -n 60 <requests >whole
    assert_equal "$(jq -c '.[1]' whole | sort -u | wc -l)" "$(wc -l <in)"
    batch -n 30 --save-kv all.kv <requests >first
    jq -c '{id}' in | batch -n 30 --load-kv all.kv >second
    jq -nc --slurpfile a first --slurpfile b second 'range($a | length) as $i | [$a[$i][0], $a[$i][1] + $b[$i][1]]' | diff - whole
    # The table has no others: all rows behind "least", without the state of Mirostat.
    bmc-convert --info --format json all.kv >info
    command jq -r '.rows[0] | keys_unsorted | .[index("least") + 1:][] | select(. != "mirostat_mu")' info | sort >names
    diff names <(jq -r .id in | grep -v breakers | sort)
    jq -e '.rows[] | select(.id == "mirostat") | .mirostat == 2 and .mirostat_mu != 0 and .mirostat_mu != 10' info
    # Options win, and begin Mirostat's state anew; the text before is the same.
    gen -p 'Once' -n 20 --mirostat 2 --temp 1 --ids --save-kv one.kv >/dev/null
    assert_equal "$(gen --load-kv one.kv -n 20 --ids --mirostat-ent 2)" \
        "$(gen --load-kv one.kv -n 20 --ids --mirostat 2 --mirostat-ent 2 --temp 1)"
    # Files without names have some parameters; unknown names are refused.
    tables=$(number_at one.kv 24 8)
    cp one.kv old.kv
    bytes_le 8 0 | patch old.kv $((tables + 184))
    reseal_kv old.kv
    bmc-convert --info --format json old.kv | jq -e '.rows[0] | .temp == 1 and .top_p == 0.95 and .mirostat == 0'
    LC_ALL=C sed -i 's/"typical_p"/"typical_q"/' one.kv
    reseal_kv one.kv
    expect_error 1 'one.kv: has the sampling parameter "typical_q", which this version does not know' gen --load-kv one.kv -n 1
}

@test "-n 0 saves a prompt; an unchanged snapshot is written as it is" {
    gen -p 'Once upon a time' -n 0 --save-kv story.kv >/dev/null
    assert_equal "$(read_kv story.kv)" '4 4 16 0 0 0 - : 2090 675 262 509'
    ok gen --load-kv story.kv -n 8 --ids --ignore-eos --stats stats.json
    assert_output "$(greedy_ids grimm 0 8)"
    assert_equal "$(jq -c '[.loaded_tokens, .prefill_tokens]' stats.json)" '[3,1]' # the last row's logits choose the next token
    ok gen --load-kv story.kv -n 0 --save-kv copy.kv --stats stats.json
    assert_equal "$(jq -c '[.loaded_tokens, .prefill_tokens]' stats.json)" '[4,0]'
    assert_equal "$(read_kv copy.kv)" "$(read_kv story.kv)"
    assert_equal "$(read_kv copy.kv 0)" "$(read_kv story.kv 0)"
}

@test "continuing up to the end of the context" {
    gen -p 'Once upon a time' -n 16 -c 20 --ignore-eos --ids --save-kv story.kv >first
    assert_equal "$(cat first)" "$(greedy_ids grimm 0 16)"
    run --separate-stderr gen --load-kv story.kv -c 20 --ids --save-kv again.kv
    assert_success
    assert_output ''
    ok gen --load-kv again.kv -n 10 -c 30 --ids --ignore-eos
    assert_output "$(greedy_ids grimm 0 26 | cut -d ' ' -f 17-)"
    expect_error 1 'has 20 tokens with those of the snapshot, the context holds 19: .*-c' gen --load-kv story.kv -c 19 --ids
}

# ---- the file ----

@test "the independent reader finds the same entries under every policy" {
    for kv in $(kv_policies); do
        tell --kv "$kv" --temp 0.5 --seed 3
        read_kv story.kv 0 >rows.$kv
        read_kv story.kv >about.$kv
    done
    for kv in $(kv_policies); do
        awk '{ print $1, $2, $4, $5, $6 }' about.$kv >short.$kv
        cmp -s short.$kv short.bmc || fail "$kv: $(cat about.$kv about.bmc)"
        # 8 layers, K and V, 2 heads, 23 tokens; the last token has no entry yet.
        assert_equal "$(wc -l <rows.$kv)" $((8 * 2 * 2 * 23))
        same_numbers rows.$kv rows.bmc || fail "$kv"
    done
    assert_equal "$(cat short.bmc)" '23 24 3 0 0.5'
}

# Numbers that differ by 1e-4 at most.
same_numbers() {
    paste -d ' ' "$1" "$2" | awk '{ h = NF / 2; for (i = 3; i <= h; i++) if (($i - $(i + h)) ^ 2 > 1e-8) exit bad = 1 } END { exit bad || !NR }'
}

@test "bf16 entries are the f32 ones rounded, when written and when converted, in both directions" {
    gen -p "$(reference_text grimm 2 prompt)" -n 0 --save-kv story.kv >/dev/null
    read_kv story.kv 0 >f32
    run --separate-stderr gen --load-kv story.kv --cache-type bf16 -n 0 --save-kv b.kv
    assert_equal "$status/$stderr" '0/bmc-gen: story.kv: KV entries are converted from f32 to bf16'
    read_kv b.kv 0 >bf16
    refute cmp -s f32 bf16
    paste -d ' ' f32 bf16 | awk '{ h = NF / 2; for (i = 5; i <= h; i++) { d = $i - $(i + h); if (d * d > ($i / 256) ^ 2) exit bad = 1 } } END { exit bad || !NR }'
    # Converting back loses nothing; by default the type stays.
    run --separate-stderr gen --load-kv b.kv --cache-type f32 -n 0 --save-kv c.kv
    assert_equal "$status/$stderr" '0/bmc-gen: b.kv: KV entries are converted from bf16 to f32'
    equal_files <(read_kv c.kv 0) bf16
    ok gen --load-kv b.kv -n 3 --stats stats.json
    assert_equal "$(jq -r .kv_type stats.json)" bf16
    for kv in $(kv_policies); do
        ok gen --load-kv b.kv -n 12 --ids --kv "$kv"
        assert_output "$(gen --load-kv b.kv -n 12 --ids)"
    done
}

@test "--info and --verify" {
    tell --temp 0.25 --seed 9
    ok bmc-convert --info --format json story.kv
    assert_equal "$(jq -c '[.kind, .version, .sequences, .kv_type, .layers, .kv_heads, .head_dim]' <<<"$output")" '["snapshot",2,1,"f32",8,2,32]'
    assert_equal "$(jq -c '.rows[0] | [.id, .tokens, .rows, .prompt, .seed, .stream, .temp]' <<<"$output")" '[null,24,23,4,9,0,0.25]'
    assert_equal "$(jq -r .model_id <<<"$output")" "$(bmc-convert --info --format json "$(model grimm)" | jq -r .model_id)"
    ok bmc-convert --verify story.kv
    assert_output 'story.kv: ok'
    # Any byte of the entries; K and V of every layer have 2 * 32 * 32 * 4 bytes.
    for at in 4096 20000 30000 135167; do
        cp story.kv bad.kv
        flip bad.kv $at
        block=$(((at - 4096) / 8192))
        expect_error 1 "bad.kv: $([ $((block % 2)) = 1 ] && echo V || echo K) of layer $((block / 2)) of sequence 0 has hash .*, expected .*: it is damaged" bmc-convert --verify bad.kv
        run read_kv bad.kv
        [ "$status" -eq 1 ]
    done
}

# ---- batches ----

@test "--jsonl continues sequences by id, in any order, some of them, with new text" {
    stories grimm 5 9 | gen --jsonl --ignore-eos >whole
    stories grimm 5 4 | gen --jsonl --ignore-eos -b 2 --save-kv k.kv >/dev/null
    assert_equal "$(read_kv k.kv | awk '{ print $7 }' | sort | tr '\n' ' ')" '"s0" "s1" "s2" "s3" "s4" '
    ok gen --jsonl --ignore-eos --load-kv k.kv -n 5 < <(printf '{"id": "s%d"}\n' 3 0 4)
    assert_equal "$(jq -c .ids <<<"$output")" "$(jq -sc '.[3, 0, 4].ids[4:]' whole)"
    ok gen --jsonl --load-kv k.kv -n 5 < <(echo '{"id": "s1", "prompt": " and then"}')
    ids=$(read_kv k.kv | awk '$7 == "\"s1\""' | sed 's/.*: //')
    more=$(echo ' and then' | gen --tokenize --format jsonl | jq -r '.ids | map(tostring) | join(" ")')
    assert_equal "$(jq -r '.ids | map(tostring) | join(" ")' <<<"$output")" "$(gen --prompt-ids "$ids $more" -n 5 --ids)"
    ok gen --jsonl --load-kv k.kv < <(echo '{"id": "s1", "n": 2, "cancel": null}')
    some_fail 1 1 gen --jsonl --load-kv k.kv -n 5 < <(echo '{"id": "s9"}')
    assert_equal "$(jq -r '.finish + ": " + .error' <<<"$output")" 'error: line 1: k.kv: has no sequence with id "s9"'
    expect_error 1 'k.kv: has 5 sequences; --jsonl' gen --load-kv k.kv -n 5
}

@test "--jsonl: a sequence without id is continued by a request without id; duplicate ids by one request" {
    printf '{"id": "a", "prompt": "Once upon a time"}\n{"prompt": "The king"}\n' | gen --jsonl -n 3 --save-kv k.kv >first
    ok gen --jsonl -n 4 --load-kv k.kv < <(echo '{}'; echo '{"id": "a"}')
    assert_equal "$(jq -c '[.id, .ids]' <<<"$output")" "$(printf '{"prompt": "The king"}\n{"id": "a", "prompt": "Once upon a time"}\n' | gen --jsonl -n 7 | jq -c '[.id, .ids[3:]]')"
    run --separate-stderr gen --jsonl -n 3 --save-kv same.kv < <(printf '{"id": "a", "prompt": "%s"}\n' x y z)
    assert_equal "$status/$stderr" '0/bmc-gen: same.kv: several sequences have the id "a"; only the first that ended can be resumed'
    some_fail 1 1 gen --jsonl -n 3 --load-kv same.kv < <(echo '{}')
    assert_equal "$(jq -r .error <<<"$output")" 'line 1: same.kv: has no sequence without id'
}

@test "many sequences continue one snapshot" {
    gen -p 'Once upon a time' -n 0 --save-kv story.kv >/dev/null
    printf '{"id": %d, "prompt": "Once upon a time"}\n' 1 2 3 4 5 >fresh
    jq -c 'del(.prompt)' fresh >forks
    for kv in bmc reserve paged; do
        gen --jsonl --temp 0.9 --top-k 0 --seed 5 -n 12 -b 5 --kv $kv -f fresh >want
        gen --jsonl --temp 0.9 --top-k 0 --seed 5 -n 12 -b 5 --kv $kv -f forks --load-kv story.kv --save-kv five.kv >got
        equal_files got want
        [ "$(jq -c .ids got | sort -u | wc -l)" -eq 5 ] # each has its own random numbers
        assert_equal "$(read_kv five.kv | wc -l)" 5
    done
    # Also one of several, by name.
    gen --jsonl --load-kv five.kv -n 3 < <(echo '{"id": "a", "from": 2}'; echo '{"id": "b", "from": 2, "seed": 9}'; echo '{"id": 2}') >out
    assert_equal "$(jq -r .finish out | sort -u)" length
    assert_equal "$(jq -c .ids out | sort -u | wc -l)" 3
}

# ---- the prompt cache ----

@test "--prompt-cache: a shared prefix is not recomputed" {
    cached() { gen --prompt-cache chat.kv -n 6 --ids --stats stats.json -p "$1"; }
    ok cached 'Once upon a time'
    assert_output "$(gen -p 'Once upon a time' -n 6 --ids)"
    assert_equal "$(jq -c '[.loaded_tokens, .prefill_tokens]' stats.json)" '[0,4]'
    ok cached 'Once upon a time there was a king'
    assert_output "$(gen -p 'Once upon a time there was a king' -n 6 --ids)"
    assert_equal "$(jq -c '[.loaded_tokens, .prefill_tokens]' stats.json)" '[4,4]'
    ok cached 'Once upon a time there was a king'
    assert_equal "$(jq -c '[.loaded_tokens, .prefill_tokens]' stats.json)" '[7,1]'
    # Another end, and the shorter one again: entries behind the shared prefix do not matter.
    ok cached 'Once upon a time there lived'
    assert_output "$(gen -p 'Once upon a time there lived' -n 6 --ids)"
    ok cached 'Once upon'
    assert_output "$(gen -p 'Once upon' -n 6 --ids)"
    expect_error 1 '^bmc-gen: the prompt is empty' gen --prompt-cache chat.kv -p ''
    run --separate-stderr cached 'The wolf'
    assert_equal "$status/$stderr" "0/bmc-gen: chat.kv: has no prefix of the prompt, all of which is computed"
    assert_output "$(gen -p 'The wolf' -n 6 --ids)"
    ok cached 'The wolf'
    assert_equal "$(jq -c '[.loaded_tokens, .prefill_tokens]' stats.json)" '[1,1]'
    # Generated text counts, too; settings and seed do not.
    text=$(gen -p 'The wolf' -n 6)
    ok gen --prompt-cache chat.kv -p "The wolf$text" -n 1 --stats stats.json
    assert_equal "$(jq .loaded_tokens stats.json)" "$(jq -n '2 + 6 - 1')"
    expect_error 1 'another model' bmc-gen -q -m "$(model grimm-draft)" --prompt-cache chat.kv -p 'The wolf' -n 1
}

# ---- refusals ----

@test "files that are no snapshots of this model are refused" {
    tell
    expect_error 1 'story.kv: was made with another model \(model_id [0-9a-f]{16}.., .*grimm-draft.bmc has [0-9a-f]{16}..\); load it with' bmc-gen -q -m "$(model grimm-draft)" --load-kv story.kv
    expect_error 1 'another model .*, and another tokenizer' bmc-gen -q -m "$(model llama-3-like)" --load-kv story.kv
    expect_error 1 'nosuch.kv: cannot open' gen --load-kv nosuch.kv
    expect_error 1 'is a folder' gen --load-kv .
    expect_error 1 '^bmc-gen: -: snapshots are memory-mapped and cannot be read from a pipe' gen --load-kv - <story.kv
    expect_error 1 'is a device or pipe' gen --load-kv /dev/null
    expect_error 1 'is a .bmc model, expected a snapshot' gen --load-kv "$(model grimm)"
    : >empty.kv
    expect_error 1 'not a snapshot' gen --load-kv empty.kv
    expect_error 1 'story.kv: is a snapshot, expected a .bmc model' bmc-gen -q -m story.kv -p x
    head -c 300 story.kv >head.kv
    expect_error 1 'head.kv: has 300 bytes, its header alone has 4096: it is truncated' gen --load-kv head.kv
    for size in 1 8 511 4095 4096 100000 $(($(stat -c %s story.kv) - 1)); do
        head -c $size story.kv >cut.kv
        expect_error 1 'cut.kv: (not a snapshot|has [0-9]+ bytes, its header (says [0-9]+: truncated|alone has 4096: it is truncated))' gen --load-kv cut.kv
        expect_error 1 'cut.kv: ' bmc-convert --verify cut.kv
    done
    { cat story.kv; echo; } >long.kv
    expect_error 1 'has [0-9]+ bytes, its header says [0-9]+: something was appended, or it is damaged; create it again from its text' gen --load-kv long.kv
}

# broken OFFSET BYTES VALUE REGEX: a patched number with a valid hash is refused by every program.
broken() {
    cp story.kv broken.kv
    bytes_le "$2" "$3" | patch broken.kv "$1"
    reseal_kv broken.kv
    expect_error 1 "^bmc-gen: broken.kv: $4" gen --load-kv broken.kv -n 1
    for job in --verify --info; do
        ! sampled 3 || expect_error 1 "^bmc-convert: broken.kv: $4" bmc-convert $job broken.kv
    done
}

@test "impossible windows are refused, also in version 2, which has none" {
    tell
    tables=$(number_at story.kv 24 8)
    broken $((tables + 144)) 8 23 'sequence 0 has' # the rows that must be taken
    bytes_le 4 3 | patch story.kv 8
    bytes_le 8 23 | patch story.kv $((tables + 144))
    reseal_kv story.kv
    ok bmc-convert --verify story.kv
    for first in 2 $((-1)) $((1 << 63)) $((-23)); do broken $((tables + 136)) 8 "$first" 'sequence 0 has'; done
    broken $((tables + 144)) 8 24 'sequence 0 has'
    bytes_le 8 1 | patch story.kv $((tables + 136))
    reseal_kv story.kv
    for least in 0 22; do broken $((tables + 144)) 8 $least 'sequence 0 has'; done
    # Entries 1 to 23 are a window of 24 tokens, and useless otherwise.
    ok bmc-gen -q -n 1 --load-kv story.kv --kv shift -c 24 --stats window
    ok bmc-gen -q -n 1 --load-kv story.kv --stats whole
    assert_equal "$(jq .loaded_tokens window whole | xargs)" "0 0"
}

@test "impossible numbers in header and tables are refused" {
    tell
    tables=$(number_at story.kv 24 8) blocks=$(number_at story.kv 240 8)
    big=9223372036854775807
    broken 8 4 11 'snapshot version 11 is unsupported, this program reads versions 2 to 10'
    broken 8 4 8 'the sizes of layers are outside the tables'
    broken 8 4 6 'version 6 with 0 layers of 0 other KV heads of 0'
    for at in 368 376 384; do broken $at 8 1 'version 2 with [01] layers of [01] other KV heads of [01]'; done
    broken 8 4 4 'version 4 with a recurrent state of 0 bytes'
    broken 352 8 4096 'version 2 with a recurrent state of 4096 bytes'
    broken 40 8 0 '0 sequences'
    broken 40 8 2 '2 sequences of 8 layers do not fit'
    broken 160 4 9 'unknown type 9'
    broken 164 4 1 '.*layout 1'
    for at in 168 176 184; do for value in 0 1048577 $big; do broken $at 8 $value 'invalid shape'; done; done
    broken 168 8 7 '1 sequences of 7 layers'
    broken 176 8 3 'K of layer 0 of sequence 0 is at'
    broken 184 8 64 'K of layer 0'
    for at in 192 208 224 240; do
        broken $at 8 $big 'section'
        broken $at 8 4096 'section'
        broken $((at + 8)) 8 $big 'section|1 sequences'
    done
    broken $tables 8 1 'sequence 0 is outside'
    broken $((tables + 8)) 8 25 'sequence 0 is outside'
    broken $((tables + 8)) 8 22 'sequence 0 has inconsistent sizes: 22 tokens, 23 KV entries'
    broken $((tables + 16)) 8 0 'sequence 0 has inconsistent sizes: 24 tokens, 0 KV entries'
    broken $((tables + 16)) 8 25 'sequence 0 has'
    broken $((tables + 24)) 8 33 'sequence 0 has'
    broken $((tables + 24)) 8 48 'K of layer 0'
    broken $((tables + 24)) 8 $((1 << 62)) 'sequence 0 is larger|K of layer'
    broken $((tables + 32)) 8 25 'sequence 0 has'
    broken $((tables + 56)) 8 $((0x7ff8 << 48)) 'sequence 0 has invalid sampler settings'
    for value in 0x7ff8000000000000 0xfff0000000000000 0xbfe0000000000000 0x4000000000000000; do # NaN, -infinity, -0.5, 2
        for at in 64 72; do broken $((tables + at)) 8 $((value)) 'sequence 0 has invalid sampler settings'; done
    done
    for value in 0x7ff8000000000000 0 0x7ff0000000000000 0xbff0000000000000; do # NaN, 0, infinity, -1
        broken $((tables + 80)) 8 $((value)) 'sequence 0 has invalid sampler settings'
    done
    for at in 112 176 184; do broken $((tables + at)) 8 4096 'sequence 0 is outside'; done
    broken $blocks 8 8192 'K of layer 0'
    broken $((blocks + 8)) 8 $big 'K of layer 0'
    broken $((blocks + 64)) 8 4096 'V of layer 0'
    # Without an updated hash, the hash is the error.
    for at in 100 300 4000 $tables $((blocks + 30)); do
        cp story.kv broken.kv
        flip broken.kv $at
        expect_error 1 'header and tables have hash .*, expected .*: the file is damaged' gen --load-kv broken.kv -n 1
    done
    # Ids beyond the vocabulary.
    cp story.kv broken.kv
    bytes_le 4 4096 | patch broken.kv "$(number_at story.kv 208 8)"
    reseal_kv broken.kv
    expect_error 1 'id 4096 is outside the vocabulary' gen --load-kv broken.kv -n 1
}

@test "NaN entries are an error" {
    tell
    # Of V; the effect of NaN keys depends on the backend.
    for ((at = 12288; at < 12288 + 128; at += 4)); do bytes_le 4 $((0x7fc00000)) | patch story.kv $at; done
    expect_error 1 'no finite logits' gen --load-kv story.kv -n 1
}

@test "wrong usage: exit 2" {
    for job in --score --tokenize --detokenize; do
        expect_error 2 '--load-kv, --save-kv and --prompt-cache go with generation' gen $job --load-kv x -p y
    done
    expect_error 2 '--prompt-cache excludes' gen --prompt-cache x --load-kv y
    expect_error 2 '--prompt-cache excludes' gen --prompt-cache x --save-kv y -p z
    expect_error 2 '--prompt-cache goes with plain' gen --prompt-cache x --jsonl
}

# enlarge FROM TO CAP: the snapshot with CAP stored rows per head; blocks are holes in the file.
enlarge() {
    local tables block bytes=$(($3 * 2 * 32 * 4)) at i delta
    tables=$(number_at "$1" 24 8)
    at=$((4096 + 16 * bytes)) delta=$((4096 + 16 * bytes - tables))
    head -c 4096 "$1" >"$2"
    truncate -s $at "$2"
    tail -c +$((tables + 1)) "$1" >>"$2"
    { bytes_le 8 "$(stat -c %s "$2")"; bytes_le 8 $at; } | patch "$2" 16
    for i in 192 208 224 240; do bytes_le 8 $(($(number_at "$2" $i 8) + delta)) | patch "$2" $i; done
    bytes_le 8 "$3" | patch "$2" $((at + 24))
    block=$(number_at "$2" 240 8)
    for i in {0..15}; do { bytes_le 8 $((4096 + i * bytes)); bytes_le 8 $bytes; } | patch "$2" $((block + 64 * i)); done
    reseal_kv "$2"
}

@test "larger than memory: one line; in 4 GiB of address space it opens at once" {
    gen -p "$(reference_text grimm 0 prompt)" -n 0 --save-kv story.kv >/dev/null
    enlarge story.kv large.kv $((1 << 20)) # 16 blocks of 256 MiB
    for kv in bmc reserve paged; do
        ok gen --load-kv large.kv -n 3 --ids --ignore-eos --kv $kv --attend valid -c 64 --stats stats.json
        jq -e '.kv_copied_bytes < 100000 and .peak_resident_bytes < 1000000000' stats.json
    done
    sanitized && return
    limited() { ( ulimit -v 1000000 && gen "$@" ); }
    for kv in bmc reserve paged; do
        expect_error 1 'large.kv: cannot map 42949[0-9]+ bytes' limited --load-kv large.kv -n 3 --kv $kv
    done
}

# ---- writing ----

@test "an unwritable output is an error, and the old file stays" {
    tell
    cp story.kv before.kv
    expect_error 1 'nowhere/x.kv: cannot create' gen --load-kv story.kv -n 1 --save-kv nowhere/x.kv
    expect_error 1 'is a folder' gen --load-kv story.kv -n 1 --save-kv .
    expect_error 2 'save-kv: the name is empty' gen --load-kv story.kv -n 1 --save-kv ''
    printf model >model.bmc
    expect_error 1 'model.bmc: exists and is no snapshot, so it is not replaced' gen --load-kv story.kv -n 1 --save-kv model.bmc
    assert_equal "$(cat model.bmc)" model
    rm model.bmc
    expect_error 1 '/dev/null: is not the name of a regular file' gen --load-kv story.kv -n 1 --save-kv /dev/null
    limited() { ( ulimit -f 64 && gen "$@" ); }
    run --separate-stderr limited --load-kv story.kv -n 1 --save-kv story.kv
    [ "$status" -eq 1 ]
    [[ $stderr =~ ^bmc-gen:\ story.kv:\ cannot\ write:\ [^$'\n']*$ ]] || fail "$stderr"
    equal_files story.kv before.kv
    assert_folder before.kv story.kv
}

@test "a full disk leaves the old file" {
    run unshare -rm true
    [ "$status" -eq 0 ] || skip "no mount namespaces"
    tell
    cat >full.sh <<'END'
        set -e
        mkdir small
        mount -t tmpfs -o size=200k none small || exit 77
        cp story.kv small
        status=0
        "$BMC_BIN/bmc-gen" -q -m "$1" --load-kv small/story.kv --save-kv small/story.kv -n 2 2>err >/dev/null || status=$?
        cat err
        cmp story.kv small/story.kv
        [ "$(ls small)" = story.kv ]
        exit $status
END
    run env BMC_BIN="$BMC_BIN" unshare -rm bash full.sh "$(model grimm)"
    [ "$status" -ne 77 ] || skip "no tmpfs in a namespace"
    [ "$status" -eq 1 ] || fail "$status $output"
    assert_output --regexp '^bmc-gen: small/story.kv: cannot write: No space left on device$'
}

@test "SIGINT saves the sequences" {
    env --default-signal=INT "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -p 'Once upon a time' -n 900 --ignore-eos --ids --save-kv story.kv >out &
    pid=$!
    wait_until [ -s out ]
    kill -INT $pid
    code=0
    wait $pid || code=$?
    assert_equal "$code" 130
    assert_equal "$(cat out)" "$(read_kv story.kv | sed 's/.*: //' | cut -d ' ' -f 5-)"
    n=$(wc -w <out)
    ok gen --load-kv story.kv --ids --ignore-eos -n 4
    assert_output "$(gen -p 'Once upon a time' -n $((n + 4)) --ids --ignore-eos | cut -d ' ' -f $((n + 1))-)"
}

@test "a run killed at any time leaves a usable file" {
    kills=$([ "$BMC_FULL" = 1 ] && echo 200 || echo 25)
    gen -p 'Once upon a time' -n 1 --ignore-eos --save-kv story.kv >/dev/null
    # Times up to a little more than a run takes here.
    begin=$(date +%s%N)
    gen --load-kv story.kv --save-kv story.kv -n 1 --ignore-eos >/dev/null
    span=$((($(date +%s%N) - begin) * 5 / 4000)) # microseconds
    echo "# BMC_SEED=$BMC_SEED" >&3
    RANDOM=$BMC_SEED
    for ((killed = 0; killed < kills; killed++)); do
        "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --load-kv story.kv --save-kv story.kv -n 1 --ignore-eos >/dev/null 2>&1 &
        pid=$! moment=$(((RANDOM << 15 | RANDOM) % span))
        sleep "$(printf '%d.%06d' $((moment / 1000000)) $((moment % 1000000)))"
        kill -KILL $pid 2>/dev/null || true
        wait $pid 2>/dev/null || true
        ok bmc-convert --verify story.kv
        read_kv story.kv >/dev/null
        rm -f story.kv.tmp-* # what a killed program cannot take away itself
    done
    n=$(($(read_kv story.kv | sed 's/.*: //' | wc -w) - 4))
    echo "# $kills kills, $((n - 1)) tokens" >&3
    ok gen --load-kv story.kv -n 3 --ids --ignore-eos
    assert_output "$(gen -p 'Once upon a time' -n $((n + 3)) --ids --ignore-eos | cut -d ' ' -f $((n + 1))-)"
}

@test "two concurrent writers leave one of the two files" {
    tell
    for round in 1 2 3 4 5 6 7 8; do # bats uses i itself
        gen --load-kv story.kv --save-kv both.kv -n 1 >/dev/null &
        gen --load-kv story.kv --save-kv both.kv -n 2 >/dev/null
        wait
        ok bmc-convert --verify both.kv
        rows=$(read_kv both.kv | cut -d ' ' -f 1)
        [ "$rows" -eq 24 ] || [ "$rows" -eq 25 ]
        assert_folder both.kv story.kv
    done
}

@test "opening a snapshot copies nothing, and shares its pages" {
    # 903 tokens: 2 * 8 layers * 2 heads * 928 * 32 * 4 bytes = 3.8 MB.
    gen --prompt-ids "$(for ((i = 0; i < 903; i++)); do echo $((100 + i * 7 % 3000)); done)" -n 1 --ignore-eos --kv bmc:r=32 --save-kv long.kv >/dev/null
    for kv in bmc reserve; do
        ok gen --load-kv long.kv -n 1 --kv $kv --stats stats.json
        jq -e '.kv_resident_bytes == 0 and .kv_copied_bytes == 0 and .kv_adopted_bytes > 3600000' stats.json
    done
    # Behind the file's rows bmc copies once, and reserve continues in memory of its own.
    cap=$(read_kv long.kv | cut -d ' ' -f 3)
    ok gen --load-kv long.kv -n $((cap - 903 + 20)) --ignore-eos --kv bmc:r=64 --stats stats.json
    jq -e '.kv_allocations == 1 and .kv_copied_rows > 900' stats.json
    ok gen --load-kv long.kv -n $((cap - 903 + 20)) --ignore-eos --kv reserve:r=64 --stats stats.json
    jq -e '.kv_allocations == 1 and .kv_copied_rows == 0 and .kv_resident_bytes < 500000' stats.json
}

@test "bmc-prof latency starts from a snapshot, under every policy" {
    gen -p 'Once upon a time' -n 40 --ignore-eos --save-kv story.kv >/dev/null # 43 rows
    ok "$BMC_BIN/bmc-prof" latency -m "$(model grimm)" --load-kv story.kv -N 63 --every 8 --kv "$(kv_policies | tr ' ' ,)" -b 2 --format json
    assert_equal "$(jq -c '[.rows[] | .n, .N, .batch, .kv_type]' <<<"$output")" '[51,63,2,"f32",59,63,2,"f32",63,63,2,"f32"]'
    jq -e '.rows | all(.bmc_ms > 0 and .paged_ms > 0)' <<<"$output"
    prof() { "$BMC_BIN/bmc-prof" "$@"; }
    refused() { run --separate-stderr prof "${@:2}"; [ "$status" -ne 0 ] && [ -z "$output" ] && [[ $stderr =~ $1 ]] || fail "$stderr"; }
    refused 'story.kv: has 43 tokens, -N 43 must be larger' latency -m "$(model grimm)" --load-kv story.kv -N 43
    refused 'another model' latency -m "$(model grimm-draft)" --load-kv story.kv
    refused '--load-kv goes with latency' policies --load-kv story.kv
    refused 'excludes --shape' latency --load-kv story.kv --shape opt-125m
}

@test "snapshots of version 6, with the layers of a second size last, continue under every policy" {
    bmc-convert --synth "$FIXTURES/snapshots/two_sizes.shape" -o sizes.bmc -q
    gzip -dc "$FIXTURES/snapshots/two_sizes.kv.gz" >old.kv
    bmc-convert --info --format json old.kv | jq -e '.version == 6 and .layers == 6 and (.layer_sizes | map([.layers, .kv_heads, .head_dim])) == [[3, 2, 16], [3, 1, 32]]'
    ok bmc-convert --verify old.kv
    for kv in $(kv_policies); do
        ok bmc-gen -q -m sizes.bmc --load-kv old.kv -n 8 --ids --ignore-eos --isa ref --kv "$kv"
        assert_equal "$output" '125 125 103 143 150 253 53 147'
    done
    # Saved again, its layers are in the order of the model.
    ok bmc-gen -q -m sizes.bmc --load-kv old.kv -n 2 --ids --ignore-eos --isa ref --save-kv new.kv
    bmc-convert --info --format json new.kv | jq -e '.version == 7 and (.layer_sizes | map(.layers)) == [1, 1, 1, 2, 1]'
    ok bmc-gen -q -m sizes.bmc --load-kv new.kv -n 6 --ids --ignore-eos --isa ref
    [[ '125 125 103 143 150 253 53 147' == *" $output" ]]
}

@test "snapshots of version 4, with three recurrent states, continue from each of them" {
    local made=(-m states.bmc -q --ids --ignore-eos --isa ref) edited
    bmc-convert --synth "$FIXTURES/snapshots/three_states.shape" -o states.bmc -q
    gzip -dc "$FIXTURES/snapshots/three_states.kv.gz" >story.kv
    ok bmc-convert --verify story.kv
    ok bmc-gen "${made[@]}" --load-kv story.kv -n 5
    assert_equal "$output" '189 176 73 8 136' # those of the program that wrote it
    edited="$(seq -s ' ' 3 52) 9 9 9"
    cp story.kv edited.kv
    ok bmc-gen "${made[@]}" --prompt-cache edited.kv --prompt-ids "$edited" -n 5 --stats stats.json
    assert_equal "$output $(jq .loaded_tokens stats.json)" "$(bmc-gen "${made[@]}" --prompt-ids "$edited" -n 5) 32"
    tables=$(number_at story.kv 24 8)
    gen() { bmc-gen "${made[@]}" "$@"; }
    for at in 0 32 62 63 $((-1)); do broken $((tables + 160)) 8 "$at" 'sequence 0 has inconsistent'; done # it is 59, between 32 and 62
    broken 352 8 4 'the state of layer 0'
}

# A model with recurrent layers, and the ids of a prompt, where another token may take the place of one.
hybrid() {
    sed 's/^context .*/context 8192/' "$FIXTURES/snapshots/three_states.shape" >hybrid.shape
    bmc-convert --synth hybrid.shape -o hybrid.bmc -q
}
prompt() { awk -v n="$1" -v at="${2:--1}" 'BEGIN { for (i = 0; i < n; i++) printf "%d ", i == at ? 3 : 5 + i * 7 % 250 }'; }

@test "a snapshot has all recurrent states: an edit computes at most 512 tokens more than necessary, after saving again, too" {
    hybrid
    first() { bmc-gen -q -m hybrid.bmc -n 1 --ignore-eos --stats stats.json --prompt-ids "$@" >/dev/null; jq -c '[.loaded_tokens, .logits_hash]' stats.json; }
    first "$(prompt 7000)" --prompt-cache chat.kv >/dev/null
    for at in 6100 4300 2900 1700 600; do
        want=$(first "$(prompt 7000 $at)" | jq -r '.[1]')
        cp chat.kv copy.kv
        first "$(prompt 7000 $at)" --prompt-cache copy.kv | jq -e --arg want "$want" --argjson at $at '.[0] <= $at and .[0] >= $at - 512 and .[1] == $want'
        ok bmc-convert --verify copy.kv
        # The end is another now, before which the states have been loaded and saved again.
        first "$(prompt 7000 $at)" --prompt-cache chat.kv | jq -e --argjson at $at '.[0] >= $at - 512'
    done
}

@test "impossible recurrent states are refused, and more than a cache keeps are loaded" {
    local tables blocks states n bytes
    hybrid
    gen() { bmc-gen -q -m hybrid.bmc -t 1 "$@"; }
    gen --prompt-ids "$(prompt 100)" -n 1 --ignore-eos --save-kv story.kv >/dev/null
    tables=$(number_at story.kv 24 8) blocks=$(number_at story.kv 240 8)
    n=$(number_at story.kv $((tables + 160)) 8) states=$((blocks + 2 * 64)) bytes=$(number_at story.kv 352 8)
    [ "$n" -ge 4 ]
    broken 8 4 9 '1 sequences of 1 layers do not fit its tables'
    broken 352 8 0 'version 10 with a recurrent state of 0 bytes'
    broken 352 8 $((bytes - 4)) 'the state of layer 0 of sequence 0 is at'
    for value in 0 $((n - 1)) $((n + 1)) $((1 << 62)) $((-2)); do broken $((tables + 160)) 8 $value '1 sequences of 1 layers do not fit'; done
    for value in 1 $((-1)); do broken $((tables + 152)) 8 $value '1 sequences of 1 layers do not fit'; done
    for value in 0 $((-1)); do broken $((states + 48)) 8 $value 'sequence 0 has inconsistent'; done
    broken $((states + 48)) 8 "$(number_at story.kv $((states + 64 + 48)) 8)" 'sequence 0 has inconsistent' # twice the same
    broken $((states + 64 * (n - 1) + 48)) 8 99 'sequence 0 has inconsistent'                               # none at the end
    broken $states 8 8192 'the state of layer 0'
    broken $((states + 8)) 8 0 'the state of layer 0'
    # With a memory limit a cache keeps up to 8 states at regular positions, and 6 at others.
    gen --prompt-ids "$(prompt 2000)" -n 1 --ignore-eos --save-kv story.kv >/dev/null
    [ "$(number_at story.kv $(($(number_at story.kv 24 8) + 160)) 8)" -gt 15 ]
    ok gen --prompt-cache story.kv --memory 100M --prompt-ids "$(prompt 2000 1900)" -n 4 --ids --stats stats.json
    assert_equal "$output" "$(gen --prompt-ids "$(prompt 2000 1900)" -n 4 --ids)"
    [ "$(jq .loaded_tokens stats.json)" -gt 1800 ]
    [ "$(number_at story.kv $(($(number_at story.kv 24 8) + 160)) 8)" -le 15 ]
    ok bmc-convert --verify story.kv
}

@test "failing allocations while recurrent states are loaded and saved leave the old file" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    hybrid
    mkdir before
    bmc-gen -q -m hybrid.bmc --prompt-ids "$(prompt 100)" -n 1 --ignore-eos --save-kv before/chat.kv >/dev/null
    for call in memory write; do
        run "$BMC_BUILD/inject" -t before -m 12 -o "$RANDOM" -k "$BMC_BIN/bmc-convert" "$BMC_BUILD/inject.so" $call \
            "$BMC_BIN/bmc-gen" -m "$PWD/hybrid.bmc" -q -t 1 -n 1 --ignore-eos --prompt-cache chat.kv --prompt-ids "$(prompt 100 70)"
        [ "$status" -eq 0 ] || fail "$output"
        [[ $output =~ ^$call:\ [1-9][0-9]*\ calls,\ [1-9] ]] || fail "nothing failed: $output"
    done
}
