# Every program with one call after the other failing: memory, write, fsync, rename, mmap. See tests/inject/inject.c for what
# a right end is. A covering sample; BMC_FULL=1 runs every call, and tells how many there were.
load helper

setup_file() {
    export SEED=${BMC_SEED:-$RANDOM}
    echo "# seed $SEED" >&3
    for name in llama-2-like llama-3-like opt-nobias; do model "$name" >/dev/null; done
    cd "$BATS_FILE_TMPDIR" || return 1
    tiny_shape tiny.shape
    # Constants for bmc-tune, so that a run need not measure them.
    bmc-tune --shape ./tiny.shape -N 8 -t 1 --layers 1 --force --no-sweep --no-rows --megabytes 1 --evict 1 --seconds 1 --profile constants -q
}

teardown_file() {
    [ -z "$BMC_FULL" ] || awk '{ c[$1] += $3; r[$1] += $5; w[$1] += $7 }
        END { for (p in c) printf "# %s: %d calls, %d runs, %d wrong\n", p, c[p], r[p], w[p] }' "$BATS_FILE_TMPDIR/totals" >&3
}

# inject STEP INJECT_OPTION.. -- PROGRAM ARGUMENT..: every STEPth of its calls, from one of the first on. Numbers of calls
# are those of one thread. A step that is prime meets every phase of a loop in time.
inject() {
    local step=$1 options=() call program
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    program=$2
    shift 2
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    for call in ${CALLS:-memory write fsync rename mmap}; do
        [ $call = memory ] || step=1 # there are few
        [ -z "$BMC_FULL" ] || step=${FULL_STEP:-1}
        run "$BMC_BUILD/inject" "${options[@]}" -s "$step" -o $((1 + SEED % step)) "$BMC_BUILD/inject.so" $call "$BMC_BIN/$program" "$@"
        [ "$status" -eq 0 ] || fail "$program $*: $output"
        echo "$program $output" >>"$BATS_FILE_TMPDIR/totals"
        [ $call != memory ] || [[ $output =~ ^memory:\ [1-9][0-9]*\ calls,\ [1-9] ]] || fail "nothing failed: $output"
    done
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
    wrong 'if (puts("so far") < 0 || fflush(stdout) < 0) return 0;'
    assert_output --partial "exit 0 with another standard output"
}

gen() { # STEP INJECT_OPTION.. -- ARGUMENT..
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    inject "${options[@]}" -- bmc-gen -m "$(model llama-2-like)" -t 1 -q "${@:2}"
}

@test "bmc-gen: text, statistics, snapshot" {
    gen 11 -- -p "The king" -n 4 --stats s.json --save-kv s.kv
}

@test "bmc-gen: a snapshot goes on in place" {
    mkdir before
    ok bmc-gen -m "$(model llama-2-like)" -t 1 -p "The king" -n 4 -q --save-kv before/s.kv
    gen 7 -t before -- --load-kv s.kv --save-kv s.kv -n 3
}

@test "bmc-gen: a prompt cache" {
    mkdir before
    ok bmc-gen -m "$(model llama-2-like)" -t 1 -p "The king" -n 4 -q --prompt-cache before/s.kv
    gen 7 -t before -- -p "The king was" --prompt-cache s.kv -n 3
}

@test "bmc-gen: options that are lists" {
    gen 7 -- --prompt-ids "38 56 99" -n 3 --logit-bias 5=-inf --logit-bias 7=2 --stop zzz --stop yyy --temp 0.9 -s 4 \
        --repeat-penalty 1.1 --kv paged:16 --ids
}

requests() {
    printf '%s\n' '{"id":1,"prompt":"The king","n":6}' \
        '{"id":"b","prompt":"Once upon a time there was a king, and a queen","n":5,"stop":["zzz"],"prompt_logprobs":2,"logit_bias":{"5":1}}' \
        '{"id":3,"ids":[38,56],"n":4,"seed":3,"logprobs":1}' >requests
}

@test "bmc-gen --jsonl" {
    requests
    gen 31 -k "$BMC_BIN/bmc-convert" -- --jsonl -b 2 -f ../requests --logprobs 2 --stats s.json --save-kv s.kv
}

@test "bmc-gen --score" {
    gen 13 -- --score -p "The king was" --format json --stats s.json
    gen 13 -- --score -p "The king was"
    gen 5 -- --score -p "The king was" --summary --format csv
}

@test "bmc-gen --score --jsonl" {
    requests
    jq -c '{id, prompt, ids} | with_entries(select(.value))' requests >texts
    gen 23 -- --score --jsonl -b 2 -f ../texts --stats s.json
}

@test "bmc-gen: tokenize, detokenize" {
    gen 11 -- --tokenize -p "The king was"
    gen 7 -- --tokenize -p "The king was" --format json
    echo 38 56 99 >ids
    gen 2 -- --detokenize -f ../ids
}

speculate() { # STEP ARGUMENT..
    inject "$1" -- bmc-spec -m "$(model llama-2-like)" -d "$(model llama-2-like)" -t 1 -q -p "The king" "${@:2}"
}

@test "bmc-spec: draft, tree, samples, measured acceptance" {
    speculate 211 -n 6 --stats s.json
    speculate 223 -n 6 --tree 6 --always --stats s.json
    speculate 227 -n 5 --samples 3 -s 3
    speculate 229 -n 6 --tree 6 --always --record-acceptance --acceptance acceptance
}

@test "bmc-spec: look-up" {
    inject 5 -- bmc-spec -m "$(model llama-2-like)" --lookup -t 1 -p "The king and the king" -n 6 -q --save-kv s.kv
}

@test "bmc-convert: folders" {
    inject 239 -- bmc-convert "$(folder llama-2-like)" -o m.bmc --type bf16
    inject 241 -- bmc-convert "$(folder llama-3-like)" -o m.bmc
    inject 151 -- bmc-convert "$(folder opt-nobias)" -o m.bmc --type f32
}

@test "bmc-convert: a shape" {
    inject 7 -- bmc-convert --synth "$BATS_FILE_TMPDIR/tiny.shape" -o m.bmc
}

@test "bmc-convert: tokenizers with scores" {
    cd "$BATS_FILE_TMPDIR"
    tiny_shape scores.shape layers 1 vocab 1000
    for name in spm spm-unigram t5; do
        mkdir -p "$name"
        echo '{"architectures": ["LlamaForCausalLM"]}' >"$name/config.json"
        cp "$FIXTURES/tokenizers/$name/tokenizer.json" "$name/"
        inject 397 -- bmc-convert --synth "$PWD/scores.shape" --tokenizer "$PWD/$name" -o m.bmc
    done
}

@test "bmc-convert: info, verify" {
    ok bmc-gen -m "$(model llama-2-like)" -t 1 -p "The king" -n 4 -q --save-kv s.kv
    inject 67 -- bmc-convert --info "$(model llama-2-like)"
    inject 37 -- bmc-convert --info "$(model llama-2-like)" --format json
    inject 5 -- bmc-convert --info ../s.kv --format json
    inject 3 -- bmc-convert --verify "$(model llama-2-like)"
    inject 1 -- bmc-convert --verify ../s.kv
}

measure() { # STEP SUBCOMMAND ARGUMENT..
    inject "$1" -n -- bmc-prof "$2" --shape "$BATS_FILE_TMPDIR/tiny.shape" -t 1 --repeat 1 "${@:3}"
}

@test "bmc-prof: policies, sweep, latency" {
    measure 83 policies -N 12 --kv bmc,paged:16,reserve --format csv
    measure 97 policies -N 8 --kv bmc,paged:16 --plot p.svg
    measure 151 sweep -N 8 --format csv --plot p.svg
    measure 89 latency -N 8 --every 4 --plot p.svg --format md
}

@test "bmc-prof: bench, use cases, roof" {
    measure 71 bench -p 4 -n 2 --warmup 0 --megabytes 1 --format json
    measure 31 usecases --cases 4:3 --kv bmc --warmup 0 --format json
    inject 23 -n -- bmc-prof roof --repeat 1 -t 1 --megabytes 1 --format json
}

@test "bmc-prof compare" {
    "$BMC_BIN/bmc-prof" bench --shape "$BATS_FILE_TMPDIR/tiny.shape" -p 4 -n 2 -t 1 --repeat 4 --warmup 0 --megabytes 1 --format json >a.json
    inject 67 -- bmc-prof compare ../a.json ../a.json --format csv
    inject 61 -- bmc-prof compare ../a.json ../a.json --format json
}

tune() { # STEP ARGUMENT..
    inject "$1" -n -- bmc-tune --shape "$BATS_FILE_TMPDIR/tiny.shape" -N 8 -t 1 --layers 1 --evict 1 --seconds 1 --rounds 3 --force \
        --profile p "${@:2}"
}

@test "bmc-tune: cells, free rows" {
    tune 503 --state hot --constants "$BATS_FILE_TMPDIR/constants" --no-rows --plot p.svg
    tune 409 --state hot --constants "$BATS_FILE_TMPDIR/constants" --no-sweep --format json
}

# Nearly all calls are those of a loop that takes blocks and gives them back, thousands of times; files are written above.
@test "bmc-tune: constants" {
    CALLS=memory FULL_STEP=23 tune 1999 --state cold --no-sweep --no-rows --megabytes 1 -q
}

@test "bmc-tune --check" {
    CALLS=memory FULL_STEP=23 inject 2003 -n -- bmc-tune --shape "$BATS_FILE_TMPDIR/tiny.shape" -t 1 --megabytes 1 --evict 1 --seconds 1 --state cold \
        --check --profile "$BATS_FILE_TMPDIR/constants"
}
