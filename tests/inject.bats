# Every program with one call after the other failing: memory, write, fsync, rename, mmap. See tests/inject/inject.c for what
# a right end is. A covering sample; BMC_FULL=1 runs every call.
load helper

setup_file() {
    export SEED=${BMC_SEED:-$RANDOM}
    echo "# seed $SEED" >&3
    for name in grimm grimm-draft llama-2-like opt-nobias; do model "$name" >/dev/null; done
}

# Numbers of calls are those of one thread. A step that is prime meets every phase of a loop in time.
inject() { # STEP INJECT_OPTION.. -- COMMAND..
    local step=$1 options=() call
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    [ -z "$BMC_FULL" ] || step=1
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    for call in memory write fsync rename mmap; do
        run "$BMC_BUILD/inject" "${options[@]}" -s "$step" -o $((1 + SEED % step)) "$BMC_BUILD/inject.so" $call "$@"
        [ "$status" -eq 0 ] || fail "$output"
        echo "$output" >>calls
    done
    run cat calls
    assert_output --regexp 'memory: [1-9][0-9]+ calls, [1-9]' # it was there
}

@test "the check of a run sees what is wrong" {
    wrong() { # CODE: what a program does when a write fails
        printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n#include <fcntl.h>\nint main(void)\n{\nint fd = open("a", O_CREAT|O_WRONLY, 0666);\nint rc = (int)write(fd, "1234", 4);\n%s\nputs("right");\nreturn 0;\n}\n' "$1" >wrong.c
        ${CC:-gcc} -o wrong wrong.c
        run "$BMC_BUILD/inject" "$BMC_BUILD/inject.so" write ./../wrong
        assert_failure
    }
    wrong 'if (rc < 0) { puts("wrong"); return 0; }'
    assert_output --partial "exit 0 with another standard output"
    wrong 'if (rc < 0) { fputs("bmc-x: disk full\n", stderr); return 1; }'
    assert_output --partial "exit 1 leaves a"
    wrong 'if (rc < 0) { unlink("a"); return 1; }'
    assert_output --partial 'exit 1, standard error ""'
    wrong 'if (rc < 0) { unlink("a"); fputs("bmc-x: one\ntwo\n", stderr); return 1; }'
    assert_output --partial "exit 1, standard error"
    wrong 'if (rc < 0) abort();'
    assert_output --partial "ended by signal 6"
}

@test "bmc-gen: text, statistics, snapshot" {
    inject 7 -- "$BMC_BIN/bmc-gen" -m "$(model grimm)" -t 1 -p "The king" -n 4 -q --stats s.json --save-kv s.kv
}

@test "bmc-gen: a snapshot goes on in place" {
    mkdir before
    ok bmc-gen -m "$(model grimm)" -t 1 -p "The king" -n 4 -q --save-kv before/s.kv
    inject 7 -t before -- "$BMC_BIN/bmc-gen" -m "$(model grimm)" -t 1 --load-kv s.kv --save-kv s.kv -n 3 -q
}

requests() {
    printf '%s\n' '{"id":1,"prompt":"The king","n":6}' '{"id":"b","prompt":"Once upon","n":5,"stop":["zzz"]}' \
        '{"id":3,"ids":[338,564],"n":4,"seed":3}' >requests
}

@test "bmc-gen --jsonl" {
    requests
    inject 11 -- "$BMC_BIN/bmc-gen" -m "$(model grimm)" -t 1 --jsonl -b 2 -f "$PWD/requests" --logprobs 2 -q --stats s.json --save-kv s.kv
}

@test "bmc-gen: score, tokenize" {
    inject 7 -- "$BMC_BIN/bmc-gen" -m "$(model grimm)" -t 1 --score -p "The king was" -q --format json
    inject 7 -- "$BMC_BIN/bmc-gen" -m "$(model grimm)" -t 1 --tokenize -p "The king was"
}

@test "bmc-spec: draft, tree, look-up" {
    inject 211 -- "$BMC_BIN/bmc-spec" -m "$(model grimm)" -d "$(model grimm-draft)" -t 1 -p "The king" -n 6 -q --stats s.json
    inject 211 -- "$BMC_BIN/bmc-spec" -m "$(model grimm)" --lookup -t 1 -p "The king and the king" -n 6 -q --save-kv s.kv
}

@test "bmc-convert: convert, info, verify" {
    inject 101 -- "$BMC_BIN/bmc-convert" "$(folder llama-2-like)" -o m.bmc
    inject 101 -- "$BMC_BIN/bmc-convert" "$(folder opt-nobias)" -o m.bmc --type bf16
    inject 31 -- "$BMC_BIN/bmc-convert" --info "$(model llama-2-like)"
    inject 3 -- "$BMC_BIN/bmc-convert" --verify "$(model llama-2-like)"
}

@test "bmc-prof" {
    inject 23 -n -- "$BMC_BIN/bmc-prof" bench -m "$(model llama-2-like)" -p 4 -n 2 -t 1 --repeat 1 --format json
    inject 23 -n -- "$BMC_BIN/bmc-prof" policies -m "$(model llama-2-like)" -N 16 --kv bmc,paged:16 -t 1 --repeat 1 --format csv
}
