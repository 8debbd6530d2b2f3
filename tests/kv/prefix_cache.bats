# The prefix cache on disk (--prefix-cache): results equal those without it, to the bit; blocks are found by later and by
# concurrent processes, survive their ends, and damaged ones are computed again.
load ../helper

setup_file() {
    for name in grimm grimm-draft llama-3-like; do model "$name" >/dev/null; done
    # KV heads of two sizes
    local gemma=$FIXTURES/families/gemma4-heads sizes=$BATS_FILE_TMPDIR/sizes
    mkdir "$sizes"
    ln -s "$gemma"/[!c]* "$sizes"
    jq '.max_position_embeddings = 256' "$gemma/config.json" >"$sizes/config.json"
    bmc-convert "$sizes" -o "$sizes.bmc" >/dev/null || return 1
    for name in lfm2 qwen35-moe falcon-h1 mamba2; do # recurrent state
        jq '.max_position_embeddings = 1024' "$FIXTURES/families/$name/config.json" >"$BATS_FILE_TMPDIR/$name.json"
        mkdir "$BATS_FILE_TMPDIR/$name"
        ln -s "$FIXTURES/families/$name"/[!c]* "$BATS_FILE_TMPDIR/$name"
        mv "$BATS_FILE_TMPDIR/$name.json" "$BATS_FILE_TMPDIR/$name/config.json"
        bmc-convert "$BATS_FILE_TMPDIR/$name" -o "$BATS_FILE_TMPDIR/$name.bmc" >/dev/null || return 1
    done
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

gen() { bmc-gen -q -m "$(model grimm)" --ignore-eos --stats stats.json "$@"; }
blocks() { find "$1" -name '*.kvblock' | wc -l; }
stat_of() { jq -c "[.${1//,/,.}]" stats.json; }

# A prompt of N tokens; those with the same NAME begin alike.
ids() { # N NAME
    awk -v n="$1" -v seed="$(cksum <<<"${2-}" | cut -d ' ' -f 1)" 'BEGIN { x = seed % 65521; for (i = 0; i < n; i++) { x = (x * 75 + 74) % 65537; printf "%d ", 5 + x % 4000 } }'
}

@test "a later process finds the blocks: it computes the rest only, with the same logits" {
    ok gen --prompt-ids "$(ids 100)" -n 30
    want="$output $(jq -r .logits_hash stats.json)"
    ok gen --prompt-ids "$(ids 100)" -n 30 --prefix-cache cache
    assert_equal "$output $(jq -r .logits_hash stats.json)" "$want"
    # 100 prompt tokens and 29 answered ones have KV entries: 8 blocks of 16
    assert_equal "$(stat_of prefix_cache_lookup_tokens,prefix_cache_hit_tokens,prefix_cache_stored_tokens,prefill_tokens)" '[100,0,128,100]'
    assert_equal "$(blocks cache)" 8
    ok gen --prompt-ids "$(ids 100)" -n 30 --prefix-cache cache,size=1G
    assert_equal "$output $(jq -r .logits_hash stats.json)" "$want"
    assert_equal "$(stat_of prefix_cache_lookup_tokens,prefix_cache_hit_tokens,prefix_cache_stored_tokens,prefill_tokens)" '[100,96,0,4]'
    jq -e '.prefix_cache_hit_rate == 0.96' stats.json >/dev/null || fail "$(<stats.json)"
    # all but the last token of a prompt that ends with a block; a longer one with an answer in it
    ok gen --prompt-ids "$(ids 96)" -n 1 --prefix-cache cache
    assert_equal "$(stat_of prefix_cache_hit_tokens,prefill_tokens)" '[95,1]'
    # what three processes have counted; the table is for people
    counts() { "$BMC_BIN/bmc-prof" prefix-cache "$1" --format json | jq -c '.rows[0] | [.blocks, .block_bytes > 8000, .lookups, .lookup_tokens, .hit_tokens, (.hit_rate | if . then . * 1e4 | floor else . end), .stored_blocks, .evicted_blocks, .dropped_blocks]'; }
    assert_equal "$(counts cache)" '[8,true,3,296,191,6452,8,0,0]'
    "$BMC_BIN/bmc-prof" prefix-cache cache >table
    grep -q 'hit_rate' table
    mkdir empty
    expect_error 1 'empty: is no prefix cache' "$BMC_BIN/bmc-prof" prefix-cache empty
    assert_equal "$(ls -A empty)" ''
    expect_error 1 'none: cannot open this folder' "$BMC_BIN/bmc-prof" prefix-cache none
    expect_error 2 'prefix-cache takes a folder' "$BMC_BIN/bmc-prof" prefix-cache
    cp -r cache $'not\xff'
    assert_equal "$(counts $'not\xff')" "$(counts cache)"
    # counters that somebody else might have written are not used, and replaced
    printf 'BMCKVSTAx' >cache/stats
    expect_error 1 'cache/stats: has no counters of version 1' "$BMC_BIN/bmc-prof" prefix-cache cache
    chmod 666 cache/stats
    ok gen --prompt-ids "$(ids 96)" -n 1 --prefix-cache cache
    expect_error 1 'cache/stats: others may write to it' "$BMC_BIN/bmc-prof" prefix-cache cache
    chmod 600 cache/stats
    ok gen --prompt-ids "$(ids 96)" -n 1 --prefix-cache cache
    assert_equal "$(counts cache | jq -c '.[2:5]')" '[1,96,95]'
    # temporary files are not left, and others may not read the blocks
    assert_equal "$(find cache ! -name '*.kvblock' -printf '%f\n' | sort | xargs)" "cache lock stats"
    assert_equal "$(find cache -type f -printf '%m\n' | sort -u)" 600
}

@test "answers are found by the prompts that continue them: batches, and drafts" {
    first="$(ids 10)"
    jq -nc --arg ids "$first" '($ids | [splits(" +") | select(. != "") | tonumber]) as $ids | range(3) | {id: ., ids: ($ids + [.]), n: 60}' >in
    ok gen --jsonl -f in --prefix-cache cache
    first="$first 0"
    answer=$(head -n 1 <<<"$output" | jq -r '.ids | map(tostring) | join(" ")')
    ok gen --prompt-ids "$first $answer 7 8 9" -n 5
    want="$output $(jq -r .logits_hash stats.json)"
    ok gen --prompt-ids "$first $answer 7 8 9" -n 5 --prefix-cache cache
    assert_equal "$output $(jq -r .logits_hash stats.json)" "$want"
    jq -e '.prefix_cache_hit_tokens >= 48 and .prefill_tokens < 20' stats.json >/dev/null || fail "$(<stats.json)"
    ok bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" --ignore-eos --stats stats.json --prompt-ids "$first $answer 7 8 9" -n 5 --always -k 4 --prefix-cache cache
    assert_equal "$output" "${want% *}"
    jq -e '.prefix_cache_hit_tokens >= 48' stats.json >/dev/null || fail "$(<stats.json)"
}

# A run of the requests in `in`: its results and logits_hash.
outcome() { # OPTION..
    bmc-gen -q -m "$name" --jsonl --ignore-eos --stats stats.json -f in "$@" >out || fail "$name $*: $(<out)"
    echo "$(md5sum <out) $(jq -r .logits_hash stats.json)"
}

# few N NAME: ids() below 250.
few() { ids "$@" | tr ' ' '\n' | awk 'NF { printf "%d ", 5 + $1 % 240 }'; }

# found HITS OPTION..: the run computes what --prefix-cache does not have, with the results of a run without it.
found() {
    ok bmc-gen -q -m "$BATS_FILE_TMPDIR/$name.bmc" --ignore-eos --stats stats.json --ids "${@:2}"
    want="$output $(jq -r .logits_hash stats.json)"
    run_plain bmc-gen -q -m "$BATS_FILE_TMPDIR/$name.bmc" --ignore-eos --stats stats.json --ids "${@:2}" --prefix-cache "$cache"
    [[ $status -eq 0 && $stderr =~ ^(bmc-gen:\ --prefix-cache:\ cache/[^$'\n']*)?$ ]] || fail "$name ${*:2}: $status $stderr"
    assert_equal "$name ${*:2}: $output $(jq -r .logits_hash stats.json)" "$name ${*:2}: $want"
    assert_equal "$name ${*:2}: $(jq .prefix_cache_hit_tokens stats.json)" "$name ${*:2}: $1"
}

@test "recurrent layers: prompts continue at stored states: at their ends, regular positions, and where others differed" {
    local cache=cache,states=64
    for name in lfm2 qwen35-moe falcon-h1; do
        if ! sampled 3; then continue; fi
        rm -rf cache
        found 0 --prompt-ids "$(few 210)" -n 31
        answer=${output//$'\n'/ }
        assert_equal "$(stat_of prefix_cache_stored_tokens) $(blocks cache) $(find cache -name '*.kvstate' | wc -l)" '[240] 15 5' # 64 128 192 208 240
        found 208 --prompt-ids "$(few 210)" -n 2
        found 240 --prompt-ids "$(few 210) $answer 7 8 9" -n 2
        found 128 --prompt-ids "$(few 180) $(few 20 other)" -n 2 # the entries of 176 tokens, a state after 128
        found 176 --prompt-ids "$(few 180) $(few 20 third)" -n 2
        found 64 --prompt-ids "$(few 70) 1 2" -n 2 --chunk 7
        # a damaged block, the tenth: the state before it; then damaged states
        rm -rf cache
        found 0 --prompt-ids "$(few 210)" -n 1
        # shellcheck disable=SC2012 # hexadecimal names
        truncate -s -1 "$(ls -tr cache/*.kvblock | tail -n 10 | head -n 1)"
        found 128 --prompt-ids "$(few 210)" -n 1
        assert_equal "$(stat_of prefix_cache_dropped_blocks)" '[1]'
        found 208 --prompt-ids "$(few 210)" -n 1
        truncate -s -1 cache/*.kvstate
        found 0 --prompt-ids "$(few 210)" -n 1
        assert_equal "$(stat_of prefix_cache_dropped_blocks)" '[4]'
        [[ $stderr =~ ^bmc-gen:\ --prefix-cache:\ cache/.*has\ [0-9]+\ bytes ]] || fail "$stderr"
    done
}

@test "recurrent layers: states far apart have one more, some 512 tokens before the end of a prompt" {
    local name=qwen35-moe cache=cache,states=1K
    found 0 --prompt-ids "$(few 1000)" -n 1
    found 992 --prompt-ids "$(few 1000)" -n 1
    found 496 --prompt-ids "$(few 700) $(few 300 other)" -n 1 # 999 - 512, rounded up to blocks
    assert_equal "$(find cache -name '*.kvstate' | wc -l)" 3  # 496, 992, and 992 of the other
}

@test "recurrent layers: the distance of stored states follows from bytes, computing and the folder" {
    # Bytes of states and multiply-adds of layers by hand. hybrid: KV entries of 2 * 2 * 64 f32 in 1 of 4 layers, states of 4 heads
    # of 64 * 64 and 3 inputs of 512 channels. mamba: 8 heads of 128 * 64, 3 inputs of 768 channels; 256 * 1288 + 512 * 256 in a layer.
    local size hybrid mamba
    common() { printf 'family %s\nvocab 256\ncontext 512\nhidden 256\nstate_value_dim 64\n' "$1"; }
    {
        common qwen35
        printf 'layers 4\nheads 4\nkv_heads 2\nhead_dim 64\nrope_dim 16\nffn 768\nlayer_types delta delta delta full\nstate_heads 4\nstate_key_heads 2\nstate_key_dim 64\n'
    } >hybrid.shape
    { common mamba2; printf 'layers 2\nstate_heads 8\nstate_key_heads 1\nstate_key_dim 128\n'; } >mamba.shape
    for name in hybrid mamba; do bmc-convert --synth $name.shape -o $name.bmc >/dev/null; done
    chosen() { # MODEL FOLDER [OPTION..]
        ok bmc-gen -q -m "$1.bmc" --ignore-eos --ids --prompt-ids '5 6 7' -n 1 --stats stats.json --prefix-cache "$2" "${@:3}"
        stat_of prefix_cache_state_distance,prefix_cache_state_distance_from
    }
    # 3 * 4 * (4 * 64 * 64 + 3 * 512) bytes / (1024 * 4/5): 263
    assert_equal "$(chosen hybrid cache)" '[512,"kv"]'
    # 2 * 4 * (8 * 128 * 64 + 3 * 768) bytes * 160 * 16 / (2 * 460800): 1507
    assert_equal "$(chosen mamba cache)" '[2048,"computing"]'
    # 542720 bytes * 16384 / (1 MiB / 2): 16960; 215040 * 16384 / (4 MiB / 2): 1680
    assert_equal "$(chosen mamba cache,size=1M)" '[32768,"folder"]'
    assert_equal "$(chosen hybrid cache,size=4M)" '[2048,"folder"]'
    assert_equal "$(chosen hybrid cache,states=48)" '[48,"option"]'
    assert_equal "$(chosen hybrid cache,states=16)" '[32,"pass"]' # a 16th of 512
}

@test "models without KV entries: one block in 16 has a file, states are found at any" {
    local name=mamba2 cache=cache,states=256
    found 0 --prompt-ids "$(few 700)" -n 1
    assert_equal "$(stat_of prefix_cache_stored_tokens) $(blocks cache) $(find cache -name '*.kvstate' | wc -l)" '[512] 2 3' # 256 512 688
    found 688 --prompt-ids "$(few 700)" -n 1
    found 512 --prompt-ids "$(few 600) $(few 60 other)" -n 1
    found 656 --prompt-ids "$(few 600) $(few 60 other) 7 8" -n 1 # the end of the prompt before
    found 0 --prompt-ids "$(few 200 third)" -n 9
    found 192 --prompt-ids "$(few 200 third) 1 2" -n 1
    found 256 --prompt-ids "$(few 300) $(few 30 fourth)" -n 1 --chunk 7
    # each run drops the first damaged file, and stores it again
    truncate -s -1 cache/*.kvblock
    for hits in 0 256 688; do found $hits --prompt-ids "$(few 700)" -n 1; done
}

@test "every policy and cache type loads what any other stored, with the same bits (random)" {
    local policies types=(f32 bf16 f16 q8 q4 q4h) models=("$(model grimm)" "$(model llama-3-like)" "$BATS_FILE_TMPDIR/sizes.bmc")
    local turn name type cache first policy how want
    echo "# BMC_SEED=$BMC_SEED" >&3
    RANDOM=$BMC_SEED
    # shellcheck disable=SC2207
    policies=($(kv_policies))
    policies+=(bmc:T=3 shift:S=96 paged:32 reserve:r=7)
    for turn in "${!policies[@]}"; do
        name=${models[(turn + BMC_SEED) % 3]} type=${types[RANDOM % 6]} cache=cache-$((RANDOM % 2))
        jq -nc --argjson s $((RANDOM % 3)) --argjson n $((2 + RANDOM % 4)) --argjson t $((RANDOM % 2)) 'range($n) as $i |
            {id: $i, ids: [range(1 + 19 * $i + 7 * $s) | 5 + (. * (7 + 2 * $s) + $s) % 240], n: (1 + 11 * $i % 30), temperature: ($t * 0.9), seed: $i}' >in
        pick first "${policies[@]}"
        for policy in "$first" "${policies[turn]}"; do
            [[ $name != *sizes* || $policy != headwise ]] || policy=segment # which heads of two sizes do not have
            want=iterative
            [ "$policy" != shift:S=96 ] || want=$policy
            want=$(outcome --cache-type $type -c 128 -np 1 --kv $want --prefix-cache-mb 0)
            how="--cache-type $type -c 128 -np $((1 + RANDOM % 4)) --kv $policy --chunk $((1 + RANDOM % 40)) -t $((1 + RANDOM % 2))"
            [ $((RANDOM % 2)) -eq 0 ] || how+=" --prefix-cache-mb 0"
            assert_equal "$turn $name $how: $(outcome $how --prefix-cache $cache)" "$turn $name $how: $want"
        done
        # The longest prompt has more whole blocks than tokens of the one before, which may be in memory.
        [ "$(jq .prefix_cache_hit_tokens stats.json)" -gt 0 ] || fail "$turn $name $first $how: $(<stats.json)"
    done
}

@test "drafts, heads, beams, constraints and offloading give the same with the cache, cold and warm" {
    models=$ROOT/models.d
    seen=0
    while read -r least how; do
        seen=$((seen + 1))
        if ! sampled 2; then continue; fi
        prompt=$(ids 150)
        [[ $how != *"$BATS_FILE_TMPDIR"* ]] || prompt=$(tr ' ' '\n' <<<"$prompt" | awk 'NF { printf "%d ", $1 % 250 }')
        for turn in off cold warm; do
            cache=()
            [ $turn = off ] || cache=(--prefix-cache "cache-$seen,states=64")
            # shellcheck disable=SC2086
            ok_cut $how -q --ignore-eos --prompt-ids "$prompt" -n 30 --stats stats.json "${cache[@]}"
            [ $turn != off ] || want="$output $(jq -r .logits_hash stats.json)"
            assert_equal "$turn $how: $output $(jq -r .logits_hash stats.json)" "$turn $how: $want"
        done
        jq -e --argjson n "$least" '.prefix_cache_hit_tokens == $n' stats.json >/dev/null || fail "$how: $(<stats.json)"
    done <<RUNS
144 bmc-spec -m $models/grimm.bmc -d $models/grimm-draft.bmc --always -k 4
86 bmc-spec -m $models/grimm.bmc -d $models/grimm-eagle3.bmc --always --tree 9
86 bmc-spec -m $models/grimm-mtp.bmc -d self --always -k 3
144 bmc-spec -m $models/grimm.bmc --lookup --always -k 4 --temp 0.9 --seed 3
144 bmc-spec -m $BATS_FILE_TMPDIR/sizes.bmc --suffix --always -k 4 --kv bmc:r=16
144 bmc-spec -m $BATS_FILE_TMPDIR/sizes.bmc -d $BATS_FILE_TMPDIR/sizes.bmc --always --tree 7 --kv paged
144 bmc-gen -m $models/grimm.bmc --beams 3 --kv segment
144 bmc-gen -m $models/grimm.bmc --beams 3 --kv paged
144 bmc-gen -m $models/grimm.bmc --regex [a-z]{20}
144 bmc-spec -m $BATS_FILE_TMPDIR/lfm2.bmc --lookup --always -k 4 --temp 0.9 --seed 3
144 bmc-spec -m $BATS_FILE_TMPDIR/falcon-h1.bmc -d $BATS_FILE_TMPDIR/falcon-h1.bmc --always --tree 7 --kv paged
144 bmc-gen -m $BATS_FILE_TMPDIR/qwen35-moe.bmc --beams 3 --kv segment
144 bmc-gen -m $BATS_FILE_TMPDIR/qwen35-moe.bmc --chunk 20 --kv reserve:r=7
144 bmc-gen -m $models/grimm.bmc --temp 1 --mirostat 2 --dry-multiplier 1
144 bmc-gen -m $models/grimm.bmc --kv headwise:ram=900K,group=1 --chunk 32
48 bmc-gen -m $models/grimm.bmc --kv shift:S=64 -c 64
RUNS
    [ $seen -eq 16 ]
}

@test "kernel sets share blocks where they compute the same bits" {
    local isa precision hits
    for precision in f32 int8 bf16x2; do
        if ! sampled 3; then continue; fi
        ok gen --prompt-ids "$(ids 40)" -n 2 --precision $precision --cache-type q8 --isa ref --prefix-cache $precision
        want="$output $(jq -r .logits_hash stats.json)"
        for isa in $(isas); do
            hits=32
            # sums of OpenBLAS, and products by instructions for bf16
            [[ $isa != blas && $precision-$isa != bf16x2-@(bf16|amx) ]] || hits=0
            ok gen --prompt-ids "$(ids 40)" -n 2 --precision $precision --cache-type q8 --isa "$isa" --prefix-cache $precision
            assert_equal "$isa $(stat_of prefix_cache_hit_tokens)" "$isa [$hits]"
            [ $hits -eq 0 ] || assert_equal "$isa $output $(jq -r .logits_hash stats.json)" "$isa $want"
        done
    done
}

@test "what affects the bits of KV entries is part of the key" {
    ok gen --prompt-ids "$(ids 40)" -n 1 --prefix-cache cache
    for how in "--cache-type bf16" "--precision int8" "--attn blas"; do
        ok gen --prompt-ids "$(ids 40)" -n 1 --prefix-cache cache $how
        assert_equal "$how $(stat_of prefix_cache_hit_tokens,prefix_cache_stored_tokens)" "$how [0,32]"
    done
    bmc-convert "$(folder grimm)" --type q8_0 -o q8.bmc >/dev/null
    ok bmc-gen -q -m q8.bmc --stats stats.json --prompt-ids "$(ids 40)" -n 1 --prefix-cache cache
    assert_equal "$(stat_of prefix_cache_hit_tokens)" "[0]"
    # another first token, another last token of the second block
    ok gen --prompt-ids "9 $(ids 40 | cut -d ' ' -f 2-)" -n 1 --prefix-cache cache
    assert_equal "$(stat_of prefix_cache_hit_tokens)" "[0]"
    ok gen --prompt-ids "$(ids 31) 9 9 9" -n 1 --prefix-cache cache
    assert_equal "$(stat_of prefix_cache_hit_tokens)" "[16]"
    # those of a snapshot may have other bits, and are neither stored nor extended
    ok gen --prompt-ids "$(ids 40)" -n 1 --cache-type f16 --save-kv s.kv
    ok_cut gen --load-kv s.kv --prompt-ids "$(ids 40 b)" -n 20 --prefix-cache empty
    assert_equal "$(stat_of prefix_cache_lookup_tokens,prefix_cache_stored_tokens) $(blocks empty)" "[0,0] 0"
}

# A warning, the right result, and N blocks dropped.
warned() { # REGEX DROPPED [FOLDER]
    run_plain gen --prompt-ids "$(ids 100)" -n 5 --prefix-cache "${3:-cache}"
    [ "$status" -eq 0 ] && [ "$output $(jq -r .logits_hash stats.json)" = "$want" ] || fail "$status $output $stderr, not $want"
    [[ $stderr != *$'\n'* && $stderr =~ ^bmc-gen:\ --prefix-cache:\  && $stderr =~ $1 ]] || fail "stderr: $stderr, wanted: $1"
    assert_equal "$(jq .prefix_cache_dropped_blocks stats.json)" "$2"
}

renew() {
    rm -rf cache
    cp -r good cache
}

@test "damaged and hostile blocks are dropped with one warning and computed again" {
    ok gen --prompt-ids "$(ids 100)" -n 5 --prefix-cache cache
    want="$output $(jq -r .logits_hash stats.json)"
    cp -r cache good
    # changed bytes of the header, its hash and the entries
    for at in 0 9 20 60 110 140 170 200 300 9000 65791; do
        renew
        for file in cache/*.kvblock; do printf '\x55' | dd of="$file" bs=1 seek=$at conv=notrunc status=none; done
        warned 'its (contents|header)|is no block|has version' 1
    done
    ok gen --prompt-ids "$(ids 100)" -n 5 --prefix-cache good
    for how in 'truncate -s 300' 'truncate -s +1' 'truncate -s 0' 'chmod 666'; do
        renew
        find cache -name '*.kvblock' -exec $how {} \;
        warned 'bytes|others may write' 1
        [ "$(blocks cache)" -eq 6 ]
    done
    renew
    for file in cache/*.kvblock; do ln -sf /dev/zero "$file"; done
    warned 'cannot open: Too many levels' 1
    renew
    for file in cache/*.kvblock; do rm "$file"; mkfifo "$file"; done
    warned 'no regular file' 1
    # a block of another key in its place; a folder, which cannot be replaced
    renew
    first=$(find cache -name '*.kvblock' | head -n 1)
    for file in cache/*.kvblock; do [ "$file" = "$first" ] || cp "$first" "$file"; done
    warned 'is that of another block' 1
    renew
    for file in cache/*.kvblock; do rm "$file"; mkdir "$file"; done
    warned 'no regular file' 1
    # the files of other names stay
    renew
    touch cache/notes.txt cache/0123.kvblock cache/.tmp-1-1
    ok gen --prompt-ids "$(ids 100)" -n 5 --prefix-cache cache
    [ -e cache/.tmp-1-1 ]                                       # nothing was written
    ok gen --prompt-ids "$(ids 100)" -n 20 --prefix-cache cache # one more block
    [ -e cache/notes.txt ]
    [ -e cache/0123.kvblock ]
    [ ! -e cache/.tmp-1-1 ]
}

@test "a folder that cannot be used is a warning, and the run goes on" {
    ok gen --prompt-ids "$(ids 100)" -n 5
    want="$output $(jq -r .logits_hash stats.json)"
    touch cache
    warned 'cache: cannot open this folder: Not a directory' 0
    rm cache
    ln -s nowhere cache
    warned 'cache: cannot open this folder: No such file' 0
    rm cache
    # blocks that do not fit a limit; a full disk, as far as a file size limit imitates one
    run_plain gen --prompt-ids "$(ids 100)" -n 5 --prefix-cache small,size=1K
    [[ $status -eq 0 && $output == "${want% *}" && $stderr =~ ^bmc-gen:.*bytes:\ nothing\ is\ stored\ with\ size=1024$ ]] || fail "$stderr"
    [ "$(blocks small)" -eq 0 ]
    (
        ulimit -f 32
        trap '' XFSZ
        run_plain bmc-gen -q -m "$(model grimm)" --ignore-eos --prompt-ids "$(ids 100)" -n 5 --prefix-cache full
        [[ $status -eq 0 && $output == "${want% *}" && $stderr =~ ^bmc-gen:.*full:\ cannot\ write\ a\ block.*File\ too\ large$ ]] || fail "$status $stderr"
    )
    assert_equal "$(ls -A full | xargs)" 'lock stats'
    expect_error 2 'needs a size' gen -p x --prefix-cache cache,size=many
    expect_error 2 'states= needs a number of tokens, as 512; found "0"' gen -p x --prefix-cache cache,states=0,size=1M
    expect_error 2 'needs a size' gen -p x --prefix-cache cache,size=1M,x,states=1K
    expect_error 2 'name of a folder' gen -p x --prefix-cache ,size=1M
    expect_error 2 'goes with generation only' bmc-gen --score --prefix-cache cache </dev/null
    expect_error 2 'excludes --prefix-cache' gen -p x --kv headwise --retrieval-heads h --prefix-cache cache
}

@test "a folder of other files is not used, and files that others wrote stay; without a lock a warning says so" {
    gen --prompt-ids "$(ids 100)" -n 5 >out
    want="$(<out) $(jq -r .logits_hash stats.json)"
    for names in 'stats notes.txt' stats .tmp-mine .profile; do
        mkdir other
        for name in $names; do echo mine >"other/$name"; done
        warned 'other: is not empty and holds no blocks of a prefix cache, so nothing is stored in it: name a new folder' 0 other
        assert_equal "$(cat other/* other/.[a-z]* 2>/dev/null | sort -u) $(ls -A other | wc -l)" "mine $(wc -w <<<"$names")"
        rm -r other
    done
    mkdir other # what is left of a cache without blocks is no reason
    touch other/lock other/.tmp-1-0
    ok gen --prompt-ids "$(ids 100)" -n 5 --prefix-cache other
    assert_equal "$(blocks other) $(ls -A other | grep -c tmp)" "6 0"
    # in a cache, too
    echo mine >other/stats
    echo mine >other/.tmp-mine
    warned '^bmc-gen: --prefix-cache: other: its file "stats" holds no counters' 0 other
    assert_equal "$(cat other/stats other/.tmp-mine | xargs)" "mine mine"
    assert_equal "$(jq .prefix_cache_hit_tokens stats.json)" 96
    rm other/stats other/lock
    mkfifo other/lock
    warned 'other: processes do not wait .*since the file "lock" cannot be locked: Invalid argument$' 0 other
    rm other/lock
    mkdir other/lock
    warned 'cannot be locked: Is a directory$' 0 other
}

@test "the least recently used blocks are evicted, later ones of a prompt first" {
    # shellcheck disable=SC2012 # hexadecimal names
    latest() { (cd cache && ls -t ./*.kvblock | head -n 4); }
    ok gen --prompt-ids "$(ids 64 a)" -n 1 --prefix-cache cache,size=800K
    first=$(latest)
    ok gen --prompt-ids "$(ids 64 b)" -n 1 --prefix-cache cache,size=800K
    ok gen --prompt-ids "$(ids 64 a)" -n 1 --prefix-cache cache,size=800K # 8 blocks of 64 KiB and a half
    assert_equal "$(latest)" "$first"
    assert_equal "$(stat_of prefix_cache_hit_tokens) $(blocks cache)" "[63] 8"
    ok gen --prompt-ids "$(ids 96 c)" -n 1 --prefix-cache cache,size=800K # 6 more: b goes
    [ "$(du -sb cache | cut -f 1)" -le $((800 * 1024 + 4096 + 128)) ]
    ok gen --prompt-ids "$(ids 96 c)" -n 1 --prefix-cache cache,size=800K
    assert_equal "$(stat_of prefix_cache_hit_tokens)" "[95]"
    ok gen --prompt-ids "$(ids 64 a)" -n 1 --prefix-cache cache,size=800K
    jq -e '.prefix_cache_hit_tokens >= 48' stats.json >/dev/null || fail "$(<stats.json)"
    ok gen --prompt-ids "$(ids 64 b)" -n 1 --prefix-cache cache,size=800K
    jq -e '.prefix_cache_hit_tokens <= 32' stats.json >/dev/null || fail "$(<stats.json)"
}

@test "recurrent states that no prompt has been continued from are evicted before the KV entries of those in use" {
    local name=qwen35-moe cache=cache,size=100K,states=64
    # 13 blocks of 2304 bytes, states of 12672 at 64, 128, 192, 208; then 5 blocks, states at 64 and 80
    found 0 --prompt-ids "$(few 210 a)" -n 1
    found 208 --prompt-ids "$(few 210 a)" -n 1
    found 0 --prompt-ids "$(few 80 b)" -n 1
    assert_equal "$("$BMC_BIN/bmc-prof" prefix-cache cache --format json | jq -c '.rows[0] | [.blocks, .states, .block_bytes, .evicted_blocks]')" '[18,4,92160,2]'
    found 208 --prompt-ids "$(few 210 a)" -n 1
    found 64 --prompt-ids "$(few 80 b)" -n 1
}

# race MODEL: 20 processes, and 6 that are killed, with one beginning of 960 tokens.
race() {
    local i computed=0
    rm -rf cache
    begin=$(few 960 begin)
    jq -nc --arg begin "$begin" '($begin | [splits(" +") | select(. != "") | tonumber]) as $ids | range(1; 21) | {ids: ($ids + [100 + ., 7, 8]), n: 3}' >in
    ok bmc-gen -q -m "$1" --ignore-eos --jsonl -f in
    jq -r .text <<<"$output" >want
    assert_equal "$(wc -l <want)" 20
    pids=()
    for i in {21..26} {1..20}; do
        "$BMC_BIN/bmc-gen" -q -m "$1" --ignore-eos -t 1 --prompt-ids "$begin $((100 + i)) 7 8" -n 3 --prefix-cache cache,states=64 \
            --chunk 64 --stats stats-$i >out-$i 2>err-$i &
        pids[i]=$!
        [ $i -ne 26 ] || wait_until compgen -G 'cache/*.kvblock' >/dev/null
    done
    # killed while they compute or wait, unless they were faster than this
    for i in {21..26}; do kill -9 "${pids[i]}" || true; done
    for i in {1..20}; do wait "${pids[i]}" || fail "process $i: $(<err-$i)"; done
    wait || true
    for i in {1..20}; do
        [ ! -s err-$i ] || fail "$(<err-$i)"
        assert_equal "$i: $(<out-$i)" "$i: $(sed -n ${i}p want)"
        computed=$((computed + $(jq .prefill_tokens stats-$i)))
    done
    # 60 blocks of 16 tokens; 3 tokens behind them in each of 20 processes
    [ "$(find cache -name '*.kvblock' | wc -l)" -eq 60 ]
    [ $computed -le $((960 + 20 * 3)) ] || fail "$computed tokens were computed"
    ok bmc-gen -q -m "$1" --ignore-eos --stats stats.json --prompt-ids "$begin 101 7 8" -n 3
    hash=$(jq -r .logits_hash stats.json)
    assert_equal "$hash" "$(jq -r .logits_hash stats-1)"
    ok bmc-gen -q -m "$1" --ignore-eos --stats stats.json --prompt-ids "$begin 101 7 8" -n 3 --prefix-cache cache
    assert_equal "$(jq -r .logits_hash stats.json)" "$hash"
    assert_equal "$(find cache -type f ! -name '*.kvblock' ! -name '*.kvstate' -printf '%f\n' | sort | xargs)" 'lock stats' # no unfinished file
    # Those that ended have counted unless others held the counters for 20 ms, of the killed ones perhaps some.
    assert_equal "$("$BMC_BIN/bmc-prof" prefix-cache cache --format json | jq -c '.rows[0] | [.blocks, .lookups >= 11, .lookups <= 27, .lookup_tokens == 963 * .lookups, .hit_tokens <= .lookup_tokens - 3 * .lookups]')" '[60,true,true,true,true]'
    assert_equal "$(jq .prefill_tokens stats.json)" 3
}

@test "20 processes with one beginning compute it once; those that are killed stop nobody" {
    race "$BATS_FILE_TMPDIR/qwen35-moe.bmc"
    [ "$BMC_FULL" != 1 ] || race "$(model grimm)"
}
