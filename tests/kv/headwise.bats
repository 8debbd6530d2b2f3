# Head-wise KV offload: the same results as with all entries in memory, and errors of memory, disk and file.
load ../helper

# A prompt of 300 tokens and 12 more: 78 KiB for each of 16 heads.
prompt="$(seq -s ' ' 100 399)"
gen() { bmc-gen -q -m "$(model grimm)" --prompt-ids "$prompt" -n 12 --ids --ignore-eos -t 2 "$@"; }

# Prints logits_hash beside the ids.
hashed() { gen "$@" --stats stats.json && jq -r .logits_hash stats.json; }

@test "logits_hash equals that of bmc: groups, budgets, chunks, cache types, snapshots" {
    want=$(hashed)
    [ "$(jq .kv_resident_bytes stats.json)" -gt $((1200 << 10)) ]
    assert_equal "$(hashed --kv headwise:ram=900K,group=1 --chunk 100)" "$want"
    [ "$(jq .kv_resident_bytes stats.json)" -le $((900 << 10)) ]
    assert_equal "$(hashed --cache-type bf16 --kv headwise:ram=500K,dir=. --chunk 50)" "$(hashed --cache-type bf16)"
    gen --kv headwise:ram=900K --chunk 60 --save-kv a.kv >/dev/null
    want=$(bmc-gen -q -m "$(model grimm)" --load-kv a.kv -n 5 --ids --ignore-eos)
    ok bmc-gen -q -m "$(model grimm)" --load-kv a.kv -n 5 --ids --ignore-eos --kv headwise:ram=900K,group=1
    assert_output "$want"
}

@test "KV heads of two sizes, and layers that share keys and values, in files of their own" {
    printf '%s\n' 'family gemma4' 'layers 13' 'hidden 64' 'heads 8' 'kv_heads 4' 'head_dim 32' 'full_head_dim 64' 'full_kv_heads 2' \
        'ffn 96' 'vocab 420' 'context 1024' 'window 200' 'layer_types sliding*2 full ...' 'kv_shared 3' 'layer_input 8' >a.shape
    bmc-convert -q --synth ./a.shape -o a.bmc
    local long; long="$prompt $(seq -s ' ' 10 399)"
    # 10 layers have KV entries, of which three have 2 heads of 64 in place of 4 of 32: 10240 bytes per token.
    sizes() { bmc-gen -q -m a.bmc --prompt-ids "$long" -n 12 --ids --ignore-eos -t 2 --stats stats.json "$@" && jq -r .logits_hash stats.json; }
    want=$(sizes)
    [ "$(jq .kv_resident_bytes stats.json)" -gt $((690 * 10240)) ]
    for how in "3M,group=1 --chunk 32" "4M --chunk 30" "5M,group=2 --chunk 100"; do
        # shellcheck disable=SC2086
        assert_equal "$(sizes --kv headwise:ram=$how)" "$want"
        [ "$(jq .kv_resident_bytes stats.json)" -le $((${how%%M*} << 20)) ]
    done
    assert_equal "$(sizes --cache-type q8 --kv headwise:ram=1500K --chunk 30)" "$(sizes --cache-type q8)"
    for n in 600 200 400; do jq -nc --argjson n $n '{id: $n, ids: [range(10; 10 + $n) | . % 410], n: 16}'; done >in
    while read -r ram how; do
        # shellcheck disable=SC2086
        bmc-gen -q -m a.bmc --jsonl $how --ignore-eos -f in | jq 'del(.ms)' >want
        # shellcheck disable=SC2086
        bmc-gen -q -m a.bmc --jsonl $how --ignore-eos -f in --kv headwise:ram=$ram,group=1 --chunk 40 --stats s.json | jq 'del(.ms)' >got
        equal_files want got
        [ "$(jq .kv_resident_bytes s.json)" -le $((${ram%M} << 20)) ]
    done <<<"4M -b 2
9M -b 3 --beams 2"
    sizes --kv headwise:ram=3M --chunk 32 --save-kv a.kv >/dev/null
    assert_equal "$(bmc-gen -q -m a.bmc --load-kv a.kv -n 5 --ids --ignore-eos --kv headwise:ram=4M,group=1)" \
        "$(bmc-gen -q -m a.bmc --load-kv a.kv -n 5 --ids --ignore-eos)"
    # What an error asks for is needed, and enough.
    run_plain bmc-gen -q -m a.bmc --prompt-ids "$long" -n 1 --chunk 20 --kv headwise:ram=100K,group=1
    assert_equal "$status" 1
    [[ $stderr =~ 'a prompt of 690 tokens needs '([0-9]+)' bytes of memory' ]] || fail "$stderr"
    least=${BASH_REMATCH[1]}
    expect_error 1 "needs [0-9]+ bytes of memory" bmc-gen -q -m a.bmc --prompt-ids "$long" -n 1 --chunk 20 --kv headwise:ram=$((least - 200)),group=1
    ok bmc-gen -q -m a.bmc --prompt-ids "$long" -n 1 --chunk 20 --ids --kv headwise:ram="$least",group=1
    printf 'retrieval_heads 1\nlayers 9\nkv_heads 4\nsink 16\nrecent 64\n' >heads
    run_plain bmc-gen -q -m a.bmc --prompt-ids 5 -n 1 --kv headwise --retrieval-heads heads
    assert_equal "$status" 1
    [[ $stderr == *'--retrieval-heads needs a model whose layers all have KV entries of their own, and heads of one size'* ]] || fail "$stderr"
}

@test "batches, beams and speculative decoding" {
    for n in 90 60 30; do jq -nc --argjson n $n '{id: $n, ids: [range(100; 100 + $n)], n: 16}'; done >in
    while read -r ram how; do
        # shellcheck disable=SC2086
        bmc-gen -q -m "$(model grimm)" --jsonl $how --ignore-eos -f in | jq 'del(.ms)' >want
        # shellcheck disable=SC2086
        bmc-gen -q -m "$(model grimm)" --jsonl $how --ignore-eos -f in --kv headwise:ram=$ram,group=1 --chunk 40 --stats s.json | jq 'del(.ms)' >got
        equal_files want got
    done <<<"800K -b 2
1700K -b 3 --beams 2"
    gen -n 16 >want
    bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" --prompt-ids "$prompt" -n 16 --ids --ignore-eos --always --chunk 60 \
        --kv headwise:ram=1000K,group=1 --draft-kv bmc >got
    equal_files want got
}

@test "requests wait until they fit in ram=; one that cannot fit alone gets an error" {
    for n in 90 60 30 80 70 20 85 95; do jq -nc --argjson n $n '{id: $n, ids: [range(100; 100 + $n)], n: 16}'; done >in
    bmc-gen -q -m "$(model grimm)" --jsonl -b 8 --ignore-eos -f in | jq 'del(.ms)' >want
    while read -r ram at_once; do
        ok bmc-gen -q -m "$(model grimm)" --jsonl -b 8 --ignore-eos -f in --kv headwise:ram=$ram,group=1 --chunk 40 --stats stats.json
        jq 'del(.ms)' <<<"$output" | cmp - want
        [ "$(jq .kv_resident_bytes stats.json)" -le $((${ram%K} << 10)) ]
        assert_equal "$(jq '.sequences_at_once '"$at_once" stats.json)" true
    done <<<"600K == 1
1500K >= 2
9000K == 8"
    # A shared prefix is copied in strips, not in one long step.
    jq -nc 'range(4) as $i | {id: $i, ids: ([range(900) | . * 7 % 390 + 5] + [$i + 5, 9]), n: 3}' >alike
    ok bmc-gen -q -m "$(model grimm)" --jsonl -b 4 --ignore-eos -f alike --kv headwise:ram=2000K,group=1 --chunk 16
    some_fail 5 8 bmc-gen -q -m "$(model grimm)" --jsonl -b 8 --ignore-eos -f in --kv headwise:ram=300K,group=1 --chunk 40
    assert_equal "$(jq -r .error <<<"$output" | grep -c 'ram=307200 is too small: raise it')" 5
}

@test "a sequence that outgrows ram= is printed up to there" {
    bmc-gen -q -m "$(model grimm)" -p "The king" -n 60 --ids --ignore-eos >all
    printf '%s\n' '{"prompt": "The king", "n": 150, "ignore_eos": true}' '{"prompt": "The wolf", "n": 5}' >in
    run --separate-stderr bmc-gen -q -m "$(model grimm)" --jsonl -f in -b 1 -t 1 --kv headwise:ram=200K
    assert_equal "$status" 1
    [[ $stderr =~ ^"bmc-gen: the KV cache needs ".*" ram=204800 is too small" ]] || fail "$stderr"
    [ "${#lines[@]}" -eq 2 ]
    assert_equal "$(jq -r '.ids[:60] | map(tostring) | join(" ")' <<<"${lines[0]}")" "$(head -c -1 all)"
    jq -e '(.error | startswith("the run ended: the KV cache needs")) and (.ids | length | . > 60 and . < 100)' <<<"${lines[0]}"
    jq -e '(.error | contains("the run ended")) and .ids == []' <<<"${lines[1]}"
}

@test "fallbacks: a thread without io_uring, an unlinked file without O_TMPFILE" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    want=$(hashed)
    mkdir spill
    assert_equal "$(LD_PRELOAD="$BMC_BUILD/inject.so" hashed --kv headwise:ram=900K,group=1 --chunk 100)" "$want"
    assert_equal "$(LD_PRELOAD="$BMC_BUILD/inject.so" BMC_FAIL_CALL=plain hashed --kv headwise:ram=900K,dir=spill --chunk 100)" "$want"
    assert_equal "$(ls -A spill)" ''
}

@test "errors: unusable folder, too little memory, full disk, failing read" {
    expect_error 1 'no/folder: cannot make a file for the cache there' gen --kv headwise:dir=no/folder
    expect_error 1 'in.txt: cannot make a file for the cache there' gen --kv headwise:dir=in.txt
    expect_error 2 'ram=BYTES, as 512M or 1G' gen --kv headwise:ram=lots
    expect_error 1 'ram=102400 is too small: raise it' gen --kv headwise:ram=100K
    # A limit on the file size acts like a full disk.
    full() { (trap '' XFSZ; ulimit -f 16; bmc-gen -q -m "$(model grimm)" -p "Once upon a time" -n 200 --ignore-eos --kv headwise:ram=800K "$@"); }
    run --separate-stderr full
    assert_failure 1
    assert_equal "$stderr" "bmc-gen: /var/tmp: cannot write to the cache's file there: File too large"
    [[ $output == ", and the next day"* ]]
    [[ $BMC_BUILD != *sanitize* ]] || return 0
    run --separate-stderr env LD_PRELOAD="$BMC_BUILD/inject.so" BMC_FAIL_CALL=read BMC_FAIL_AT=100 "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" \
        -p "Once upon a time" -n 200 --ignore-eos --kv headwise:ram=800K
    assert_failure 1
    assert_equal "$stderr" "bmc-gen: /var/tmp: cannot read from the cache's file there: Input/output error"
    [[ $output == ", and the next day"* ]]
}

@test "the file has no name, is private, and disappears with the program, killed or not" {
    mkdir spill
    "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -p x -n 100000 --kv headwise:ram=800K,dir="$PWD/spill" >out 2>err &
    pid=$!
    there() { [ -n "$(find /proc/$pid/fd -lname "$PWD/spill/*" 2>/dev/null)" ]; }
    wait_until there
    assert_equal "$(ls -A spill)" ''
    assert_equal "$(stat -Lc %a "$(find /proc/$pid/fd -lname "$PWD/spill/*")")" 600
    kill -KILL $pid
    wait $pid || true
    assert_equal "$(ls -A spill)" ''
}

@test "bmc-prof accepts a list of policies with several parameters each" {
    tiny_shape tiny.shape
    ok "$BMC_BIN/bmc-prof" bench --shape ./tiny.shape -p 0 -n 3 -r 1 --warmup 0 --megabytes 1 -t 1 --kv bmc:T=4,headwise:ram=1M,group=2,iterative --format json
    assert_equal "$(jq -c '.rows | map(.policy)' <<<"$output")" '["bmc:T=4","headwise:ram=1M,group=2","iterative"]'
}

# Creates a memory control group, or skips the test; sets `group`, and `limit`, the name of the file of its limit.
memory_group() {
    for where in "/sys/fs/cgroup/memory memory.limit_in_bytes" "/sys/fs/cgroup memory.max"; do
        read -r mounted limit <<<"$where"
        group=$mounted/bmc-tests-$$
        mkdir "$group" 2>/dev/null || continue
        [ ! -e "$group/$limit" ] || return 0
        rmdir "$group"
    done
    group=
    skip "no control group for memory can be made here"
}

teardown() {
    [ -z "${group:-}" ] || rmdir "$group"
}

# within BYTES COMMAND..: runs the command in a control group with that memory limit.
within() {
    echo 0 | tee "$group"/memory.swap{piness,.max} >/dev/null 2>&1 || true # one of them is there
    echo "$1" >"$group/$limit"
    (echo "$BASHPID" >"$group/cgroup.procs" && exec "${@:2}")
}

@test "a control group that allows ram= and the program's own memory is enough for a larger cache" {
    ! sanitized || skip "the sanitizers keep memory of their own"
    [ "$(stat -f -c %T .)" != tmpfs ] || skip "files are in memory here"
    memory_group
    tiny_shape tiny.shape
    bench() { within "$1" "$BMC_BIN/bmc-prof" bench --shape ./tiny.shape -N 110000 -p 0 -n 2 -r 1 --warmup 0 -t 1 --megabytes 1 --format json "${@:2}"; }
    own=$(bench $((1 << 30)) -d 0 --kv bmc | jq '.rows[0].peak_resident_bytes')
    # 512 bytes for each of 102,400 tokens are 50 MiB.
    allowed=$((own + (32 << 20)))
    expect_error 1 'out of memory' bench $allowed -d 100K --kv bmc
    ok bench $allowed -d 100K --kv headwise:ram=32M,dir=.
    assert_equal "$(jq '.rows[0].depth' <<<"$output")" 102400
}
