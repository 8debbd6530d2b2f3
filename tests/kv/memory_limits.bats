# Limits of memory, context and options: refused at the start where possible, else reported when they are reached.
load ../helper

setup_file() {
    for name in grimm grimm-draft llama-2-like; do model "$name" >/dev/null || return 1; done
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
}

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }
gen() { bmc-gen -q -m "$(model grimm)" --ids --ignore-eos -t 1 "$@"; }

@test "a prompt that does not fit in ram= is refused alone; a later end says how much memory the whole sequence needs" {
    long=$(seq -s ' ' 100 359)
    # 260 tokens are 72 KiB per head: two heads are in buffers, and 12 KiB of K and of V of each of 16 are not written yet.
    expect_error 1 'a prompt of 260 tokens needs 540672 bytes of memory .* up to ([0-9]+) with its continuation; ram=540671 is too small: raise it' \
        gen --prompt-ids "$long" -n 20 --chunk 20 --kv headwise:ram=540671,group=1
    ok gen --prompt-ids "$long" -n 1 --chunk 20 --kv headwise:ram=540672,group=1
    jq -nc '{id: 1, ids: [range(100; 360)], n: 2}, {id: 2, ids: [9, 10], n: 2}' >in
    some_fail 1 2 bmc-gen -q -m "$(model grimm)" --jsonl -t 1 -b 2 --chunk 16 -f in --kv headwise:ram=147455,group=1
    assert_equal "$(jq -c '[.id, .finish, (.ids | length)]' <<<"$output" | tr -d '\n')" '[1,"error",0][2,"length",2]'
    # The prompt fits and the answer does not; the message has the total, which is enough.
    short=$(seq -s ' ' 100 129)
    run_plain gen --prompt-ids "$short" -n 200 --kv headwise:ram=330K,group=1
    assert_failure 1
    [[ $stderr =~ needs\ ([0-9]+)\ bytes.*\ and\ up\ to\ ([0-9]+)\ bytes\ for\ 230,.*ram=337920\ is\ too\ small:\ raise\ it ]]
    all=${BASH_REMATCH[2]}
    [ "${BASH_REMATCH[1]}" -lt "$all" ]
    ok gen --prompt-ids "$short" -n 200 --kv headwise:ram=$all,group=1
    # The prompt fits in small chunks only.
    expect_error 1 'a prompt of 260 tokens needs 638976 bytes of memory' gen --prompt-ids "$long" -n 8 --chunk 100 --kv headwise:ram=300K,group=1
}

@test "a prompt that needs most memory in the middle, or for the copies of beams, fails alone" {
    jq -nc '(5, 448, 3) as $n | {ids: [range($n) | 5 + . * 7 % 290], n: 8}' >in
    some_fail 1 3 bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -t 1 -np 1 --chunk 16 --cache-type q8 -f in --kv headwise:ram=300K
    jq -nc '(5, 140, 3) as $n | {ids: [range($n) | 5 + . * 7 % 290], n: 8}' >in
    some_fail 1 3 bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -t 1 -np 1 --chunk 200 --beams 2 -f in --kv headwise:ram=600K
}

@test "bmc-prof memory and bmc-gen agree on the memory that ram= must allow" {
    expect_error 1 'needs .* up to [0-9]+ with' gen --prompt-ids "$(seq -s ' ' 100 399)" -n 20 --kv headwise:ram=100K
    [[ $stderr =~ up\ to\ ([0-9]+) ]]
    least=${BASH_REMATCH[1]}
    memory() { bmc-prof memory -m "$(model grimm)" -p 300 -n 20 --format json "$@" | jq -c '.rows[] | select(.policy | startswith("headwise")) | [.least_bytes, .fits, .run_bytes != null]'; }
    # One byte decides, whether the cache is really filled or not.
    for megabytes in 1 64; do
        assert_equal "$(memory --megabytes $megabytes --kv headwise:ram=$((least - 1)))" "[$least,0,false]"
    done
    assert_equal "$(memory --megabytes 64 --kv headwise:ram=$least)" "[$least,null,true]"
    assert_equal "$(memory --memory 1G --kv headwise:ram=$((3 * least)))" "[$least,3,true]"
    assert_equal "$(bmc-prof memory -m "$(model grimm)" -p 300 -n 20 --kv bmc --format json | jq -c '[.rows[].least_bytes] | unique')" '[null]'
}

@test "the prefix cache keeps the most recent sequences by bytes, whatever their slots" {
    # 4 KiB per token: 1 MiB holds two of these sequences. The third to end evicts one; all are read before the first ends.
    wave() { printf '%s\n' "$(jq -nc '$ARGS.positional[] | tonumber | {ids: [range(.; . + 110)], n: (. / 1000 | floor * 2 + 12)}' --args "$@")" >&7; }
    mkfifo in
    bmc-gen -q -m "$(model grimm)" --jsonl -t 1 -b 3 --prefix-cache-mb 1 --ignore-eos --stats stats <in >out &
    exec 7>in
    done=0
    answered() { [ "$(wc -l <out)" -ge $done ]; }
    for firsts in "500 1500 2500" 1500 2500 500; do
        # shellcheck disable=SC2086
        wave $firsts
        done=$((done + $(wc -w <<<"$firsts")))
        wait_until answered
    done
    exec 7>&-
    wait $!
    assert_equal "$(jq -c '[.sequences, .shared_rows]' stats)" "[6,$((2 * 109))]"
}

@test "duplicates are refused: parameters of policies, lines of lists, shapes and chat templates, biases" {
    expect_error 2 '"shift:S=64,S=32": S= is given twice, once is expected' gen -p x -n 2 --kv shift:S=64,S=32
    expect_error 2 'slack= is given twice' gen -p x -n 2 --kv shift:slack=1,S=64,slack=1
    expect_error 2 'ram= is given twice' gen -p x -n 2 --kv headwise:ram=1M,dir=.,ram=2M
    expect_error 2 'dir= is given twice' bmc-spec -p x --kv bmc --draft-kv headwise:dir=.,dir=.
    expect_error 2 'group= is given twice' bmc-prof bench -p 1 -n 1 --kv headwise:group=1,group=2
    printf 'sink 4\n0 0\n# again\nsink 4\n' >heads
    expect_error 1 'heads: line 4: "sink" is on line 1 already: remove one of them' gen -p x --kv headwise --retrieval-heads heads
    printf '0 0\nrecent 9\nrecent 10\n' >heads
    expect_error 1 'heads: line 3: "recent" is on line 2 already' gen -p x --kv headwise --retrieval-heads heads
    sed '$a layers 3' "$ROOT/models.d/shapes/opt-125m.shape" >twice.shape
    expect_error 1 'twice.shape: line [0-9]+: "layers" is on line [0-9]+ already' bmc-convert --synth ./twice.shape -o a.bmc
    printf '%s\n' 'rope_long none' 'rope_long 1 2' >list
    cat "$ROOT/models.d/shapes/opt-125m.shape" list >list.shape
    expect_error 1 'list.shape: line [0-9]+: "rope_long" is on line [0-9]+ already' bmc-convert --synth ./list.shape -o a.bmc
    printf '%s\n' 'chat x' 'user "a"' 'user "a"' >twice.chat
    expect_error 1 'twice.chat: line [0-9]+: "user" is on line [0-9]+ already' gen -p x --chat --chat-template ./twice.chat
    expect_error 2 'token 5 has two biases: give one of "5=1" and "5=-inf"' gen -p x --logit-bias 5=1 --logit-bias 6=1 --logit-bias 5=-inf
}

@test "only numbers of tokens may end in K, in every program" {
    ids="1 2 3"
    ok gen --prompt-ids "$ids" -n 3 -c 1K --chunk 1K --repeat-last-n 1K --kv shift:S=1K
    wanted=$output
    ok gen --prompt-ids "$ids" -n 3 -c 1024 --chunk 1024 --repeat-last-n 1024 --kv shift:S=1024
    assert_output "$wanted"
    ok gen --prompt-ids "$ids" -n 3 --kv bmc:r=1K
    assert_output "$wanted"
    expect_error 1 '^bmc-gen: -c 2048 exceeds the model.s context of 1024 ' gen -p x -c 2K
    expect_error 2 '-n: needs a whole number, -1 or more; found "-1K"' gen -p x -n -1K
    expect_error 2 '--chunk: .* found "1KK"' gen -p x --chunk 1KK
    expect_error 2 '-b: needs a whole number from 1 to 65536; found "1K"' gen --jsonl -b 1K -f in
    expect_error 2 'found "1.5K"' bmc-gen --score -p x --stride 1.5K
    ok bmc-spec -q -m "$(model grimm)" -d "$(model grimm)" --prompt-ids "$ids" --ids --ignore-eos -n 3 -t 1 -c 1K -cd 1K --batch-knee 1K
    assert_output "$wanted"
    expect_error 2 '-cd: needs a whole number, 0 or more; found "1k5"' bmc-spec -p x -cd 1k5
    printf 'family llama\nlayers 1\nhidden 16\nheads 1\nkv_heads 1\nffn 16\nvocab 300\ncontext 2048\nnorm_eps 1e-5\neos 0\n' >tiny.shape
    ok bmc-prof bench --shape ./tiny.shape -p 1K -n 0 -r 1 --warmup 0 --megabytes 1 --kv upfront --format json
    assert_equal "$(jq '.rows[0].n_prompt' <<<"$output")" 1024
    for program in gen prof spec; do
        "$BMC_BIN/bmc-$program" --help >help
        assert_equal "$(grep -c '8K is 8192' help)" 1
    done
}

@test "bmc-prof exceeds the model's context with rolling caches only" {
    shape() { printf 'family %s\nlayers 1\nhidden 16\nheads 1\nkv_heads 1\nffn 16\nvocab 300\ncontext 32\nnorm_eps 1e-5\neos 0\n' "$1"; }
    for family in llama opt; do
        shape $family >$family.shape
        ok bmc-convert --synth ./$family.shape -o $family.bmc
    done
    bench() { bmc-prof bench -p 60 -n 20 -r 1 --warmup 0 --megabytes 1 -t 1 --format json "$@"; }
    ok bench -m llama.bmc --kv shift:S=16
    assert_equal "$(jq -c '[.rows[] | .n_prompt + .n_gen]' <<<"$output")" '[60,20]'
    ok bmc-prof latency -m llama.bmc -N 50 --every 49 --kv shift:S=16 -t 1
    expect_error 1 '60 tokens .* exceed the context of 32' bench -m llama.bmc --kv bmc
    expect_error 1 '-N 50 is beyond the model.s context of 32' bmc-prof latency -m llama.bmc -N 50 --kv bmc
    # Next to a policy that can.
    run --separate-stderr bench -m llama.bmc --kv shift,bmc
    assert_equal "$status $stderr" "1 bmc-prof: bmc: 60 tokens are beyond the model's context of 32"
    assert_equal "$(jq -c '[.rows[] | [.policy, .error == null]]' <<<"$output")" '[["shift",true],["bmc",false],["shift",true],["bmc",true]]'
    run --separate-stderr bmc-prof latency -m llama.bmc -N 50 --every 49 --kv shift,bmc -t 1 --format json
    assert_equal "$status $stderr" "1 bmc-prof: bmc: 50 tokens are beyond the model's context of 32"
    jq -e '.rows | length == 2 and .[0].shift_ms > 0 and .[1].policy == "bmc"' <<<"$output"
    # Learned positions end with the context.
    expect_error 1 '60 tokens .* exceed the context of 32' bench -m opt.bmc --kv shift
}

@test "an empty prompt is BOS where the model has it, else an error" {
    : >empty
    printf '\n' >line
    bos=(bmc-gen -q -m "$(model llama-2-like)" --ids -n 3)
    ok "${bos[@]}" --prompt-ids 1
    wanted=$output
    for how in "-p=" "-f=empty" "-f=line"; do
        ok "${bos[@]}" "${how%%=*}" "${how#*=}"
        assert_output "$wanted"
        expect_error 1 '^bmc-gen: the prompt is empty, and the model adds no BOS token: give some text' gen -n 3 "${how%%=*}" "${how#*=}"
    done
    expect_error 1 'the prompt is empty' "${bos[@]}" --prompt-ids ''
    # An empty line is no request; an empty prompt fails alone.
    printf '{"prompt": "", "n": 3}\n\n' >in
    ok bmc-gen -q -m "$(model llama-2-like)" --jsonl -f in
    assert_equal "$(jq -c '.ids' <<<"$output")" "[${wanted// /,}]"
    some_fail 1 1 bmc-gen -q -m "$(model grimm)" --jsonl -f in
}

@test "the KV cache of a draft model is part of admission control" {
    jq -nc '90, 60, 30, 80, 70 | {id: ., ids: [range(100; 100 + .)], n: 4}' >in
    drafted() { bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" --jsonl -b 5 -t 1 --ignore-eos -f in --always -k 4 --chunk 40 --stats stats "$@" | jq -c '[.id, .ids]'; }
    drafted --kv bmc >want
    assert_equal "$(jq .sequences_at_once stats)" 5
    drafted --kv bmc --draft-kv headwise:ram=200K,group=1 >got
    equal_files want got
    assert_equal "$(jq '.sequences_at_once | . > 1 and . < 5' stats)" true
    # If it cannot fit, the error names the draft model: at once, or when the memory is needed.
    expect_error 1 'bmc-spec: draft model: the KV cache needs .* ram=5120 is too small' bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" -p x --draft-kv headwise:ram=5K
    run --separate-stderr bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" -p "$(seq 100)" --always -k 4 --chunk 100 --draft-kv headwise:ram=50K,group=1
    assert_equal "$status" 1
    [[ $stderr =~ ^"bmc-spec: draft model: the KV cache needs "[0-9]+" bytes of memory for 100 tokens".*" ram=51200 is too small" ]] || fail "$stderr"
    expect_error 1 'bmc-spec: draft model: the KV cache needs .* ram=40960 is too small' \
        bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" -p x -n 4 --tree auto --draft-kv headwise:ram=40K,group=1
}

@test "a prompt whose chunks or beams do not fit in ram= fails alone" {
    jq -nc '{id: 1, ids: [5, 6], n: 40}, {id: 2, ids: [range(100; 230)], n: 2}, {id: 3, ids: [7, 8], n: 2}' >in
    some_fail 1 3 bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -t 1 -b 2 -f in --kv headwise:ram=256000,group=1
    assert_equal "$(jq -c '[.id, .finish, (.ids | length)]' <<<"$output" | sort | tr -d '\n')" '[1,"length",40][2,"error",0][3,"length",2]'
    [[ $output =~ "a prompt of 130 tokens needs 507904 bytes of memory" ]]
    # It fits in smaller chunks.
    ok bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -t 1 -b 2 -f in --kv headwise:ram=480000,group=1 --chunk 40
    beams() { bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -t 1 --beams 2 -f in --kv "headwise:ram=$1,group=1"; }
    jq -nc '{id: 1, ids: [range(60)], n: 4}, {id: 2, ids: [5, 6], n: 2}' >in
    some_fail 2 2 beams 164864
    [[ $output =~ "a prompt of 60 tokens needs 294912 bytes" ]]
    # The prompt fits, its copy for the second beam does not.
    some_fail 1 2 beams 294912
    assert_equal "$(jq -c '[.id, .finish, (.ids | length)]' <<<"$output" | sort | tr -d '\n')" '[1,"error",0][2,"length",2]'
    [[ $output =~ "a prompt of 60 tokens needs 335872 bytes" ]]
    some_fail 1 2 beams 335871
    ok beams 335872
}

@test "a request that waits for draft memory finds the cached prefix of the target" {
    jq -nc '{id: 1, ids: [range(100; 160)], n: 2}, {id: 2, ids: [range(200; 230)], n: 60}, {id: 3, ids: [range(100; 190)], n: 4}' >in
    ok bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" --jsonl -b 2 -t 1 --ignore-eos -f in --always -k 4 --chunk 40 --stats stats --prefix-cache-mb 4 --kv bmc --draft-kv headwise:ram=200K,group=1
    assert_equal "$(jq -c '[.shared_rows, .sequences_at_once]' stats)" "[60,2]"
}
