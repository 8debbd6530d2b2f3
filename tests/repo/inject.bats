# Fault injection: single calls of every program fail, one after the other: memory, write, fsync, rename, mmap.
# tests/inject/inject.c defines correct behaviour. A covering sample; BMC_FULL=1 tests every call and prints their number.
load ../helper

setup_file() {
    export SEED=${BMC_SEED:-$RANDOM}
    echo "# seed $SEED" >&3
    for name in llama-2-like llama-3-like opt-nobias; do model "$name" >/dev/null; done
    cd "$BATS_FILE_TMPDIR" || return 1
    tiny_shape tiny.shape
    # Constants for bmc-tune, so that runs need not measure them.
    bmc-tune --shape ./tiny.shape -N 8 -t 1 --layers 1 --force --no-sweep --no-batch-knee --megabytes 1 --evict 1 --seconds 0.1 --profile constants -q
}

teardown_file() {
    [ -z "$BMC_FULL" ] || awk '{ c[$1] += $3; r[$1] += $5; w[$1] += $7 }
        END { for (p in c) printf "# %s: %d calls, %d runs, %d wrong\n", p, c[p], r[p], w[p] }' "$BATS_FILE_TMPDIR/totals" >&3
}

# inject INJECT_OPTION.. -- PROGRAM ARGUMENT..: fails a sample of its calls of each kind, selected by the seed, and the last one.
# Use one thread, so that calls are numbered alike.
inject() {
    local options=() call program sample=(-m "${SAMPLE:-4}")
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    program=$2
    shift 2
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    for call in ${CALLS:-memory write fsync rename mmap}; do
        [ -z "$BMC_FULL" ] || sample=(-s "${FULL_STEP:-1}")
        run "$BMC_BUILD/inject" "${options[@]}" "${sample[@]}" -o "$SEED" "$BMC_BUILD/inject.so" $call "$BMC_BIN/$program" "$@"
        [ "$status" -eq 0 ] || fail "$program $*: $output"
        echo "$program $output" >>"$BATS_FILE_TMPDIR/totals"
        [ $call != memory ] || [[ $output =~ ^memory:\ [1-9][0-9]*\ calls,\ [1-9] ]] || fail "nothing failed: $output"
    done
}

@test "the checker detects every kind of wrong behaviour" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    cat >wrong.c <<'END'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    const int way = argc > 1 ? *argv[1] : 0, fd = open("a", O_CREAT | O_WRONLY, 0666);
    if (write(fd, "1234", 4) < 0)
        switch (way) {
        case '1': puts("wrong"); return 0;
        case '2': fputs("bmc-x: disk full\n", stderr); return 1;
        case '3': unlink("a"); return 1;
        case '4': unlink("a"); fputs("bmc-x: one\ntwo\n", stderr); return 1;
        case '5': abort();
        case '7': return puts("right") < 0 || write(fd, "1234", 4) == 4;
        }
    if (way == '6' && (puts("so far") < 0 || fflush(stdout) < 0))
        return 0;
    puts("right");
    return 0;
}
END
    ${CC:-gcc} -o wrong wrong.c
    while read -r way says; do
        run "$BMC_BUILD/inject" "$BMC_BUILD/inject.so" write ./../wrong "$way"
        assert_failure
        assert_output --partial "$says"
    done <<'END'
1 exit 0 with another standard output
2 exit 1 leaves a
3 exit 1, standard error ""
4 exit 1, standard error
5 ended by signal 6
6 exit 0 with another standard output
7 exit 1, standard error ""
END
    ok "$BMC_BUILD/inject" -e right "$BMC_BUILD/inject.so" write ./../wrong 7
    run "$BMC_BUILD/inject" -e left "$BMC_BUILD/inject.so" write ./../wrong 7
    assert_failure
}

gen() { # INJECT_OPTION.. -- ARGUMENT..
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    inject "${options[@]}" -- bmc-gen -m "$(model llama-2-like)" -t 1 -q "${@:2}"
}

@test "bmc-gen: text, statistics, snapshot" {
    gen -- -p "The king" -n 4 --stats s.json --save-kv s.kv --receipt r
}

@test "bmc-gen: a snapshot is updated in place" {
    mkdir before
    ok bmc-gen -m "$(model llama-2-like)" -t 1 -p "The king" -n 4 -q --save-kv before/s.kv
    gen -t before -- --load-kv s.kv --save-kv s.kv -n 3
}

@test "bmc-gen: a prompt cache" {
    mkdir before
    ok bmc-gen -m "$(model llama-2-like)" -t 1 -p "The king" -n 4 -q --prompt-cache before/s.kv
    gen -t before -- -p "The king was" --prompt-cache s.kv -n 3
}

@test "bmc-gen: list options" {
    gen -- --prompt-ids "38 56 99" -n 3 --logit-bias 5=-inf --logit-bias 7=2 --stop zzz --stop yyy --temp 0.9 -s 4 \
        --repeat-penalty 1.1 --kv paged:16 --ids
}

requests() {
    printf '%s\n' '{"id":1,"prompt":"The king","n":6}' \
        '{"id":"b","prompt":"Once upon a time there was a king, and a queen","n":5,"stop":["zzz"],"prompt_logprobs":2,"logit_bias":{"5":1}}' \
        '{"id":3,"ids":[38,56],"n":4,"seed":3,"logprobs":1}' >requests
}

@test "bmc-gen --jsonl" {
    requests
    gen -k "$BMC_BIN/bmc-convert" -- --jsonl -b 2 -f ../requests --logprobs 2 --stats s.json --save-kv s.kv
}

@test "bmc-gen --score" {
    gen -- --score -p "The king was" --format json --stats s.json
    gen -- --score -p "The king was"
    gen -- --score -p "The king was" --summary --format csv
}

@test "bmc-gen --score --jsonl" {
    requests
    jq -c '{id, prompt, ids} | with_entries(select(.value))' requests >texts
    gen -- --score --jsonl -b 2 -f ../texts --stats s.json
}

@test "bmc-gen: tokenize, detokenize" {
    gen -- --tokenize -p "The king was"
    gen -- --tokenize -p "The king was" --format json
    echo 38 56 99 >ids
    gen -- --detokenize -f ../ids
}

speculate() { # ARGUMENT..
    inject -- bmc-spec -m "$(model llama-2-like)" -d "$(model llama-2-like)" -t 1 -q -p "The king" "$@"
}

@test "bmc-spec: draft, tree, samples, measured acceptance" {
    speculate -n 6 --stats s.json
    speculate -n 6 --tree 6 --always --stats s.json
    speculate -n 5 --samples 3 -s 3 --always -k 2 # a length that adapts to time would change samples
    speculate -n 6 --tree 6 --always --record-acceptance --acceptance acceptance
}

@test "bmc-spec: a draft head" {
    mkdir target
    ln -s "$FIXTURES"/heads/target/* "$FIXTURES"/models/llama-3-like/tokenizer* target/
    bmc-convert target -o target.bmc
    for head in eagle eagle3 peagle; do bmc-convert "$FIXTURES/heads/$head" -o $head.bmc; done
    inject -- bmc-convert "$FIXTURES/heads/eagle3" -o m.bmc
    inject -- bmc-spec -m "$PWD/target.bmc" -d "$PWD/eagle.bmc" -t 1 -q --prompt-ids "70 109 115 52" -n 6 -k 3 --always
    inject -- bmc-spec -m "$PWD/target.bmc" -d "$PWD/peagle.bmc" -t 1 -q --prompt-ids "70 109 115 52" -n 6 -k 4 --always
    inject -- bmc-spec -m "$PWD/target.bmc" -d "$PWD/eagle3.bmc" -t 1 -q --prompt-ids "70 109 115 52" -n 6 --tree 6 --dynamic --always
}

@test "bmc-spec: prompt lookup" {
    inject -- bmc-spec -m "$(model llama-2-like)" --lookup -t 1 -p "The king and the king" -n 6 -q --save-kv s.kv
}

@test "bmc-spec: suffix decoding, with a corpus and a draft model" {
    echo "The king and the queen" >"$BATS_FILE_TMPDIR/corpus"
    inject -- bmc-spec -m "$(model llama-2-like)" --suffix --lookup-corpus "$BATS_FILE_TMPDIR/corpus" --suffix-pool 1K -t 1 -p "The king and the king" -n 4 -q
    speculate --suffix -n 4 -k 2
}

@test "bmc-convert: folders" {
    inject -- bmc-convert "$(folder llama-2-like)" -o m.bmc --type bf16
    inject -- bmc-convert "$(folder llama-3-like)" -o m.bmc
    inject -- bmc-convert "$(folder opt-nobias)" -o m.bmc --type f32
}

@test "bmc-convert: GGUF files" {
    inject -- bmc-convert "$FIXTURES/gguf/llama-3-like-00001-of-00003.gguf" -o m.bmc
    inject -- bmc-convert --synth "$BATS_FILE_TMPDIR/tiny.shape" --tokenizer "$FIXTURES/gguf/qwen2-like.gguf" -o m.bmc
}

@test "bmc-convert: a shape" {
    inject -- bmc-convert --synth "$BATS_FILE_TMPDIR/tiny.shape" -o m.bmc
}

@test "bmc-convert: tokenizers with scores" {
    cd "$BATS_FILE_TMPDIR"
    tiny_shape scores.shape layers 1 vocab 1000
    for name in spm spm-unigram t5; do
        mkdir -p "$name"
        echo '{"architectures": ["LlamaForCausalLM"]}' >"$name/config.json"
        cp "$FIXTURES/tokenizers/$name/tokenizer.json" "$name/"
        inject -- bmc-convert --synth "$PWD/scores.shape" --tokenizer "$PWD/$name" -o m.bmc
    done
}

@test "bmc-convert: info, verify" {
    ok bmc-gen -m "$(model llama-2-like)" -t 1 -p "The king" -n 4 -q --save-kv s.kv
    inject -- bmc-convert --info "$(model llama-2-like)"
    inject -- bmc-convert --info "$(model llama-2-like)" --format json
    inject -- bmc-convert --info ../s.kv --format json
    inject -- bmc-convert --verify "$(model llama-2-like)"
    inject -- bmc-convert --verify ../s.kv
}

measure() { # SUBCOMMAND ARGUMENT..
    SAMPLE=3 inject -n -- bmc-prof "$1" --shape "$BATS_FILE_TMPDIR/tiny.shape" -t 1 --repeat 1 "${@:2}"
}

@test "bmc-prof: policies, sweep, latency" {
    measure policies -N 12 --kv bmc,paged:16,reserve --format csv
    measure policies -N 8 --kv bmc,paged:16 --plot p.svg
    measure sweep -N 8 --format csv --plot p.svg
    measure latency -N 8 --every 4 --plot p.svg --format md
}

@test "bmc-prof: bench, memory, roof" {
    measure bench -p 4 -n 2 --warmup 0 --megabytes 1 --format json
    CALLS=memory SAMPLE=3 inject -n -- bmc-prof memory --shape "$BATS_FILE_TMPDIR/tiny.shape" -t 1 -p 9 -n 5 --beams 2 --kv bmc,segment --format json
    inject -n -- bmc-prof roof --repeat 1 -t 1 --megabytes 1 --format json
}

@test "bmc-prof compare" {
    "$BMC_BIN/bmc-prof" bench --shape "$BATS_FILE_TMPDIR/tiny.shape" -p 4 -n 2 -t 1 --repeat 4 --warmup 0 --megabytes 1 --format json >a.json
    inject -- bmc-prof compare ../a.json ../a.json --format csv
    inject -- bmc-prof compare ../a.json ../a.json --format json
}

tune() { # ARGUMENT..
    inject -n -- bmc-tune --shape "$BATS_FILE_TMPDIR/tiny.shape" -N 8 -t 1 --layers 1 --evict 1 --seconds 0.1 --rounds 3 --force \
        --profile p "$@"
}

@test "bmc-tune: configurations, draft budget" {
    tune --state hot --constants "$BATS_FILE_TMPDIR/constants" --no-batch-knee --plot p.svg
    tune --state hot --constants "$BATS_FILE_TMPDIR/constants" --no-sweep --format json
}

# Nearly all calls are of a loop that allocates and frees blocks thousands of times; file writes are tested above.
@test "bmc-tune: constants" {
    CALLS=memory SAMPLE=1 FULL_STEP=23 tune --state cold --no-sweep --no-batch-knee --megabytes 1 -q
}

@test "bmc-tune --check" {
    CALLS=memory SAMPLE=1 FULL_STEP=23 inject -n -e 'does not fit' -- bmc-tune --shape "$BATS_FILE_TMPDIR/tiny.shape" -t 1 --megabytes 1 --evict 1 --seconds 0.1 \
        --state cold --check --profile "$BATS_FILE_TMPDIR/constants"
}
