# GGUF files and folders as models: converted on first use into a cache. BMC_MODEL.
load ../helper

gguf=$FIXTURES/gguf/qwen2-like.gguf

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    export XDG_CACHE_HOME=$PWD/cache
    cp "$gguf" small.gguf
}

# Runs a model that is there; sets ids.
answers() { # ARG..
    ok bmc-gen -q --prompt-ids '1 2 3' -n 3 --ids "$@"
    ids=$output
}

# Runs a model that is to be converted, which one line says; sets the line.
converts() { # ARG..
    run_plain bmc-gen -q --prompt-ids '1 2 3' -n 3 --ids "$@"
    line='^bmc-gen: [^ ]+: was converted for the next runs, too, to '$XDG_CACHE_HOME'/bmc/[a-z0-9-]+-[0-9a-f]{16}\.bmc \([0-9.]+ (bytes|MiB)\)$'
    [ "$status" -eq 0 ] && [[ $stderr =~ $line ]] || fail "status $status, $stderr"
}

n_models() { find cache/bmc -name '*.bmc' | wc -l; }

@test "a GGUF file is converted once, as bmc-convert does, and again when it is written or replaced" {
    bmc-convert -q small.gguf -o small.bmc
    answers -m small.bmc
    expected=$ids
    converts -m small.gguf
    equal_files cache/bmc/small-*.bmc small.bmc
    assert_equal "$(stat -c %a cache/bmc cache/bmc/small-*.bmc)" $'700\n600'
    answers -m small.gguf
    assert_equal "$ids" "$expected"
    mkdir moved
    mv small.gguf moved/
    ln -s moved/small.gguf link.gguf
    answers -m link.gguf
    # Written in place, with the size and time of before: a number of the header differs.
    touch -r moved/small.gguf time
    at=$(grep -abo rope.freq_base moved/small.gguf | head -n 1 | cut -d: -f1)
    printf '\x01' | dd of=moved/small.gguf bs=1 seek=$((at + 14 + 4)) conv=notrunc status=none
    touch -r time moved/small.gguf
    converts -m link.gguf
    assert_equal "$(n_models)" 2
    # Replaced by an equal file: another inode.
    cp "$gguf" new
    mv new moved/small.gguf
    converts -m link.gguf
    assert_folder cache link.gguf moved small.bmc time
}

@test "a folder is converted once, and again when a file that is read has changed; files of a split model count" {
    cp -r "$(folder grimm)" folder
    converts -m folder
    answers -m folder/
    echo notes >folder/README.md
    answers -m "$PWD/folder"
    touch folder/config.json
    converts -m folder
    cp "$FIXTURES"/gguf/llama-3-like-*.gguf .
    converts -m llama-3-like-00002-of-00003.gguf
    answers -m llama-3-like-00001-of-00003.gguf
    touch llama-3-like-00003-of-00003.gguf
    converts -m llama-3-like-00001-of-00003.gguf
}

@test "all programs take GGUF files: as models, drafts and references; BMC_MODEL names the model" {
    converts -m small.gguf
    echo 'The king had a daughter, and the wolf.' >text
    ln -s "$(folder grimm)" king
    run_plain bmc-spec -q -m king -d king -p 'The king' -n 4
    [ "$status" -eq 0 ] && [[ $stderr =~ ^bmc-spec:\ king:\ was\ converted ]] || fail "$stderr"
    expected=$output
    BMC_MODEL=king ok bmc-gen -q -p 'The king' -n 4
    assert_equal "$output" "$expected"
    BMC_MODEL=nowhere.bmc ok bmc-gen -q -m king -p 'The king' -n 4
    BMC_MODEL='' ok bmc-gen -q -p 'The king' -n 4
    BMC_MODEL=nowhere.bmc expect_error 1 'nowhere.bmc: cannot open' bmc-gen -q -p x
    BMC_MODEL=king expect_error 2 'nothing to draft with' bmc-spec -p x
    ok "$BMC_BIN/bmc-prof" quality -m king --reference king -f text -t 1
    BMC_MODEL=king ok "$BMC_BIN/bmc-prof" memory -N 256
    assert_equal "$(n_models)" 2
}

@test "messages and measurements name the file that was given, not the converted one" {
    converts -m small.gguf
    expect_error 1 'draft model: small\.gguf: has no draft head' bmc-spec -q -m small.gguf -d self --prompt-ids 1
    ok "$BMC_BIN/bmc-prof" memory -m small.gguf -p 4 -n 4 --format json
    assert_equal "$(jq -r '.rows[0].shape' <<<"$output")" small.gguf
    printf damaged | dd of="$(echo cache/bmc/small-*.bmc)" conv=notrunc status=none
    expect_error 1 "small.gguf: the file that it was converted to is unusable, remove it: $XDG_CACHE_HOME/bmc/small-" bmc-gen -q -m small.gguf --prompt-ids 1
}

@test "processes that need a model at once convert it once" {
    ln -s "$(folder grimm)" king
    for i in 1 2 3; do
        bmc-gen -q -m king -p 'The king' -n 1 -t 1 2>err.$i >out.$i &
    done
    wait
    assert_equal "$(cat err.* | grep -c 'was converted')" 1
    [ -z "$(grep -vE 'was converted|another process converts it: waiting$' err.*)" ] || fail "$(cat err.*)"
    equal_files out.1 out.2
    equal_files out.1 out.3
    assert_equal "$(n_models)" 1
    assert_equal "$(ls cache/bmc | wc -l)" 2
}

@test "who waits for a model has it while the process that made it goes on" {
    ln -s "$(folder grimm)" king
    mkfifo in
    timeout 60 "$BMC_BIN/bmc-gen" -q -m king --jsonl -f in >long 2>err.long &
    begun() { compgen -G 'cache/bmc/king-*' >/dev/null; }
    wait_until begun
    run_plain timeout 20 "$BMC_BIN/bmc-gen" -q -m king -p 'The king' -n 1 -t 1
    assert_success
    echo '{"prompt": "The king", "n": 1}' >in
    wait
    assert_equal "$(jq -r .text long)" "$output"
}

@test "who needs a model whose file was deleted does not wait for the process that still uses it" {
    converts -m small.gguf
    mkfifo in
    "$BMC_BIN/bmc-gen" -q -m small.gguf --jsonl -f in >long &
    exec 5>in
    echo '{"ids":[1,2,3],"n":1}' >&5
    wait_until test -s long
    rm cache/bmc/small-*.bmc
    run_plain timeout 20 "$BMC_BIN/bmc-gen" -q -m small.gguf --prompt-ids 1 -n 1
    [ "$status" -eq 0 ] && [[ $stderr == *'was converted'* ]] || fail "status $status, $stderr"
    exec 5>&-
    wait
}

@test "of processes that need a model some are killed: another one converts it, nothing is left over" {
    ln -s "$(folder grimm)" king
    for i in 1 2 3; do
        "$BMC_BIN/bmc-gen" -q -m king -p 'The king' -n 1 -t 1 2>err.$i >out.$i &
    done
    # The name of an unfinished file has the number of the process that writes it: king-KEY.bmc.tmp-PID-0.
    begun() { pid=$(compgen -G 'cache/bmc/*.tmp-*' | cut -d- -f3 | grep -vxF "${killed:-none}") || compgen -G 'cache/bmc/*.bmc'; }
    for n in 1 2; do
        wait_until begun >/dev/null
        [ -n "$pid" ] || break # converted already
        kill -KILL "$pid"
        killed=$pid
    done
    wait
    [ -n "$killed" ] || skip "the conversion was too fast"
    assert_equal "$(ls cache/bmc | sed 's/[0-9a-f]*\.bmc$//')" $'king-\nlock'
    assert_equal "$(cat err.* | grep -c 'was converted')" 1
    assert_equal "$(sort -u out.* | grep -c .)" 1
    bmc-convert --verify cache/bmc/king-*.bmc
}

@test "a conversion that fails, is interrupted or killed leaves nothing" {
    head -c 60000 "$gguf" >cut.gguf
    expect_error 1 'cut.gguf: .*truncated' bmc-gen -q -m cut.gguf -p x
    mkdir empty
    expect_error 1 'empty: .*config.json' bmc-gen -q -m empty -p x
    [ -z "$(ls cache/bmc 2>/dev/null | grep -v '^lock$')" ]
    cp -r "$(folder grimm)" folder
    for signal in INT TERM KILL; do
        touch folder/config.json
        "$BMC_BIN/bmc-gen" -q -m folder -p x -n 1 2>err >/dev/null &
        begun() { compgen -G 'cache/bmc/folder-*' >/dev/null; }
        wait_until begun
        kill -$signal $! || true
        wait $! || true
        rm -f cache/bmc/folder-*.bmc # it may have been faster
        [ $signal = KILL ] || [ "$(ls cache/bmc)" = lock ] || fail "$signal: $(ls cache/bmc)"
    done
    # What a killed process leaves goes with the next conversion.
    touch cache/bmc/folder-0123456789abcdef.bmc.tmp-1-0
    converts -m small.gguf
    assert_equal "$(ls cache/bmc | grep -vc '^small-.*bmc$')" 1
    prlimit --fsize=50000 "$BMC_BIN/bmc-gen" -q -m folder -p x 2>err && fail "it was written"
    grep -q '^bmc-gen: .*cannot write: File too large$' err
    assert_equal "$(wc -l <err)" 1
    assert_equal "$(ls cache/bmc | grep -vc '^small-.*bmc$')" 1
}

@test "the cache is limited: the least recently used models go first, but none in use" {
    for name in a b c; do cp "$gguf" $name.gguf; done
    converts -m a.gguf
    converts -m b.gguf
    bytes=$(stat -c %s cache/bmc/a-*.bmc)
    answers -m a.gguf
    BMC_CACHE_SIZE=$((2 * bytes)) converts -m c.gguf
    assert_equal "$(cd cache/bmc && printf '%s\n' *.bmc | cut -c1-2)" $'a-\nc-'
    # a is in use, c is not.
    mkfifo in
    "$BMC_BIN/bmc-gen" -q -m a.gguf --jsonl -f in >out &
    exec 5>in
    echo '{"ids":[1,2,3],"n":1}' >&5
    wait_until test -s out
    answers -m c.gguf
    BMC_CACHE_SIZE=$((2 * bytes)) converts -m b.gguf
    assert_equal "$(cd cache/bmc && printf '%s\n' *.bmc | cut -c1-2)" $'a-\nb-'
    BMC_CACHE_SIZE=$bytes expect_error 1 'c.gguf: .* is full of models in use, .*BMC_CACHE_SIZE' bmc-gen -q -m c.gguf --prompt-ids 1
    run_plain bmc-convert --cache clear
    [[ $stderr =~ ^bmc-convert:\ $XDG_CACHE_HOME/bmc:\ 0\ models\ removed,\ 0\ bytes\;\ 1\ in\ use:\ left$ ]] || fail "$stderr"
    exec 5>&-
    wait
    BMC_CACHE_SIZE=$((bytes - 1)) expect_error 1 'c.gguf: converted it has .* may have at most .*BMC_CACHE_SIZE' bmc-gen -q -m c.gguf --prompt-ids 1
    BMC_CACHE_SIZE=much expect_error 1 'BMC_CACHE_SIZE: needs a size, as 64G or 512M; found "much"' bmc-gen -q -m c.gguf --prompt-ids 1
}

@test "--cache lists the models, --cache clear removes them" {
    ok bmc-convert --cache --format json
    assert_equal "$(jq -c '[.bytes, .max_bytes]' <<<"$output")" "[0,$((64 << 30))]"
    converts -m small.gguf
    touch -a -d 2020-02-02T02:02:02Z cache/bmc/small-*
    mkdir cache/bmc/folder-0123456789abcdef.bmc
    ok bmc-convert --cache
    [[ $output =~ small-[0-9a-f]{16}\.bmc\ .*2020-02-02T02:02:02Z.*unused ]] || fail "$output"
    run_plain bmc-convert --cache clear
    [[ $stderr =~ :\ 1\ model\ removed,\ [^\;]*$ ]] || fail "$stderr"
    assert_equal "$(ls cache/bmc)" $'folder-0123456789abcdef.bmc\nlock'
    expect_error 2 '--cache lists, and --cache clear removes converted models: found "all"' bmc-convert --cache all
    expect_error 2 'exclude each other' bmc-convert --cache --verify x
    expect_error 2 '--type goes with' bmc-convert --cache --type q4_0
}

@test "folders and files that others can write are not used; without a home there is one line" {
    converts -m small.gguf
    model=$(echo cache/bmc/small-*.bmc)
    chmod 666 "$model"
    expect_error 1 "$model: is no regular file that you alone can write" bmc-gen -q -m small.gguf --prompt-ids 1
    rm "$model"
    ln -s "$gguf" "$model"
    expect_error 1 "$model: is no regular file that you alone can write" bmc-gen -q -m small.gguf --prompt-ids 1
    ok bmc-convert --cache
    [[ $output == *foreign* ]]
    chmod 777 cache/bmc
    expect_error 1 'cache/bmc: belongs to another user or can be written by others' bmc-gen -q -m small.gguf --prompt-ids 1
    XDG_CACHE_HOME='' HOME='' expect_error 1 'small.gguf: .*neither XDG_CACHE_HOME nor HOME is set: .*bmc-convert small.gguf -o MODEL.bmc' bmc-gen -q -m small.gguf -p x
    XDG_CACHE_HOME=/proc/none expect_error 1 '/proc/none/bmc: cannot create the folder of converted models for small.gguf .*bmc-convert small.gguf -o MODEL.bmc' bmc-gen -q -m small.gguf -p x
    rm -r cache
    mkdir -p cache/bmc
    ln -s /dev/zero cache/bmc/lock
    converts -m small.gguf
}
