# Signals: SIGINT, SIGTERM and SIGHUP write partial results; no signal leaves a temporary file.
load ../helper

setup_file() { model grimm >/dev/null; }

# start COMMAND..: in the background, with default signal handling; standard output goes to ./out.
start() {
    rm -f out err
    env --default-signal=INT,TERM,HUP,QUIT,ALRM,XCPU,ABRT "$@" <&0 >out 2>err &
    pid=$!
}

# Sends a signal; sets `code` to the exit status.
ending() { # SIGNAL
    kill "-$1" $pid
    code=0
    wait $pid || code=$?
}

story=(-p 'Once upon a time' -n 900 --ignore-eos --kv iterative --isa ref -t 1 --ids)

@test "SIGTERM, SIGHUP and SIGINT save a snapshot of the generated text, with statistics" {
    for signal in TERM:143 HUP:129 INT:130; do
        start "$BMC_BIN/bmc-gen" -m "$(model grimm)" "${story[@]}" --save-kv story.kv --stats stats.json
        wait_until test -s out
        ending ${signal%:*}
        assert_equal "$signal ends with $code" "$signal ends with ${signal#*:}"
        grep -q 'eval time' err
        refute grep -q 'bmc-gen:' err
        n=$(wc -w <out)
        [ "$n" -lt 900 ]
        assert_equal "$(jq .sampled_tokens stats.json)" "$n"
        ok bmc-convert --verify story.kv
        assert_equal "$(bmc-convert --info story.kv --format json | jq '.rows[0].tokens')" $((n + 4))
        m=$((n < 64 ? n : 64))
        assert_equal "$(cut -d ' ' -f "1-$m" out)" "$(greedy_ids grimm 0 $m)"
        assert_folder err out stats.json story.kv
        rm story.kv stats.json
    done
}

@test "SIGTERM ends a batch with partial results" {
    seq 6 | jq -c '{id: ., prompt: "The king", n: 900}' >in
    start "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --jsonl -f in -b 4 --ignore-eos --kv iterative -t 1 --save-kv batch.kv
    wait_until compgen -G 'batch.kv.tmp*'
    sleep 0.1
    ending TERM
    assert_equal "$code" 143
    assert_equal "$(jq -r '.finish + .error' out | sort -u)" errorinterrupted
    ok bmc-convert --verify batch.kv
    assert_folder batch.kv err in out
}

@test "the error of an interrupted prompt has no line number" {
    jq -nc '{ids: [5, 6], n: 1}, (range(20) | {ids: [range(5 + .; 905)], n: 1})' >in
    start "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --jsonl -f in -b 1 --isa ref --chunk 1 -t 1
    wait_until test -s out
    ending TERM
    assert_equal "$code" 143
    assert_equal "$(jq -c '[.error, (.ids | length)]' out | uniq | paste -sd ' ')" '[null,1] ["interrupted",0]'
}

@test "SIGTERM ends measurements" {
    tiny_shape tiny.shape
    start "$BMC_BIN/bmc-prof" latency -m "$(model grimm)" -r 64 -t 1
    sleep 0.3
    ending TERM
    assert_equal "$code $(cat out err)" "143 "
    start "$BMC_BIN/bmc-tune" --shape ./tiny.shape -t 1 --profile ./p --seconds 60 --rounds 60
    sleep 0.3
    ending TERM
    assert_equal "$code $(cat err)" "143 "
    assert_folder err out tiny.shape
}

@test "a signal interrupts waiting for a prompt or for the reader of a FIFO" {
    mkfifo fifo open
    exec 6<>open
    for name in fifo open -; do
        start "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -f $name -n 1 <&6
        sleep 0.2
        ending TERM
        assert_equal "$name $code" "$name 143"
    done
    exec 6>&-
    start "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -p x -n 1 --stats fifo
    wait_until test -s out
    sleep 0.1
    ending TERM
    assert_equal "$code" 143
}

@test "no signal leaves a temporary file" {
    for signal in QUIT:131 ALRM:142 XCPU:152 ABRT:134 SEGV:139; do
        sanitized && [ ${signal%:*} = SEGV ] && continue
        start bash -c "ulimit -c 0; exec '$BMC_BIN/bmc-gen' -m '$(model grimm)' ${story[*]@Q} --save-kv story.kv"
        wait_until compgen -G 'story.kv.tmp*'
        ending ${signal%:*}
        assert_equal "$signal ends with $code" "$signal ends with ${signal#*:}"
        assert_folder err out
    done
}

# truncated FILE BYTES MAPPED COMMAND..: truncates FILE while the command has it mapped. The error names it.
truncated() {
    local program
    program=$(basename "$4")
    start "${@:4}"
    wait_until grep -q "$3" /proc/$pid/maps
    if [ "$program" = bmc-gen ]; then wait_until test -s out; fi
    sleep 0.2
    truncate -s "$2" "$1"
    code=0
    wait $pid || code=$?
    assert_equal "$code|$(cat err)" "1|$program: $1: was truncated, or cannot be read any more, while it was in use; replace a file by renaming a complete one to its name"
}

@test "a model truncated during a run gives one error line, from any thread, and no temporary file" {
    sanitized && skip "SIGBUS is AddressSanitizer's"
    m=$(model grimm)
    cp "$m" model.bmc
    truncated model.bmc 200000 model.bmc "$BMC_BIN/bmc-gen" -q -m model.bmc -p x -n 900 --ignore-eos --isa ref -t 4 --save-kv story.kv
    grep -q ' and ' out
    cp "$m" model.bmc
    truncated model.bmc 200000 model.bmc "$BMC_BIN/bmc-prof" latency -m model.bmc -r 64 -t 1
    cp "$m" model.bmc
    truncated model.bmc 200000 model.bmc "$BMC_BIN/bmc-tune" -m model.bmc -t 1 --dry-run -N 64 --seconds 1 --rounds 3 --megabytes 1 --no-sweep --evict 8
    cp "$(model grimm-draft)" draft.bmc
    truncated draft.bmc 100000 draft.bmc "$BMC_BIN/bmc-spec" -q -m "$m" -d draft.bmc -p x -n 900 --ignore-eos --isa ref -t 2 --always --save-kv story.kv
    assert_folder draft.bmc err model.bmc out
}

@test "a snapshot truncated while its KV entries are in use gives one error line" {
    sanitized && skip "SIGBUS is AddressSanitizer's"
    bmc-gen -q -m "$(model grimm)" --prompt-ids "$(seq -s ' ' 500 800)" -n 0 --save-kv story.kv
    truncated story.kv 8192 story.kv "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --load-kv story.kv --kv segment -n 700 --ignore-eos --isa ref -t 1 --save-kv other.kv
    assert_folder err out story.kv
}

@test "a SIGBUS sent by another process ends the program as other signals do" {
    sanitized && skip "SIGBUS is AddressSanitizer's"
    start bash -c "ulimit -c 0; exec '$BMC_BIN/bmc-gen' -q -m '$(model grimm)' ${story[*]@Q} --save-kv story.kv"
    wait_until compgen -G 'story.kv.tmp*'
    ending BUS
    assert_equal "$code $(cat err)" "135 "
    assert_folder err out
}

@test "a library that calls exit() leaves no temporary file" {
    sanitized && skip "AddressSanitizer wants to be the first library"
    # fsync() of the temporary file calls exit().
    printf '%s\n' '#define _GNU_SOURCE' '#include <stdlib.h>' '#include <unistd.h>' 'int fsync(int fd) { (void)fd; exit(7); }' >end.c
    ${CC:-gcc} -shared -fPIC -o end.so end.c
    run env LD_PRELOAD="$PWD/end.so" "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -p x -n 2 --save-kv story.kv
    assert_equal "$status" 7
    assert_folder end.c end.so
}

@test "--stats of an interrupted run: finish is interrupted" {
    "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -p 'Once upon a time' -n 900 --ignore-eos --kv iterative --isa ref -t 1 --stats stats.json >out 3>&- &
    pid=$!
    wait_until test -s out
    kill -TERM $pid
    wait $pid || [ $? -eq 143 ]
    assert_equal "$(jq -c '[.finish, .finished_interrupted, .finished_error, .sequences]' stats.json)" '["interrupted",1,0,1]'
}

@test "bmc(7) has the default of --chunk as the longest that an interrupt may take" {
    page=$(sed -n '/^\.SS Signals/,/^\.SH/p' "$ROOT/man/bmc.7" | tr '\n' ' ')
    chunk=$(bmc-gen --help | sed -n 's/.*prompt tokens per forward pass (default \([0-9]*\)[,)].*/\1/p')
    [[ $page == *"chunk of a prompt: ${chunk:?} tokens by default"*chunk*"makes it shorter"* ]]
    [[ $page == *"a second one ends it at once"* ]]
}
