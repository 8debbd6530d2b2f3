# Memory pressure (--kv-pressure): a limit that falls under a batch, conversions and their replay.
load ../helper

setup_file() {
    model grimm >/dev/null
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    # 16 requests of different lengths, 4 KiB per token
    jq -nc 'range(16) | {id: ., ids: [range(20 + . * 5) | 5 + . * 7 % 290], n: (40 + . * 4)}' >in
}

gen() { bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -c 512 --stats stats -f in "$@"; }
plain() { gen -t 1 -np 16 --prefix-cache-mb 0 --no-spec "$@"; }
stat() { jq -r ".$1" stats; }

# falling SIZE..: writes sizes to the file `limit`, one after the other, while a run goes on.
falling() {
    echo "$1" >limit
    (for size in "${@:2}"; do
        sleep 0.05
        echo "$size" >next && mv next limit
    done) 3>&- &
}

# all_complete FILE: 16 answers, none failed or short.
all_complete() {
    assert_equal "$(jq -s 'length == 16 and all(.finish == "length" and (.ids | length) == 40 + .id * 4)' "$1")" true
}

@test "recurrent states count: the cache keeps to the limit, also of a model without KV entries, and answers are the same" {
    for name in mamba2 lfm2; do
        bmc-convert -q "$FIXTURES/families/$name" -o $name.bmc
        run_model() { bmc-gen -q -m $name.bmc --jsonl --ignore-eos --stats stats -f short -t 1 -np 16 --prefix-cache-mb 0 --no-spec "$@"; }
        jq -c '{id, ids: [.ids[:40][] % 240], n: 20}' in >short
        ok run_model
        plain=$(stat logits_hash) most=$(stat kv_resident_bytes)
        echo $((most / 3)) >limit
        ok run_model --kv-pressure refuse --kv-pressure-limit limit
        assert_equal "$name $(stat logits_hash)" "$name $plain"
        [ "$(stat kv_resident_bytes)" -le $((most / 3)) ] || fail "$name: $(stat kv_resident_bytes) of $most bytes"
    done
}

@test "under a limit that falls, requests wait and are suspended, and all answers are those without a limit" {
    ok plain --kv paged
    plain=$(stat logits_hash)
    printf '%s\n' "$output" >all
    all_complete all
    most=$(stat kv_resident_bytes)
    falling 64M $((most / 2)) $((most / 4)) $((most / 8)) $((most / 4))
    ok plain --kv-pressure refuse --kv-pressure-limit limit
    wait
    printf '%s\n' "$output" >now
    all_complete now
    assert_equal "$(stat logits_hash)" "$plain"
    [ "$(stat kv_converted)" = 0 ]
    # from the beginning: the cache keeps to the limit
    echo $((most / 5)) >limit
    for kv in bmc paged:32; do
        ok plain --kv "$kv" --kv-pressure refuse --kv-pressure-limit limit --kv-pressure-log log
        printf '%s\n' "$output" >now
        all_complete now
        assert_equal "$kv $(stat logits_hash)" "$kv $plain"
        [ "$(stat kv_suspended)" -gt 0 ]
        assert_equal "$kv $(grep -c '^suspend [0-9]* [0-9]*$' log)" "$kv $(stat kv_suspended)"
        [ "$(stat kv_resident_bytes)" -le $((most / 5)) ]
    done
    # a file that is gone, or being written, leaves the limit as it was
    mv in lines
    mkfifo in
    (head -1 lines && sleep 0.2 && rm limit && tail -n +2 lines) >in 3>&- &
    ok plain --kv paged --kv-pressure refuse --kv-pressure-limit limit
    wait
    assert_equal "$(stat logits_hash)" "$plain"
    [ "$(stat kv_resident_bytes)" -le $((most / 5)) ]
    mv lines in
    echo $((most / 5)) >limit
    # with drafts, and entries that are kept for later requests, which give way before those of requests
    ok gen -t 2 --kv segment --kv-pressure refuse --kv-pressure-limit limit
    assert_equal "$(stat logits_hash)" "$plain"
    jq -c '. + {n: 300}' in | head -6 >long
    echo 3M >limit
    ok bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -c 512 --stats stats -f long -t 1 -np 6 --no-spec --kv paged --kv-pressure refuse --kv-pressure-limit limit
    [ "$(stat kv_suspended)" -gt 0 ]
    [ "$(stat kv_resident_bytes)" -le $((3 << 20)) ]
}

@test "sequences are converted at block boundaries, and a replay of the log gives the same hash" {
    ok plain --kv paged
    plain=$(stat logits_hash) most=$(stat kv_resident_bytes)
    falling $((most / 2)) $((most / 3)) $((most / 4))
    ok plain --kv paged --kv-pressure q8,refuse --kv-pressure-limit limit --kv-pressure-log log
    wait
    printf '%s\n' "$output" >now
    all_complete now
    converted=$(stat logits_hash)
    [ "$(stat kv_converted)" -gt 0 ]
    assert_equal "$(grep -c '^convert' log)" "$(stat kv_converted)"
    assert_equal "$(awk '$1 == "convert" && ($3 % 16 || $4 != "q8")' log)" ""
    [ "$converted" != "$plain" ]
    # the same tokens and logits, whatever the batch, drafts, threads and chunks are
    ok plain --kv paged --kv-pressure-replay log
    assert_equal "$(stat logits_hash) $(stat kv_converted)" "$converted $(grep -c '^convert' log)"
    printf '%s\n' "$output" >again
    diff now again
    ok gen --kv-pressure-replay log --kv bmc -np 3 -t 2 --chunk 48
    assert_equal "$(stat logits_hash)" "$converted"
    ok gen --kv-pressure-replay log --kv segment -np 16 -t 1 --chunk 7
    assert_equal "$(stat logits_hash)" "$converted"
}

@test "heads are offloaded as the limit says, without a change of the results" {
    ok plain --kv headwise
    plain=$(stat logits_hash) most=$(stat kv_resident_bytes)
    echo $((most / 2)) >limit
    ok plain --kv headwise --kv-pressure offload,refuse --kv-pressure-limit limit
    printf '%s\n' "$output" >now
    all_complete now
    assert_equal "$(stat logits_hash)" "$plain"
    [ "$(stat kv_resident_bytes)" -lt $((most * 3 / 4)) ]
}

@test "steps that are not possible are named at the start; limits and logs are checked" {
    echo '{"ids": [5, 6], "n": 2}' >in
    echo 64M >limit
    run_plain bmc-gen -m "$(model grimm)" --jsonl -f in --kv-pressure offload,q8 --cache-type q8 --kv-pressure-limit limit
    [[ $stderr == *"--kv-pressure offload is not possible: cache policy bmc keeps all heads in memory, only headwise offloads some"$'\n--kv-pressure q8 is not possible: the cache has no larger type than q8\n'* ]]
    run_plain bmc-gen -m "$(model grimm)" --jsonl -f in --kv shift --kv-pressure q8
    [[ $stderr == *"--kv-pressure q8 is not possible: cache policy shift does not convert sequences"* ]]
    expect_error 2 'kv-pressure q8,q4: "q4" is no step: offload, q8 and refuse are expected' gen --kv-pressure q8,q4
    expect_error 2 'kv-pressure q8,q8: q8 is given twice' gen --kv-pressure q8,q8
    expect_error 1 'limit none: cannot open: No such file' gen --kv-pressure q8 --kv-pressure-limit none
    echo lots >limit
    expect_error 1 'limit limit: a file with a number of bytes, as 512M, is expected' gen --kv-pressure q8 --kv-pressure-limit limit
    expect_error 2 'kv-pressure-log' gen --kv-pressure-log log
    for line in 'convert 1' 'convert 1 16 q4' 'convert -1 16 q8' 'convert 0 0 q8' 'suspend 1 2 q8' 'convert 99999999999999999999 16 q8' 'nothing'; do
        printf '# Events\n%s\n' "$line" >log
        expect_error 1 'log: line 2, .* is none of a log of --kv-pressure' gen --kv-pressure-replay log
    done
    printf 'convert 0 16\0q8\n' >log
    expect_error 1 'is no log of --kv-pressure, which is text' gen --kv-pressure-replay log
    printf 'convert 0 16 q8\n' >log
    expect_error 1 'log: cache policy headwise does not convert' gen --kv headwise --kv-pressure-replay log
    printf 'convert %s q8\n' '0 1' '0 48' '7 16' >log
    run_plain bmc-gen -m "$(model grimm)" --jsonl -f in --kv-pressure-replay log
    [[ $stderr == *"log: 2 of its 3 conversions did not happen: these requests, or their number of tokens, are not those of the log"* ]]
}
