# Memory of caches: bmc-prof memory compared with the papers and with runs, and admission control by bmc-gen --memory.
load ../helper

setup_file() {
    model grimm >/dev/null
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
}

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

# bytes FILE POLICY: the bytes that bmc-prof memory reported.
bytes() { jq -r --arg policy "$2" '.rows[] | select(.policy == $policy).kv_bytes' "$1"; }

@test "bmc-prof memory: the equations give the papers' figures" {
    bmc-prof memory --shape llama-2-7b -p 1 -n 1 -N 2048 --cache-type f16 --kv upfront --megabytes 1 --format json >window
    assert_equal "$(bytes window '2(N-1) rows')" 2146435072
    assert_equal "$(bytes window '1.5(N-1) rows')" 1609826304
    # 28 layers of GPT-J; the paper's 137 and 86 GB are those of 32.
    bmc-prof memory --shape gpt-j-6b -b 32 -p 1024 -n 1024 --beams 4 --cache-type f16 --kv segment --megabytes 1 --format json >gptj
    assert_equal "$(bytes gptj 'standard (eq. 2)')" $((32 * 4 * 2048 * 2 * 28 * 4096 * 2))
    assert_equal "$(bytes gptj 'segment (eq. 3)')" $((32 * 5 * 1024 * 2 * 28 * 4096 * 2))
    assert_equal "$(jq '.rows[1].over_standard' gptj)" 0.625
    assert_equal "$(bytes gptj segment)" "$(bytes gptj 'segment (eq. 3)')"
}

@test "bmc-prof memory: every policy allocates what its arithmetic predicts, and one sequence more does not fit" {
    bmc-prof memory -p 100 -n 37 --beams 1,3 -b 2 --memory 20M --format json >all
    run jq -e '[.rows[] | select(.run_bytes)] | length >= 12 and all(.run_over == 1 and .run_layers == .layers and .run_batch == 2)' all
    assert_success
    run jq -e '.rows | all(.fits * .kv_bytes / .batch <= 20971520 and (.fits + 2) * .kv_bytes / .batch > 20971520)' all
    assert_success
    bmc-prof memory -p 3 -n 0 -b 7 --kv bmc --format csv >csv
    assert_equal "$(wc -l <csv)" 6
}

@test "bmc-prof memory --memory: how many sequences of each policy fit" {
    printf 'family llama\nlayers 1\nhidden 32\nheads 2\nkv_heads 2\nffn 32\nvocab 300\ncontext 128\nnorm_eps 1e-5\neos 0\n' >tiny.shape
    # 48 tokens of 2 * 2 * 16 * 4 = 256 bytes; iterative has both blocks of the first 47 twice while it copies.
    bmc-prof memory --shape ./tiny.shape -p 30 -n 18 --memory $((7 * 48 * 256)) --kv paged,iterative,reserve --format json >out
    assert_equal "$(jq -c '[.rows[] | select(.T != null) | .fits]' out)" '[7,6,7]'
    bmc-prof memory --shape ./tiny.shape -p 30 -n 18 --memory 12287 --kv reserve --format json >out
    assert_equal "$(jq -c '[.rows[] | select(.T != null) | .fits]' out)" '[0]'
}

@test "a beam search allocates what the equations predict" {
    jq -nc '{ids: [range(64) | 5 + . * 7 % 300], n: 65}' >in # the last token of an answer has no row
    bmc-prof memory -p 64 -n 64 --beams 4 --cache-type f16 --megabytes 1 --format json >all
    for kv in segment paged:16; do
        ok bmc-gen -m "$(model grimm)" -t 1 -q --jsonl --ignore-eos --beams 4 --kv $kv --cache-type f16 --stats stats.json -f in
        assert_equal "$kv $(jq .kv_resident_bytes stats.json)" "$kv $(bytes all $kv)"
    done
    assert_equal "$(bytes all segment) $(bytes all paged:16)" "$(bytes all 'segment (eq. 3)') $(bytes all 'standard (eq. 2)')"
}

@test "beams continue a snapshot of one sequence, not one of several" {
    gen() { bmc-gen -m "$(model grimm)" -t 1 -q --ignore-eos --kv segment --stats stats.json "$@"; }
    ok gen --prompt-ids '5 12 19 26 33' -n 6 --beams 3 --n-best 3
    want="$output $(jq .logits_hash stats.json)"
    ok gen --prompt-ids '5 12 19 26 33' -n 0 --save-kv one.kv
    ok gen --load-kv one.kv -n 6 --beams 3 --n-best 3
    assert_equal "$output $(jq .logits_hash stats.json)" "$want"
    printf '%s\n' '{"id": 1, "ids": [5, 12]}' '{"id": 2, "ids": [7]}' >in
    ok gen --jsonl -n 0 --save-kv two.kv -f in
    expect_error 1 'two.kv: has 2 sequences, but a search of 4 beams begins with one: --jsonl resumes each' gen --load-kv two.kv -n 4 --beams 4
}

# ---- bmc-gen --memory ----

# 8 requests of different lengths, 4 with a shared prefix; one waits longer than others, one does not fit in 1M.
requests() {
    jq -nc '[range(60) | 5 + . * 7 % 300] as $head | range(8) as $i |
        {id: $i, ids: ((if $i % 2 == 0 then $head else [] end) + [range(3 + $i * 5) | 40 + $i + . * 3 % 50]), n: (3 + $i * 7 % 12)}'
    jq -nc '{id: "large", ids: [9, 8, 7], n: 700}, {id: "last", ids: [9, 8, 7, 6], n: 2}'
}

@test "--memory: as many requests in flight as fit, the same results, never more bytes, every policy" {
    requests >all
    grep -v '"large"' all >small
    gen() { bmc-gen -m "$(model grimm)" -t 1 -q --jsonl --ignore-eos --cache-type f16 --stats stats.json "${@:2}" <"$1"; }
    ok gen small
    echo "$output" >want
    for how in $(kv_policies) 'segment:step=64 --beams 2' 'bmc:r=16 --beams 2'; do
        case $how in upfront | shift) continue ;; esac # each of their requests needs the whole context
        if [[ $how = *beams* ]]; then
            ok gen small --kv $how
            echo "$output" >want
        fi
        # shellcheck disable=SC2086 # options
        some_fail 1 10 gen all --memory 700K --kv $how
        assert_equal "$(sed '/"large"/d' <<<"$output")" "$(<want)"
        assert_regex "$(grep '"large"' <<<"$output")" 'a prompt of 3 tokens and its continuation.* need [0-9]+ bytes of KV cache, --memory allows 716800: ask for fewer tokens'
        run jq -ce --arg how "$how" '[$how, .kv_policy, .sequences_at_once, .kv_resident_bytes], (.memory_bytes == 716800 and .kv_resident_bytes <= 716800 and .kv_resident_bytes > 150000 and
            (.sequences_at_once > 1 or ($how | contains("beams"))))' stats.json
        assert_success
    done
}

@test "--memory: first come first served, -b is the upper limit, impossible requests get an error" {
    jq -nc '{ids: [range(40) | 5 + .], n: 9}, {ids: [range(250) | 5 + .], n: 20}, {ids: [9, 8, 7], n: 2}' >in
    ok bmc-gen -m "$(model grimm)" -q --jsonl --unordered --ignore-eos --kv segment --memory 1100K --stats stats.json -f in
    assert_equal "$(jq -c '.ids | length' <<<"$output" | tr '\n' ' ')" '9 20 2 '
    assert_equal "$(jq -c '[.sequences_at_once, .batch]' stats.json)" "[1,$((1100 * 1024 / (16 * 4096)))]"
    ok bmc-gen -m "$(model grimm)" -q --jsonl --ignore-eos -c 300 --kv upfront --memory 2600K --stats stats.json -f in
    assert_equal "$(jq -c '[.sequences_at_once, .batch, .kv_resident_bytes]' stats.json)" "[2,2,$((2 * 304 * 4096))]"
    ok bmc-gen -m "$(model grimm)" -q --jsonl --ignore-eos --memory 1T -b 2 --stats stats.json -f in
    assert_equal "$(jq -c '[.sequences_at_once, .batch]' stats.json)" '[2,2]'
    expect_error 1 'a prompt of 1 token and its continuation in 4 beams need .* fewer tokens or beams' \
        bmc-gen -m "$(model grimm)" -q --prompt-ids 9 -n 5 --beams 4 --memory 100K
    expect_error 2 '--memory: needs a size, as 4G' bmc-gen -p x --memory 4Q
    expect_error 2 '--memory: needs a size' bmc-gen -p x --memory 0
    expect_error 2 '--memory goes with generation' bmc-gen --score --memory 4G
    run --separate-stderr bmc-gen -m "$(model grimm)" -p "The king" -n 3 --memory 1.5G
    assert_regex "$stderr" 'memory           = 1536.00 MiB for the cache: at most 1 request at a time'
}

@test "bmc-prof memory: the predicted peak is the measured one within 3 %" {
    [[ $BMC_BUILD != *sanitize* && -z $BMC_WRAP ]] || skip "sanitizers and emulators add memory of their own"
    ! grep -qF '[always]' /sys/kernel/mm/transparent_hugepage/enabled || skip "transparent huge pages round up every block"
    # Weights of 59 MiB, KV entries of 33 in f32, activations of 25. The prompts contain every token, thus read the whole embedding.
    printf '%s\n' "family llama" "layers 4" "hidden 1024" "heads 16" "kv_heads 16" "ffn 1024" "vocab 1000" "context 4096" "norm_eps 1e-5" "eos 2" >m.shape
    bmc-convert --synth m.shape -o m.bmc
    jq -nc 'range(2) as $i | {ids: [range(520) | (. + 500 * $i) % 1000], n: 8}' >in
    while read -r kv type alloc threads; do
        if ! sampled 3; then continue; fi
        ok bmc-gen -q -m m.bmc --jsonl -np 2 -c 528 --kv "$kv" --cache-type "$type" --alloc "$alloc" -t "$threads" --ignore-eos --temp 0 \
            --profile none --prefix-cache-mb 0 --no-spec --stats stats -f in
        bmc-prof memory -m m.bmc -np 2 -N 528 -p 520 -n 8 --kv "$kv" --cache-type "$type" --alloc "$alloc" -t "$threads" --profile none \
            --megabytes 1 --format json >rows 2>/dev/null
        run jq -ce --arg how "$kv $type $alloc $threads" --argjson measured "$(jq .peak_resident_bytes stats)" '.rows[-1] |
            [$how, $measured, .peak_bytes, .weight_bytes, .kv_bytes, .activation_bytes], (.peak_bytes / $measured | . > 0.97 and . < 1.03)' rows
        assert_success
    done <<'END'
bmc f32 malloc 2
bmc f32 pool 2
iterative f32 mmap 2
upfront bf16 malloc 1
reserve q8 malloc 2
segment q4 malloc 3
paged:16 f16 mmap 2
END
    # The parts: equations have no run, and activations grow with the largest pass, to chunks of 512.
    bmc-prof memory -m m.bmc -p 64,512,2048 -n 1 --kv bmc --profile none --megabytes 1 --format json >rows 2>/dev/null
    run jq -e '[.rows[] | select(.policy == "segment (eq. 3)") | .activation_bytes, .peak_bytes] | length > 0 and all(. == null)' rows
    assert_success
    run jq -e '[.rows[] | select(.policy == "bmc") | .activation_bytes] | .[0] < .[1] and .[2] < .[1] * 1.1' rows
    assert_success
}

@test "bmc-prof memory: several sequences that prepare their next growth have the bytes that a run counts, within 6 %" {
    jq -nc 'range(6) | {ids: [1, 2, 3, 4], n: 92}' >in
    for kv in bmc:T=8 bmc:T=8,grow=now reserve:T=8; do
        ok bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos --no-spec -np 6 -c 256 -t 1 --kv "$kv" --stats stats -f in
        ok "$BMC_BIN/bmc-prof" memory -m "$(model grimm)" -np 6 -N 256 -p 4 -n 92 -t 1 --kv "upfront,$kv" --megabytes 1 --format json
        # upfront holds no more than its entries: 6 sequences of 256, each with 2 x 64 x 8 layers of f32.
        run jq -ce --arg kv "$kv" --argjson counted "$(jq .kv_resident_bytes stats)" '(.rows[-1].peak_bytes - .rows[-2].peak_bytes + 6 * 256 * 4096) |
            [$kv, $counted, .], (. / $counted | . > 0.99 and . < 1.06)' <<<"$output"
        assert_success
    done
}

@test "bmc-prof memory: a part of the layers has its share of the recurrent state" {
    # Falcon-H1: every one of 24 layers has both KV entries and a state; 40 MB hold some of them, not all.
    bmc-prof memory --shape falcon-h1-1.5b -p 100 -n 20 --kv bmc --megabytes 40 --format json >rows
    run jq -ce '.rows[-1] | [.kv_bytes, .run_layers, .run_bytes, .run_over],
        (.run_layers > 1 and .run_layers < 24 and .run_bytes * 24 == .kv_bytes * .run_layers and .run_over == 1)' rows
    assert_success
}
