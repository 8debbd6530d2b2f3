# Ranks: several processes in one run, started by mpirun. Without Open MPI all tests but the first ones are skipped.
load ../helper
load mpi

setup_file() {
    model grimm >/dev/null && model grimm-draft >/dev/null || return 1
    export BMC_SEED=${BMC_SEED:-$RANDOM}
}

# Requests of different lengths, each with its id.
requests() { # N
    jq -nc --argjson n "$1" 'range($n) | {id: ., prompt: "Once upon a time \(.)", n: (3 + . * 7 % 20)}'
}

# The launcher need not wait for output before it kills.
fast() { OMPI_MCA_odls_base_sigkill_timeout=0 "$@"; }

jsonl=(--jsonl -t 1 -b 2)
bmc() { echo "$BMC_BIN/bmc-gen"; }

# No process is left (some may take a moment to end), nor temporary files.
all_gone() {
    none_left() { [ -z "$(pgrep -f "$BATS_TEST_TMPDIR/here/in")" ]; }
    wait_until none_left
    assert_equal "$(ls -A "$TMPDIR")" ""
}

# ---- without MPI ----

@test "programs neither link to MPI nor load it without ranks" {
    for program in bmc-gen bmc-spec; do
        refute grep -q 'mpi' <<<"$(readelf -d "$BMC_BIN/$program" | grep NEEDED)"
    done
    requests 1 >in
    LD_DEBUG=files LD_DEBUG_OUTPUT=$PWD/loaded bmc-gen -q -m "$(model grimm)" --jsonl -f in >/dev/null
    grep -q libsodium loaded.*
    refute grep -q mpi loaded.*
}

@test "ranks without the MPI library are a one-line error" {
    requests 1 >in
    expect_error 2 'parallelism data goes with --jsonl' bmc-gen -p x --parallelism data
    ln -s "$BMC_BIN/../models.d" .
    mkdir bin
    cp "$(bmc)" bin/
    expect_error 1 'cannot be loaded .*bmc-mpi.so.*make deps-mpi mpi' bin/bmc-gen --jsonl -f in --parallelism data
    OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 expect_error 1 'cannot be loaded' bin/bmc-gen --jsonl -f in
    ok env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 bin/bmc-gen -q --jsonl -f in
    OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 run bin/bmc-gen --nonsense # rank 0 reports it
    assert_equal "$status $output" "2 "
}

# Left over from another run, or set by hand. The MPI library is not needed for this.
@test "contradictory variables of a launcher are a one-line error; a size without a rank, or an empty rank, is ignored" {
    wrong() { # PATTERN VARIABLE..
        run_plain env "${@:2}" "$(bmc)" -q -p x -n 2
        assert_equal "${*:2}: $status|$output|$(wc -l <<<"$stderr")" "${*:2}: 1||1"
        [[ $stderr =~ ^bmc-gen:\ $1 ]] || fail "$stderr"
    }
    for launcher in OMPI_COMM_WORLD PMI; do
        wrong "${launcher}_RANK=5 and ${launcher}_SIZE=2 contradict each other, .*: unset ${launcher}_RANK to run as one process" ${launcher}_{RANK=5,SIZE=2}
        wrong "${launcher}_RANK=1 and ${launcher}_SIZE=1 contradict" ${launcher}_{RANK=1,SIZE=1}
        wrong "${launcher}_SIZE=two is not a number of ranks: unset ${launcher}_RANK" ${launcher}_{RANK=1,SIZE=two}
        wrong "${launcher}_SIZE=0 is not a number of ranks" ${launcher}_{RANK=0,SIZE=0}
        wrong "${launcher}_RANK=-1 is not the number of a rank: unset it" ${launcher}_RANK=-1
        wrong "${launcher}_RANK=a is not the number of a rank" ${launcher}_{RANK=a,SIZE=2}
    done
    wrong 'PMIX_RANK=99999999999 is not the number of a rank' PMIX_RANK=99999999999
    wanted=$(bmc-gen -q -p x -n 2)
    for variables in PMI_SIZE=2 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK= 'OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=5'; do
        # shellcheck disable=SC2086
        ok env $variables "$(bmc)" -q -p x -n 2
        assert_equal "$output" "$wanted"
    done
    ok env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$(bmc)" --help
    [[ $output == 'bmc-gen - '* ]]
}

@test "a rank unknown to MPI is an error instead of silence; rank 0 of an unknown number runs alone" {
    needs_mpi
    stray() { # PATTERN VARIABLE..
        for program in bmc-gen bmc-spec; do
            run_plain env "${@:2}" "$BMC_BIN/$program" -q -p x -n 2
            assert_equal "${*:2}: $status|$output" "${*:2}: 1|"
            [[ $stderr =~ ^$program:\ $1,\ but\ MPI\ that\ it\ is\ rank\ 0\ of\ 1:\ unset ]] || fail "$stderr"
        done
    }
    stray 'PMIX_RANK says that this is rank 5' PMIX_RANK=5
    stray 'OMPI_COMM_WORLD_RANK says that this is rank 5' OMPI_COMM_WORLD_RANK=5
    stray 'OMPI_COMM_WORLD_RANK says that this is rank 1 of 2' OMPI_COMM_WORLD_{RANK=1,SIZE=2}
    stray 'PMI_RANK says that this is rank 0 of 2' PMI_{RANK=0,SIZE=2}
    for variable in PMIX_RANK PMI_RANK OMPI_COMM_WORLD_RANK; do
        ok env $variable=0 "$(bmc)" -q -p x -n 2
        assert_equal "$output" "$(bmc-gen -q -p x -n 2)"
    done
    assert_equal "$(ls -A "$TMPDIR")" ""
}

# ---- --parallelism data ----

@test "requests distributed to 1, 2 and 3 ranks have the results of one process, in order, and its statistics" {
    needs_mpi
    requests 14 >in
    echo '{"id": "bad", "prompt": 1}' >>in
    echo 'worse' >>in
    counts='[.logits_hash, .sequences, .prefill_tokens + .shared_rows, .decode_tokens, .finished_length]'
    some_fail 2 16 bmc-gen -q "${jsonl[@]}" -f in --temp 0.8 --stats one
    echo "$output" >wanted
    for ranks in ${BMC_FULL:+1 2 4 8} 3; do
        run_plain fast mpirun -n $ranks "$(bmc)" -q "${jsonl[@]}" -f in --temp 0.8 --stats some
        assert_equal "$status" 1
        assert_equal "$(grep -c '^bmc-gen: ' <<<"$stderr")" 1
        grep -q '^bmc-gen: 2 of 16 requests failed: their results say why$' <<<"$stderr"
        assert_equal "$output" "$(cat wanted)"
        assert_equal "$(jq -c "$counts" some)" "$(jq -c "$counts" one)"
        assert_equal "$(jq .ranks some)" $ranks
    done
    all_gone
}

@test "a stream is answered while it arrives, in any order with --unordered, each request once; bmc-spec" {
    needs_mpi
    requests 20 >lines
    mkfifo in
    bmc-gen -q --jsonl -t 1 -b 2 -f lines | sort >wanted
    mpirun -n 2 "$BMC_BIN/bmc-spec" -q --jsonl -t 1 -b 2 --unordered >out 2>err <in &
    pid=$!
    exec 5>in
    head -n 10 lines >&5
    half() { [ "$(wc -l <out)" -eq 10 ]; }
    wait_until half
    tail -n 10 lines >&5
    exec 5>&-
    wait $pid
    [ ! -s err ] || fail "$(cat err)"
    sort out | cmp - wanted
}

@test "a random seed is the same on all ranks" {
    needs_mpi
    jq -nc 'range(6) | {id: ., prompt: "Once"}' >in
    run_plain mpirun -n 2 "$(bmc)" -q "${jsonl[@]}" -f in -n 9 --temp 1.5 --seed -1 --stats stats
    assert_equal "$status|$stderr" "0|"
    assert_equal "$output" "$(bmc-gen -q "${jsonl[@]}" -f in -n 9 --temp 1.5 --seed "$(jq .seed stats)")"
}

@test "a rank with other options or another model is named" {
    needs_mpi
    requests 2 >in
    differing() { # PATTERN OPTIONS OF RANK 1
        run_plain fast mpirun -n 1 "$(bmc)" -q "${jsonl[@]}" -f in -m "$(model grimm)" : -n 1 "$(bmc)" -q "${jsonl[@]}" -f in "${@:2}"
        assert_equal "$status|$output" "1|"
        [[ $(grep '^bmc-gen: ' <<<"$stderr") =~ ^bmc-gen:\ rank\ 1\ on\ [^\ ]*$1 ]] || fail "$stderr"
        assert_equal "$(grep -c '^bmc-gen: ' <<<"$stderr")" 1
    }
    differing ' differs from rank 0: it has "--top-k 3",' -m "$(model grimm)" --top-k 3
    [ "$BMC_FULL" != 1 ] || differing ' differs from rank 0: it has "model_id ' -m "$(model grimm-draft)"
    # kernel sets may differ, unless one has bits of its own
    [ "$BMC_FULL" != 1 ] || differing ' differs from rank 0: it has "(precision f32|logits of blas)", and rank 0 "' -m "$(model grimm)" --isa blas
    differing ': /nowhere.bmc: cannot open' -m /nowhere.bmc
    all_gone
}

@test "all ranks use the kernel set of rank 0, whatever the defaults of their hosts" {
    needs_mpi
    requests 2 >in
    prefer_isa avx2 "$PWD/first"
    prefer_isa avxvnni "$PWD/second"
    run_plain fast mpirun -n 1 env XDG_CONFIG_HOME="$PWD/first" "$(bmc)" -q "${jsonl[@]}" -f in --parallelism tensor --stats stats : \
        -n 1 env XDG_CONFIG_HOME="$PWD/second" "$(bmc)" -q "${jsonl[@]}" -f in --parallelism tensor --stats stats
    assert_equal "$status|$stderr" "0|"
    assert_equal "$(jq -r '"\(.isa) \(.ranks)"' stats)" "avx2 2"
    assert_equal "$output" "$(bmc-gen -q "${jsonl[@]}" -f in --isa avx2)"
}

# ---- how runs end ----

# Starts three ranks over the requests in ./in, whose results are in ./wanted; sets pid, and rank to the worker processes.
begin() {
    env --default-signal=INT,TERM mpirun -n 3 "$(bmc)" "${jsonl[@]}" -f "$PWD/in" >out 2>err </dev/null &
    pid=$!
    # shellcheck disable=SC2009
    ranks_there() {
        rank=($(pgrep -P $pid -x bmc-gen))
        [ ${#rank[@]} -eq 3 ]
    }
    wait_until ranks_there
}

# The same over N requests; the reference is computed once for all tests.
begin_with() { # N
    requests "$1" >in
    [ -e "$BATS_FILE_TMPDIR/wanted.$1" ] || bmc-gen -q "${jsonl[@]}" -f in >"$BATS_FILE_TMPDIR/wanted.$1"
    cp "$BATS_FILE_TMPDIR/wanted.$1" wanted
    begin
}

results() { [ "$(wc -l <out)" -ge "$1" ]; }

# The run ends within a minute, also on a busy machine, with that status: every result is one of the reference's or an error, none comes twice, nothing
# is left behind.
ends_soon() { # STATUS, or a regular expression
    local begun=$EPOCHSECONDS status=0
    wait $pid || status=$?
    [ $((EPOCHSECONDS - begun)) -lt 60 ]
    [[ $status =~ ^($1)$ ]] || fail "status $status: $(cat err)"
    jq -c 'select(.error == null)' out >finished
    assert_equal "$(grep -vxFf <(jq -c . wanted) finished)" ""
    assert_equal "$(jq .id out | sort | uniq -d)" ""
    all_gone
}

@test "a rank killed at a random moment ends the run; finished results are printed" {
    needs_mpi
    echo "BMC_SEED=$BMC_SEED"
    RANDOM=$BMC_SEED
    times=1 n=40
    [ "$BMC_FULL" != 1 ] || times=30 n=1000
    for ((i = 0; i < times; i++)); do
        begin_with $n
        victim=$((RANDOM % 3)) after=$((RANDOM % (n / 3)))
        wait_until results $after
        kill -KILL "${rank[victim]}"
        ends_soon 137
        grep -q "process rank $victim .* exited on signal 9 (Killed)" err || fail "rank $victim: $(cat err)"
        [ "$(wc -l <finished)" -ge $after ]
    done
}

@test "a rank that runs out of memory ends the run, with its name and the reason" {
    needs_mpi
    if sanitized; then skip "address space of a sanitizer"; fi
    tiny_shape tiny.shape context 2000000
    bmc-convert --synth tiny.shape -o tiny.bmc
    jq -nc 'range(80) | {id: ., ids: [5], n: 2}' >in
    # Every sequence reserves 1 GB of address space, which rank 1 lacks for two.
    run_plain fast mpirun -n 1 "$(bmc)" -q "${jsonl[@]}" -f in -m tiny.bmc -b 40 --kv reserve : \
        -n 1 sh -c 'ulimit -v 1500000; exec "$0" "$@"' "$(bmc)" -q "${jsonl[@]}" -f in -m tiny.bmc -b 40 --kv reserve
    assert_equal "$status" 1
    grep -qE '^bmc-gen: rank 1 on [^ ]*: .*(out of memory|[Cc]annot allocate memory)' <<<"$stderr" || fail "$stderr"
    all_gone
}

@test "a stopped rank ends the run, unless it continues in time" {
    needs_mpi
    begin_with 40
    wait_until results 2
    kill -STOP "${rank[1]}"
    sleep 0.3
    kill -CONT "${rank[1]}"
    wait $pid
    equal_files out wanted
    for stopped in ${BMC_FULL:+0 1} 2; do
        begin_with 40
        wait_until results 2
        kill -STOP "${rank[stopped]}"
        ends_soon '143|137' # mpirun kills ranks that have not ended a second after SIGTERM: on a busy machine
        grep -q "^bmc-gen: rank $stopped on [^:]*: was stopped for 3 seconds$" err || fail "$(cat err)"
    done
}

# Two short requests, then many long prompts in short prefill chunks: the run is far from its end when the signal comes, and every
# rank can react at once. Output is short, since mpirun loses the end of long output while it ends.
@test "an interrupted run prints finished results and statistics" {
    needs_mpi
    jq -nc '[range(900) | 5 + . * 7 % 290] as $long | range(400) | {id: ., n: 3, ids: (if . < 2 then [5, 6] else $long end)}' >in
    jsonl+=(--prefix-cache-mb 0 --chunk 16)
    head -n 3 in | bmc-gen -q "${jsonl[@]}" -f - | jq -c '., (select(.id == 2) | .id = range(3; 400))' >wanted
    # mpirun kills all ranks one second after the signal, which may be too soon on a busy machine.
    for attempt in 1 2 3; do
        begin
        wait_until results 2
        kill -INT $pid
        ends_soon 1
        refute grep -q '^bmc-gen: rank' err
        ! grep -q 'eval time' err || break
    done
    grep -q 'eval time' err || fail "attempt $attempt: $(cat err)"
    refute grep -q '^bmc-gen:' err
    assert_equal "$(jq -r 'select(.error != null).error' out | sort -u)" interrupted
}

@test "data parallelism: cancel reaches requests on every rank and waiting ones; several choices and adapters" {
    needs_mpi
    {
        jq -nc 'range(4) | {id: "long\(. % 2)", prompt: "Once", n: 300, ignore_eos: true}'
        printf '%s\n' '{"id": "waits", "prompt": "Once", "n": 300, "ignore_eos": true}' '{"id": "short", "prompt": "Once upon", "n": 3}' \
            '{"id": "by", "cancel": "long0"}' '{"cancel": "waits"}' '{"cancel": "long1"}' '{"id": 7, "cancel": "nobody"}' \
            '{"id": "long0", "prompt": "Once upon", "n": 5, "ignore_eos": true}' '{"cancel": 1, "n": 2}' '{"cancel": 1, "max": '
    } >in
    status=0
    timeout 60 mpirun -n 2 "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --jsonl -np 2 -t 1 <in >out 2>err || status=$?
    [ "$status" -ne 0 ]
    assert_equal "$(jq -c '[.id, .finish, .cancelled]' out)" '["long0","cancelled",null]
["long1","cancelled",null]
["long0","cancelled",null]
["long1","cancelled",null]
["waits","cancelled",null]
["short","length",null]
["by",null,2]
[null,null,1]
[null,null,2]
[7,null,0]
["long0","length",null]
[null,"error",null]
[null,"error",null]'
    assert_equal "$(jq -c 'select(.finish) | .ids | length < 300' out | sort -u)" true
    assert_equal "$(tail -n 2 out | jq -r .error | head -n 1)" 'line 12: "cancel" goes with no other member than "id"'

    jq -nc 'range(6) | {id: ., prompt: "Once upon a time", n: (. % 3 + 1), max_tokens: 6, temperature: 1, stream: (. == 2)}' >in
    "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --jsonl -np 3 <in --stats alone.json | jq -c 'select(has("delta") | not)' >want
    timeout 60 mpirun -n 2 "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --jsonl -np 2 -t 1 --stats ranks.json <in 2>err | jq -c 'select(has("delta") | not)' >got
    cmp want got
    assert_equal "$(jq -c .logits_hash ranks.json)" "$(jq -c .logits_hash alone.json)"
}
