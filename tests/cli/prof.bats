# bmc-prof: every subcommand in every format, counts against values computed by hand, errors, charts, and that all cache
# policies give the same logits.
#
# BMC_BIN and BMC_BUILD are the folders of the programs and of the unit tests (default ../bin and ../build/gcc).
# BMC_FULL=1 runs many random batches instead of a few, BMC_SEED repeats them. Times are never compared, since the machine
# may be busy.

bats_require_minimum_version 1.5.0
load ../quick

ROOT=${BATS_TEST_DIRNAME%/tests/*}
BMC_BIN=$(cd "${BMC_BIN:-$ROOT/bin}" && pwd)
BMC_BUILD=$(cd "${BMC_BUILD:-$ROOT/build/gcc}" && pwd)
GRIMM=$ROOT/models.d/grimm.bmc
FORMATS='table md csv json jsonl'
# The note of policies and sweep if the kernel denies hardware counters.
REFUSAL='bmc-prof: the kernel gives no hardware counters here (perf_event_open): their columns are empty'
export LC_ALL=C.UTF-8
unset BMC_ISA OMP_NUM_THREADS OPENBLAS_NUM_THREADS
export BMC_CONFIG=none XDG_CONFIG_HOME=/nowhere # no configuration and no tuned profile of this account

setup_file() {
    "$BMC_BIN/bmc-convert" "$ROOT/tests/fixtures/models/opt-350m-like" -o "$BATS_FILE_TMPDIR/opt.bmc"
    "$BMC_BIN/bmc-convert" "$ROOT/tests/fixtures/models/llama-3-like" -o "$BATS_FILE_TMPDIR/llama.bmc"
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    tiny_shape tiny.shape
}

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

# Runs a command that must succeed with empty standard error, except the note about counters.
ok() {
    run --separate-stderr "$@"
    [ "$status" -eq 0 ] && { [ -z "$stderr" ] || [ "$stderr" = "$REFUSAL" ]; } && return
    fail "$* -> status $status, stderr: $stderr, stdout: ${output:0:300}"
}

# expect_error CODE REGEX COMMAND..: that status, nothing on standard output, one line on standard error.
expect_error() {
    local code=$1 pattern=$2
    shift 2
    run --separate-stderr "$@"
    # AddressSanitizer's own message when memory is refused.
    stderr=$(sed '/^==[0-9]*==WARNING: AddressSanitizer failed to allocate/d' <<<"$stderr")
    [ "$status" -eq "$code" ] && [ -z "$output" ] && [[ $stderr != *$'\n'* ]] && [[ $stderr =~ ^bmc-prof:\  ]] &&
        [[ $stderr =~ $pattern ]] && [[ $stderr != *[[:cntrl:]]* ]] && return
    fail "$* -> status $status ($code wanted), stdout: ${output:0:300}, stderr ($pattern wanted): $stderr"
}

# A shape with rows of 2 (K, V) * 2 layers * 2 heads * 16 * 4 bytes = 512 bytes.
tiny_shape() {
    printf 'family llama\nlayers 2\nhidden 64\nheads 4\nkv_heads 2\nffn 96\nvocab 300\ncontext 128\nnorm_eps 1e-5\neos 0\n' >"$1"
}

# Every line of a CSV file has the same number of cells.
csv_is_even() {
    [ "$(sed 's/"[^"]*"/x/g; s/[^,]//g' "$1" | sort -u | wc -l)" -eq 1 ]
}

# jq_true FILTER FILE: all results are true.
jq_true() {
    jq -e "[$1] | length > 0 and all(. == true)" "$2" >verdict || fail "$1 is $(cat verdict) in $(head -c 2000 "$2")"
}

# assert_types FILE NAME:TYPE..: every row has these members; a type may be a list, as number,null.
assert_types() {
    local file=$1 member
    shift
    for member; do
        jq -e --arg name "${member%:*}" --arg types "${member##*:}" \
            '.rows | length > 0 and all(has($name) and (.[$name] | type) as $t | $types | split(",") | index($t) != null)' \
            "$file" >/dev/null || fail "$member: $(jq -c --arg name "${member%:*}" '[.rows[] | .[$name]]' "$file")"
    done
}

# ---- formats ----

# The same rows in every format. Tables and Markdown have a paragraph about the run and the main columns.
check_formats() { # ROWS SUBCOMMAND OPTION..
    local rows=$1 format
    shift
    for format in $FORMATS; do
        ok bmc-prof "$@" --format "$format"
        printf '%s\n' "$output" >"out.$format"
    done
    assert_equal "$(jq '.rows | length' out.json)" "$rows"
    assert_equal "$(command jq -r 'keys_unsorted | join(" ")' out.json)" rows
    command jq -r '.rows[] | keys_unsorted | join(",")' out.json | sort -u >keys
    assert_equal "$(wc -l <keys)" 1
    assert_equal "$(head -n 1 out.csv)" "$(cat keys)"
    assert_equal "$(wc -l <out.csv)" $((rows + 1))
    csv_is_even out.csv || fail "cells are missing: $(cat out.csv)"
    assert_equal "$(wc -l <out.jsonl)" "$rows"
    command jq -r 'keys_unsorted | join(",")' out.jsonl | diff - <(for ((i = 0; i < rows; i++)); do cat keys; done)
    for format in table md; do
        sed '1,/^$/d' "out.$format" >"rows.$format"
        sed '/^$/q' "out.$format" | paste -sd ' ' | grep -q 'threads .*, cpu .*, version '
    done
    assert_equal "$(wc -l <rows.table)" $((rows + 1))
    assert_equal "$(wc -l <rows.md)" $((rows + 2))
    run grep -v '^| .* |$' rows.md
    assert_output ""
    assert_equal "$(sed 's/[^|]//g' rows.md | sort -u | wc -l)" 1
}

@test "policies in every format" { check_formats 8 policies --shape ./tiny.shape -N 8 -r 1 -t 1; }
@test "sweep in every format" { check_formats 4 sweep --shape ./tiny.shape -N 8 -r 1 -t 1; }
@test "latency in every format" { check_formats 3 latency --shape ./tiny.shape -N 10 --every 3 -t 1; }
@test "bench in every format" { check_formats 2 bench --shape ./tiny.shape -p 4 -n 3 -r 1 --warmup 0 -t 1 --megabytes 1; }
@test "predict in every format" { check_formats 2 predict --shape ./tiny.shape -p 4 -n 2 -r 1 --warmup 0 -t 1; }
@test "roof in every format" { check_formats 1 roof -r 1 -t 1 --megabytes 1; }

# ---- columns and units ----

@test "tables fit a terminal: 100 columns by default, the setup included" {
    for job in 'policies -N 8' 'sweep -N 8' 'latency -N 10 --every 3' 'latency -N 10 --every 9 --kv iterative,upfront,bmc,paged:16,reserve' \
        'bench -p 4,8 -n 3 -b 1,2 -d 0,5 --megabytes 1' 'memory -p 4,8 -n 2 -b 1,2 --beams 1,2 --memory 1M' \
        'ranks -p 2 -n 2' 'roof --megabytes 1'; do
        # shellcheck disable=SC2046,SC2086 # words
        ok bmc-prof $job -t 1 $([[ $job == memory* ]] || echo -r 1) $([[ $job == roof* ]] || echo --shape ./tiny.shape)
        assert_equal "$job $(sed -n 's/^.\{105\}/&/p' <<<"$output")" "$job "
    done
}

@test "--columns: those fields in that order, in table, md and csv, with units in the first two only" {
    ok bmc-prof policies --shape ./tiny.shape -N 8 -r 1 -t 1 --kv upfront,bmc:T=8 --columns total_ms,policy,kv_peak_bytes,kv_copied_bytes
    assert_regex "$(sed '1,/^$/d' <<<"$output" | head -n 1)" '^ *total  policy   kv_peak_bytes  kv_copied_bytes$'
    # At least 16 entries of 512 bytes; both blocks during a growth. 8 * 7 / 2 entries copied.
    assert_regex "$output" '[0-9] (ms|us)  upfront  *8[.]00 KiB  *0 B'
    assert_regex "$output" '[0-9] (ms|us)  bmc:T=8 .* KiB  *14[.]0 KiB'
    ok bmc-prof policies --shape ./tiny.shape -N 8 -r 1 -t 1 --kv upfront,bmc:T=8 --columns total_ms,policy,kv_copied_bytes --format csv
    assert_equal "$(sed 's/^[0-9.]*,/X,/' <<<"$output" | paste -sd ' ')" 'total_ms,policy,kv_copied_bytes X,upfront,0 X,bmc:T=8,14336'
    ok bmc-prof policies --shape ./tiny.shape -N 8 -r 1 -t 1 --kv bmc --columns all --format csv
    all=$output
    ok bmc-prof policies --shape ./tiny.shape -N 8 -r 1 -t 1 --kv bmc --format csv
    assert_equal "$(head -n 1 <<<"$all")" "$(head -n 1 <<<"$output")"
    ok bmc-prof latency --shape ./tiny.shape -N 8 -t 1 --kv bmc,headwise:ram=1M,group=1 --columns headwise:ram=1M,group=1_max_ms,n --format csv
    assert_equal "$(head -n 1 <<<"$output")" '"headwise:ram=1M,group=1_max_ms",n'
    # Before measuring.
    expect_error 2 '--columns: "frob" is not a field of policies; known are all, policy, T, .*, samples, error ' \
        bmc-prof policies --shape opt-6.7b -N 100000000 --columns policy,frob
    expect_error 2 '"" is not a field of bench' bmc-prof bench --columns policy,
    expect_error 2 '"paged_ms" is not a field of latency; .*POLICY_max_ms' bmc-prof latency --shape ./tiny.shape --kv bmc --columns n,paged_ms
    expect_error 2 'JSON has all fields' bmc-prof bench --format json --columns policy
}

@test "--columns knows every field that rows have, and no other" {
    for job in 'policies -N 4 -r 1' 'bench -p 2 -n 2 -r 1 --warmup 0 --megabytes 1' 'memory -p 2 -n 2' 'roof -r 1 --megabytes 1' \
        'latency -N 4 --kv bmc' "heads -N 64 --recent 4 -f $ROOT/README.md" 'ranks -p 2 -n 2 -r 1 --warmup 0'; do
        # shellcheck disable=SC2086 # words
        bmc-prof $job -t 1 --format jsonl 2>err | command jq -r 'keys_unsorted[]' | grep -v '^bmc_.*ms$' | sort -u >written
        run --separate-stderr bmc-prof ${job%% *} --columns '?'
        sed 's/.*known are all, //; s/, and for each policy.*//; s/ (see .*//; s/, /\n/g' <<<"$stderr" | sort >known
        diff <(printf '%s\n' "${job%% *}" && cat written) <(printf '%s\n' "${job%% *}" && cat known | if [[ $job == latency* ]]; then grep -vx -e policy; else cat; fi | grep -vx error)
    done
    for field in all dtlb_misses roof_share ratio_lo; do
        bmc-prof --print-options bash | grep -qE "columns.*[ '|]$field[ ']" || fail "$field"
    done
}

# ---- fields ----

SETUP='shape:string model_id:string layers:number N:number weight_type:string kv_type:string attn:string isa:string precision:string
threads:number repeat:number seed:number cpu:string version:string commit:string,null timestamp:string'
CACHE='attended:string alloc:string lockstep:boolean'
BLOCK='policy:string T:number r:number batch:number alloc_ms:number copy_ms:number append_ms:number sdpa_ms:number
scores_ms:number,null softmax_ms:number,null values_ms:number,null primitives:number primitive_ms:number total_ms:number total_ms_min:number total_ms_max:number
minor_faults:number major_faults:number dtlb_misses:number,null cycles:number,null instructions:number,null
kv_allocations:number kv_copied_bytes:number kv_padded_rows:number rows_computed:number kv_peak_bytes:number'

@test "policies: fields of rows and their description of the run" {
    ok bmc-prof policies -m "$GRIMM" -N 16 -b 2 -r 3 --warmup 1 -t 1 -s 7 --cache-type bf16 --alloc thp --isa ref --format json
    printf '%s' "$output" >out
    # shellcheck disable=SC2086 # lists
    assert_types out $BLOCK $SETUP $CACHE
    jq_true '.rows | map(.policy) == ["iterative", "upfront", "bmc", "paged:16", "reserve", "segment", "shift", "headwise"]' out
    jq_true '.rows | map(.attended) == ["valid", "padded", "padded", "valid", "valid", "valid", "padded", "valid"]' out
    jq_true '.rows | all(.N == 16 and .batch == 2 and .repeat == 3 and .threads == 1 and .seed == 7)' out
    jq_true '.rows | all(.kv_type == "bf16" and .weight_type == "bf16" and .alloc == "thp" and (.lockstep | not))' out
    jq_true '.rows | all(.layers == 8 and .attn == "fused" and .isa == "ref" and .precision == "f32" and (.shape | endswith("grimm.bmc")))' out
    assert_equal "$(jq -r '.rows[0].model_id' out)" "$("$BMC_BIN/bmc-convert" --info "$GRIMM" | sed -n 's/^model_id *//p')"
    jq_true '.rows | all(.total_ms_min <= .total_ms and .total_ms <= .total_ms_max)' out
    jq_true '.rows | all(.scores_ms == null and .softmax_ms == null and .values_ms == null)' out # in one pass
    jq_true '.rows | all(.total_ms > 0 and .sdpa_ms > 0 and .minor_faults >= 0)' out
}

@test "phases of a run stay within its total time" {
    ok bmc-prof policies --shape ./tiny.shape -N 64 -b 4 -r 1 -t 1 --attn blas --format json
    printf '%s' "$output" >out
    jq_true '.rows | all(.alloc_ms + .copy_ms + .append_ms + .sdpa_ms <= .total_ms * 1.0001)' out
    jq_true '.rows | all((.scores_ms + .softmax_ms + .values_ms - .sdpa_ms | fabs) < 1e-6 * .sdpa_ms)' out
}

# A product for each length of the sequences, for K and for V: N lengths under iterative, T under bmc (BMC paper, VIII-E).
@test "primitives of oneDNN are counted" {
    "$BMC_BIN/bmc-gen" -q -p x -n 0 --attn onednn 2>err || skip "$(cat err)"
    ok bmc-prof policies --shape ./tiny.shape -N 64 -b 4 -r 1 -t 1 --attn onednn --kv iterative,bmc:T=4 --lockstep --format json
    assert_equal "$(jq -c '[.rows[].primitives]' <<<"$output")" "[$((2 * 64)),$((2 * 4))]"
    jq -e '.rows | all(0 < .primitive_ms and .primitive_ms < .sdpa_ms)' <<<"$output"
}

@test "policies compares all policies by default" {
    run --separate-stderr bmc-prof policies --kv '?'
    assert_failure 2
    sed 's/.*there are: //; s/ (see .*//; s/, /\n/g' <<<"$stderr" | sort >known
    ok bmc-prof policies --shape ./tiny.shape -N 4 -r 1 -t 1 --format jsonl
    diff known <(jq -r .policy <<<"$output" | sed 's/:.*//' | sort)
    ok bmc-prof policies --shape ./tiny.shape -N 4 -r 1 -t 1 --lockstep --format jsonl
    assert_equal "$(jq -r .policy <<<"$output" | paste -s -d ' ')" "iterative upfront bmc"
}

@test "columns of unavailable hardware counters are empty, with a note" {
    for format in $FORMATS; do
        run --separate-stderr bmc-prof policies --shape ./tiny.shape -N 4 -r 1 -t 1 --kv upfront --format "$format" \
            $([[ $format == js* ]] || echo --columns all)
        assert_success
        printf '%s\n' "$output" >"out.$format"
        printf '%s\n' "$stderr" >"err.$format"
    done
    if [ -s err.json ] && grep -q . err.json; then
        assert_equal "$(cat err.json)" "$REFUSAL"
        jq_true '.rows[0] | [.dtlb_misses, .cycles, .instructions] | any(. == null)' out.json
        run cat out.csv
        assert_output --partial ',,'
        run grep -E '(^|[ |])-($|[ |])' out.table
        assert_success
    else
        jq_true '.rows[0] | .dtlb_misses >= 0 and .cycles > 0 and .instructions > 0' out.json
    fi
}

# ---- counts by hand ----

# count OPTIONS.. : "T r allocations copied_rows padded_rows rows_computed" of one policy. A row has $ROW bytes.
count() {
    local bytes=${ROW:-512} got
    got=$(bmc-prof policies --shape ./tiny.shape -r 1 -t 1 --format jsonl "$@" 2>stderr) || {
        cat stderr
        return 1
    }
    jq -r --argjson row "$bytes" '[.T, .r, .kv_allocations, .kv_copied_bytes / $row, .kv_padded_rows, .rows_computed] |
        map(tostring) | join(" ")' <<<"$got"
}

counts_are() { # "T r .." OPTION..
    local want=$1
    shift
    assert_equal "$* -> $(count "$@")" "$* -> $want"
}

@test "counts where r divides N: N(T-1)/2 rows copied, N(r-1)/2 padded" {
    #           T r allocations copied padded computed, 64*65/2 = 2080 rows hold tokens
    counts_are "64 1 64 2016 0 2080" -N 64 --kv iterative # 64*63/2
    counts_are "1 64 1 0 2016 4096" -N 64 --kv upfront
    counts_are "8 8 8 224 224 2304" -N 64 --kv bmc:T=8 # 64*7/2, 64*7/2
    counts_are "2 32 2 32 992 3072" -N 64 --kv bmc:r=32,grow=now # 64*1/2, 64*31/2
    counts_are "2 32 2 32 992 3072" -N 64 --kv bmc:grow=now # sqrt(6.4) = 2.5
    counts_are "64 1 64 2016 0 2080" -N 64 --kv bmc:T=64
    counts_are "1 64 1 0 2016 4096" -N 64 --kv bmc:T=1
    counts_are "4 16 4 0 0 2080" -N 64 --kv paged
    counts_are "4 16 4 0 0 2080" -N 64 --kv paged:16
    counts_are "2 32 2 0 0 2080" -N 64 --kv paged:32
    counts_are "2 32 2 0 0 2080" -N 64 --kv reserve
    counts_are "2 32 2 0 0 2080" -N 64 --kv reserve:r=32,grow=now
    counts_are "8 8 8 0 0 2080" -N 64 --kv reserve:T=8
}

@test "growth in advance copies in the second half of a step: fewer rows" {
    # Growth from 32 to 64 in the passes with 16 .. 31 rows, K and V of 2 layers one after the other, each in 4 passes. K of the first layer takes
    # those with 16 .. 19 rows: 16 rows are copied, then the 3 written meanwhile; V 20 and 3, the second layer 24 and 3, 28 and 3.
    # (19 + 23 + 27 + 31) / 4 = 25. 3 sequences take turns: at best 4/3 passes for K or V of a layer of each, whose last copies are then in the passes
    # with 17, 18, 19, 21, 22, 23, 25, 26, 27, 29, 30 and 31 rows, 288 / 4 = 72; one sequence after the other would be 3 * 25.
    for alloc in pool malloc mmap thp; do counts_are "2 32 2 25 992 3072" -N 64 --kv bmc:r=32 --alloc $alloc; done
    counts_are "2 32 2 25 992 3072" -N 64 --kv bmc:T=2,grow=ahead -t 2
    count -N 64 -b 3 --kv bmc | awk '{ exit !($3 == 6 && $4 >= 72 && $4 <= 75) }' || fail "$(count -N 64 -b 3 --kv bmc)"
    counts_are "2 32 2 96 2976 9216" -N 64 -b 3 --kv bmc --lockstep
    # While V of the second layer is copied: 64 rows of each of 256 bytes, and its 32 old ones of 128 bytes.
    ok bmc-prof policies --shape ./tiny.shape -N 64 -r 1 -t 1 --kv bmc --format jsonl
    assert_equal "$(jq .kv_peak_bytes <<<"$output")" $((2 * 64 * 256 + 32 * 128))
}

@test "counts where T does not divide N, T > N, N smaller than r" {
    # r = 17: growths at 0, 17, 34 copy 17 + 34; 17*16/2 padded twice, then 16*15/2 below 50.
    counts_are "3 17 3 51 392 1667" -N 50 --kv bmc:T=3,grow=now
    # r = 2, so 25 growths: 2 + 4 + .. + 48 copied.
    counts_are "25 2 25 600 25 1300" -N 50 --kv bmc:T=40
    counts_are "3 17 3 0 0 1275" -N 50 --kv reserve:T=3
    counts_are "4 16 4 0 0 1275" -N 50 --kv paged
    counts_are "10 1 10 45 0 55" -N 10 --kv bmc:T=999
    counts_are "1 10 1 0 45 100" -N 10 --kv bmc:r=64
    counts_are "1 10 1 0 0 55" -N 10 --kv reserve:r=64
    counts_are "1 32 1 0 0 55" -N 10 --kv paged:32
    for kv in iterative upfront bmc reserve; do counts_are "1 1 1 0 0 1" -N 1 --kv $kv; done
}

@test "counts cover all sequences of a batch; in lockstep a growth counts once" {
    counts_are "8 8 24 672 672 6912" -N 64 -b 3 --kv bmc:T=8
    counts_are "8 8 8 672 672 6912" -N 64 -b 3 --kv bmc:T=8 --lockstep
    counts_are "64 1 192 6048 0 6240" -N 64 -b 3 --kv iterative
    counts_are "64 1 64 6048 0 6240" -N 64 -b 3 --kv iterative --lockstep
    counts_are "1 64 1 0 6048 12288" -N 64 -b 3 --kv upfront --lockstep
    counts_are "4 16 12 0 0 6240" -N 64 -b 3 --kv paged
    counts_are "2 32 6 0 0 6240" -N 64 -b 3 --kv reserve
}

@test "--attend valid pads nothing under any policy" {
    for kv in iterative upfront bmc:T=8 bmc:r=5 paged reserve; do
        ok bmc-prof policies --shape ./tiny.shape -N 64 -r 1 -t 1 --attend valid --kv $kv --format jsonl
        assert_equal "$kv $(jq -c '[.attended, .kv_padded_rows, .rows_computed]' <<<"$output")" "$kv [\"valid\",0,2080]"
    done
}

@test "bytes depend on layers, heads and type; counts on neither allocator nor threads" {
    ROW=256 counts_are "8 8 8 224 224 2304" -N 64 --kv bmc:T=8 --cache-type bf16
    ROW=256 counts_are "8 8 8 224 224 2304" -N 64 --kv bmc:T=8 --layers 1
    for alloc in pool malloc mmap thp; do counts_are "8 8 8 224 224 2304" -N 64 --kv bmc:T=8 --alloc $alloc; done
    counts_are "8 8 8 224 224 2304" -N 64 --kv bmc:T=8 -t 2
    sed -i 's/kv_heads 2/kv_heads 4/' tiny.shape
    ROW=1024 counts_are "8 8 8 224 224 2304" -N 64 --kv bmc:T=8
}

@test "peak bytes: at least 64 rows, and old and new ones during a growth" {
    for kv in upfront paged:16 paged:32 reserve; do
        ok bmc-prof policies --shape ./tiny.shape -N 64 -b 2 -r 1 -t 1 --kv $kv --format jsonl
        assert_equal "$kv $(jq .kv_peak_bytes <<<"$output")" "$kv $((2 * 64 * 512))"
    done
    for kv in iterative bmc:T=8; do
        ok bmc-prof policies --shape ./tiny.shape -N 64 -b 2 -r 1 -t 1 --kv $kv --format jsonl
        jq -e ". > 2 * 64 * 512 and . <= 2 * 2 * 64 * 512" <<<"$(jq .kv_peak_bytes <<<"$output")"
    done
}

# ---- sweep ----

@test "sweep takes T = 1, 2, 4 .. and N" {
    ok bmc-prof sweep --shape ./tiny.shape -N 20 -r 1 -t 1 --format json
    printf '%s' "$output" >out
    # shellcheck disable=SC2086 # lists
    assert_types out $BLOCK $SETUP $CACHE
    jq_true '.rows | map(.policy) == ["bmc:T=1", "bmc:T=2", "bmc:T=4", "bmc:T=8", "bmc:T=16", "bmc:T=20"]' out
    jq_true '.rows | map(.r) == [20, 10, 5, 3, 2, 1] and map(.T) == [1, 2, 4, 7, 10, 20]' out
    jq_true '.rows | map(.kv_copied_bytes / 512) == [0, 10, 30, 63, 90, 190]' out
    jq_true '.rows | map(.kv_padded_rows) == [190, 90, 40, 19, 10, 0]' out
    expect_error 2 '--kv goes with policies, latency, bench, memory, ranks, predict and quality only, not with sweep' bmc-prof sweep --kv bmc
}

# ---- latency ----

@test "latency: a row per interval, columns per policy" {
    ok bmc-prof latency --shape ./tiny.shape -N 10 --every 4 -b 2 -t 1 -r 2 --kv iterative,bmc:T=2 --format json
    printf '%s' "$output" >out
    # shellcheck disable=SC2086 # lists
    assert_types out n:number batch:number iterative_ms:number iterative_max_ms:number bmc:T=2_ms:number $SETUP
    jq_true '.rows | map(.n) == [5, 9, 10]' out
    jq_true '.rows | all(.batch == 2 and .repeat == 2 and .["bmc:T=2_ms"] > 0 and .["bmc:T=2_max_ms"] >= .["bmc:T=2_ms"])' out
    ok bmc-prof latency --shape ./tiny.shape -N 128 -t 1 --format json
    assert_equal "$(jq '.rows | length' <<<"$output")" 32 # N / 32 = 4 tokens a row, 127 of them
    expect_error 2 'at least 2 tokens' bmc-prof latency -N 1
}

@test "latency at a context depth of synthetic KV entries" {
    # The shape's own context is 128.
    ok bmc-prof latency --shape ./tiny.shape --depth 16K --every 300 -t 1 --kv upfront,bmc:T=4 --format json
    printf '%s' "$output" >out
    jq_true '.rows | map([.n, .N, .batch]) == [[16685, 16896, 1], [16896, 16896, 1]]' out
    # A step reads all those entries, so it takes longer than with an empty cache.
    deep=$(jq '.rows[0].upfront_ms' out)
    ok bmc-prof latency --shape ./tiny.shape -N 301 --every 300 -t 1 --kv upfront --format json
    printf '%s' "$output" >out
    jq_true ".rows[0].upfront_ms * 4 < $deep" out
    expect_error 1 'latency needs at least 2 tokens beyond the depth of 99, and -N is 100$' bmc-prof latency -d 99 -N 100
    expect_error 1 'beyond the depth of 65536, and -N is [0-9]+, the model.s context$' bmc-prof latency -d 64K
    expect_error 2 '--depth: "1,2" is not a whole number from 0 to' bmc-prof latency -d 1,2
    expect_error 2 '--depth: "1.5" is not a whole number' bmc-prof latency -d 1.5
    expect_error 2 '--load-kv determines the context depth: it excludes --depth' bmc-prof latency -d 5 --load-kv x.kv
}

# ---- bench ----

BENCH='test:string policy:string batch:number n_prompt:number n_gen:number depth:number tok_s:number tok_s_sd:number
tok_s_end_to_end:number tok_s_end_to_end_sd:number step_ms:number roof_share:number roof_kind:string roof_gb_s:number,null roof_gflop_s:number,null first_token_ms:number,null
latency_p50_ms:number,null latency_p95_ms:number,null latency_p99_ms:number,null attention_ms:number,null
projections_ms:number,null mlp_ms:number,null head_ms:number,null other_ms:number,null sampling_ms:number,null
peak_resident_bytes:number device_peak_bytes:number'

@test "bench: all combinations, fields by kind of test" {
    ok bmc-prof bench --shape ./tiny.shape -p 4,8 -n 2,3 -b 1,2 -d 0,5 -r 2 -t 1 --megabytes 1 --format json
    printf '%s' "$output" >out
    # shellcheck disable=SC2086 # lists
    assert_types out $BENCH $SETUP $CACHE
    jq -r '.rows[] | "\(.test) \(.n_prompt) \(.n_gen) \(.depth) \(.batch)"' out >found
    for d in 0 5; do
        for b in 1 2; do
            for p in 4 8; do echo "prefill $p 0 $d $b"; done
            for n in 2 3; do echo "decode 0 $n $d $b"; done
        done
    done | sort | diff - <(sort found)
    jq_true '.rows | all(.N == .n_prompt + .n_gen + .depth)' out
    jq_true '.rows | all(.tok_s >= .tok_s_end_to_end and .tok_s_end_to_end > 0 and .roof_share > 0)' out
    jq_true '.rows | all((.test == "prefill") == (.first_token_ms != null))' out
    jq_true '.rows[] | select(.test == "decode") | .latency_p50_ms <= .latency_p95_ms and .latency_p95_ms <= .latency_p99_ms' out
    jq_true '[.rows[] | select(.test == "prefill") | .latency_p50_ms, .sampling_ms] | all(. == null)' out
    jq_true '.rows | all(.peak_resident_bytes > 1000000)' out
}

@test "bench: rates, times and phases of a run agree" {
    ok bmc-prof bench --shape ./tiny.shape -p 8 -n 4 -b 3 -r 1 -t 1 --megabytes 1 --kv bmc:r=2 --format json
    printf '%s' "$output" >out
    jq_true '.rows | all(.tok_s_sd == 0 and .tok_s_end_to_end_sd == 0)' out
    jq_true '.rows[] | select(.test == "prefill") | (.tok_s_end_to_end * .step_ms / 1000 - 3 * 8 | fabs) < 1e-5' out
    jq_true '.rows[] | select(.test == "prefill") | .first_token_ms == .step_ms' out
    jq_true '.rows[] | select(.test == "decode") | (.tok_s_end_to_end * .step_ms / 1000 - 3 | fabs) < 1e-5' out
    jq_true '.rows[] | select(.test == "decode") | .tok_s > .tok_s_end_to_end' out
    jq_true '.rows[] | select(.test == "decode") | .attention_ms + .projections_ms + .mlp_ms + .head_ms + .other_ms + .sampling_ms
        <= .step_ms * 1.0001' out
}

@test "bench: several policies, a real model, a length of 0" {
    ok bmc-prof bench -m "$GRIMM" -p 0 -n 2 -r 1 --warmup 0 -t 1 --megabytes 1 --kv iterative,paged --format jsonl
    assert_equal "$(jq -r '"\(.policy) \(.test)"' <<<"$output" | paste -s -d ,)" "iterative decode,paged decode"
    expect_error 2 'nothing to measure' bmc-prof bench -p 0 -n 0
}

# ---- predict ----

@test "predict runs all layers of a small model, whose dimensions a config.json may give" {
    ok bmc-prof predict --shape ./tiny.shape --type q4_k_m -p 8 -n 4 -np 1,2 -r 1 --warmup 0 -t 1 --format json
    printf '%s' "$output" >out
    jq_true '[.rows[] | "\(.test) \(.batch)"] == ["prefill 1", "prefill 2", "decode 1", "decode 2"]' out
    jq_true '.rows | all(.tok_s > 0 and .run_layers == .layers and .weight_type == "q4_k_m")' out
    jq_true '.rows[] | select(.test == "decode") | .attention_ms + .projections_ms + .mlp_ms + .head_ms + .other_ms <= .step_ms * 1.0001' out
    echo '{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 128, "vocab_size": 300, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu"}' >config.json
    ok bmc-prof predict --shape config.json -p 4 -n 0 -r 1 --warmup 0 -t 1 --format json
    assert_equal "$(jq -c '.rows[0] | [.layers, .run_layers, .weight_type]' <<<"$output")" '[3,3,"bf16"]'
    echo '{"hidden_size": 64}' >config.json
    expect_error 1 'config.json: "architectures" is missing' bmc-prof predict --shape config.json
    expect_error 2 "predict: give the model's dimensions by --shape" bmc-prof predict
}

# ---- roof ----

@test "roof: rates of this machine" {
    ok bmc-prof roof -r 1 --megabytes 4 --format json
    printf '%s' "$output" >out
    assert_types out read_gb_s:number copy_gb_s:number f32_gflop_s:number f32_isa:string bf16_gflop_s:number,null \
        bf16_isa:string,null int8_gop_s:number int8_isa:string page_fault_ns:number threads:number repeat:number cpu:string version:string commit:string,null
    jq_true '.rows[0] | [.read_gb_s, .copy_gb_s, .f32_gflop_s, .page_fault_ns] | all(. > 0)' out
    jq_true '.rows[0] | (.bf16_isa == null) == (.bf16_gflop_s == null)' out
}

# ---- shapes ----

@test "--shape needs no model file; a missing default model is an error" {
    mkdir -p alone/bin alone/models.d
    cp "$BMC_BIN/bmc-prof" alone/bin
    cp -r "$ROOT/models.d/shapes" "$ROOT/models.d/families" alone/models.d
    ok alone/bin/bmc-prof policies --shape opt-6.7b --layers 1 -N 4 -r 1 -t 1 --kv bmc --format jsonl
    assert_equal "$(jq -c '[.shape, .model_id, .layers, .weight_type]' <<<"$output")" '["opt-6.7b","",1,"bf16"]'
    ok alone/bin/bmc-prof latency --shape ./tiny.shape -N 3 -t 1 --type f32 --layers 1 --format csv
    expect_error 1 'no -m given.*make' alone/bin/bmc-prof policies
}

@test "a shape's context is the default N up to 512, and -N may go beyond it" {
    ok bmc-prof policies --shape ./tiny.shape -r 1 -t 1 --kv bmc --format jsonl
    assert_equal "$(jq .N <<<"$output")" 128
    ok bmc-prof policies --shape ./tiny.shape -r 1 -t 1 --kv bmc -N 300 --format jsonl
    assert_equal "$(jq .N <<<"$output")" 300
    ok bmc-prof policies --shape opt-1.3b --layers 1 -r 1 -t 1 --kv paged --format jsonl
    assert_equal "$(jq .N <<<"$output")" 512
}

# ---- errors ----

@test "errors: one line, nothing on standard output" {
    expect_error 2 'one of policies' bmc-prof
    expect_error 2 'one of policies' bmc-prof policies sweep
    expect_error 2 '"frob" is none of policies' bmc-prof frob
    expect_error 2 'unknown option --frob' bmc-prof policies --frob
    expect_error 2 'exclude each other' bmc-prof policies -m a --shape b
    expect_error 2 '-N: needs .*found "0"' bmc-prof policies -N 0
    expect_error 2 '-N: needs .*found "x"' bmc-prof policies -N x
    expect_error 2 '-N: ' bmc-prof policies -N 99999999999999999999
    expect_error 2 '-r: needs a whole number from 1 to 64; found "65"' bmc-prof policies -r 65
    expect_error 2 'is none of table' bmc-prof policies --format xml
    expect_error 2 'is none of pool' bmc-prof policies --alloc x
    expect_error 2 'is not a list' bmc-prof policies -b 0
    expect_error 2 'is not a list' bmc-prof bench -b 1,0 --megabytes 1
    expect_error 2 'is not a list' bmc-prof policies -b x
    expect_error 2 '^bmc-prof: --prompt: entry 2 of "1,,2" is empty: one comma goes between two entries, none before' bmc-prof bench -p 1,,2
    expect_error 2 'prompt: entry 3 of "1,2," is empty' bmc-prof bench -p 1,2,
    expect_error 2 'parallel: entry 1 of ",1" is empty' bmc-prof bench -b ,1
    expect_error 2 'kv: entry 2 of "bmc,,paged" is empty' bmc-prof policies --kv bmc,,paged
    expect_error 2 'kv: entry 2 of "bmc," is empty' bmc-prof policies --kv bmc,
    expect_error 2 'is not a list' bmc-prof bench -n -3
    expect_error 2 'list is empty' bmc-prof bench -p ''
    expect_error 2 'cache policy "frob" is unknown' bmc-prof policies --kv frob
    expect_error 2 '16 or 32 rows' bmc-prof policies --kv paged:17
    expect_error 2 'takes no parameter' bmc-prof policies --kv upfront:T=2
    expect_error 2 'cannot grow in lockstep' bmc-prof policies --lockstep --kv paged
    expect_error 2 'cannot grow in lockstep' bmc-prof policies --lockstep --kv reserve
    expect_error 2 'at most 16 policies' bmc-prof policies --kv "$(printf 'bmc,%.0s' {1..16})bmc"
    expect_error 1 'no shape "frob"' bmc-prof policies --shape frob
    expect_error 1 '--layers 99: .* has 8' bmc-prof policies -m "$GRIMM" --layers 99
    expect_error 1 '--layers 3: .* has 2' bmc-prof policies --shape ./tiny.shape --layers 3
    expect_error 1 "beyond the model's context of 1024" bmc-prof policies -m "$GRIMM" -N 1025
    expect_error 1 'exceed the context of 1024' bmc-prof bench -m "$GRIMM" -p 1000 -d 25 --megabytes 1
    expect_error 1 'no-such.bmc: cannot open' bmc-prof policies -m no-such.bmc
    expect_error 2 'attention backend "x"' bmc-prof policies --attn x
    expect_error 2 'no instruction set "x"' bmc-prof policies --isa x
}

# fails KV-LIST ROWS SUBCOMMAND OPTION..: headwise:ram=1K in the list cannot be measured.
fails() {
    run --separate-stderr bmc-prof "${@:3}" --kv "$1" -t 1 --format json
    stderr=$(grep -vxF -e "$REFUSAL" <<<"$stderr")
    assert_equal "$3 $status $(wc -l <<<"$stderr")" "$3 1 1"
    assert_regex "$stderr" '^bmc-prof: headwise:ram=1K: .'
    printf '%s' "$output" >"out.$3"
    assert_equal "$3 $(jq -c '[.rows[] | .policy // "latency"]' "out.$3")" "$3 $2"
    jq_true '.rows | all((.policy == "headwise:ram=1K") == (.error != null))' "out.$3"
    jq_true '.rows | map(select(.error)) | all((.error | length > 20) and .cpu and .N and (.samples == null))' "out.$3"
}

@test "a policy that cannot be measured: only its rows fail, with one message and the exit status" {
    local kv=bmc,headwise:ram=1K,paged
    fails $kv '["bmc","headwise:ram=1K","paged"]' policies -m "$GRIMM" -N 8 -r 2 --plot x.svg
    grep -q '>headwise:ram=1K (not measured)<' x.svg
    fails $kv '["bmc","headwise:ram=1K","paged","bmc","headwise:ram=1K","paged"]' bench -m "$GRIMM" -p 2 -n 2 -r 1 --megabytes 1
    jq_true '.rows | map(.test) == ["prefill", "prefill", "prefill", "decode", "decode", "decode"]' out.bench
    fails $kv '["latency","headwise:ram=1K"]' latency -m "$GRIMM" -N 4 --every 3
    jq_true '.rows[0] | .bmc_ms > 0 and .paged_ms > 0 and (has("headwise:ram=1K_ms") | not)' out.latency
    # Tables with a row per policy show it, too.
    run --separate-stderr bmc-prof policies -m "$GRIMM" -N 8 -r 1 -t 1 --kv bmc,headwise:ram=1K
    assert_equal "$status $(grep -c '^headwise:ram=1K  *-' <<<"$output")" "1 1"
    run --separate-stderr bmc-prof latency -m "$GRIMM" -N 4 --every 3 -t 1 --kv bmc,headwise:ram=1K
    assert_equal "$status $(sed '1,/^$/d' <<<"$output" | wc -l)" "1 2"
    # Each reason is reported once.
    expect_error 1 'headwise:ram=1K, headwise:ram=1024: ' bmc-prof policies -m "$GRIMM" -N 8 -r 1 -t 1 --kv headwise:ram=1K,headwise:ram=1024
}

@test "absurd sizes are refused with one line" {
    export ASAN_OPTIONS=allocator_may_return_null=1
    # More than the address space. Smaller sizes can succeed with overcommitted memory.
    for kv in iterative upfront bmc paged reserve; do
        expect_error 1 'out of memory|address space|is impossible|needs [0-9]+ MiB' \
            bmc-prof policies --shape opt-6.7b --layers 1 -N 900000000000000 --kv $kv -t 1
    done
    # More than any machine has, refused before anything of it is allocated: petabytes of buffers, and 10 TB of cache and more.
    for job in policies sweep latency 'bench --megabytes 1' ranks; do
        # shellcheck disable=SC2086 # words
        expect_error 1 'a batch of 1000000000 needs at least [0-9]+ MiB, [0-9]+ are available' bmc-prof $job -m "$GRIMM" -b 1000000000 -t 1
        # shellcheck disable=SC2086 # words
        expect_error 1 'the cache of 20000000 sequences of [0-9]+ entries needs [0-9]+ MiB|a batch of 20000000 needs' \
            bmc-prof $job -m "$GRIMM" -b 20000000 -t 1
    done
    expect_error 1 'the cache of 1000000 sequences of 512 entries needs [0-9]+ MiB of `ram`' bmc-prof policies -m "$GRIMM" -b 1000000 --kv headwise -t 1
    expect_error 2 'is not a list of at most 16 whole numbers from 1 to 1073741824' bmc-prof bench -m "$GRIMM" -b 1073741825
}

@test "a full standard output is an error" {
    run --separate-stderr bash -c '"$0" policies --shape ./tiny.shape -N 4 -r 1 -t 1 >/dev/full' "$BMC_BIN/bmc-prof"
    assert_equal "$status" 1
    assert_regex "$stderr" 'cannot write to standard output'
}

@test "SIGINT ends a long run, without rows" {
    for job in "policies -N 100000" "latency --layers 1 -N 100000" "bench --layers 1 -n 100000 --megabytes 1"; do
        SECONDS=0
        # shellcheck disable=SC2086 # words
        run --separate-stderr timeout --preserve-status --foreground -s INT 0.4 \
            "$BMC_BIN/bmc-prof" ${job%% *} --shape ./tiny.shape ${job#* } -t 1
        assert_equal "$job $status $output $stderr" "$job 130  "
        [ "$SECONDS" -lt 60 ]
        sed -i 's/^context .*/context 200000/' tiny.shape
    done
}

# ---- libraries below ----

@test "statistics, tables, memory, counters and synthetic models" {
    # Sizes that no allocator provides.
    ASAN_OPTIONS=allocator_may_return_null=1 run "$BMC_BUILD/tests/test_prof"
    assert_success
    assert_line --regexp '^[0-9]{3} checks, 0 failed$'
}

@test "teams of threads" {
    run "$BMC_BUILD/tests/test_threads"
    assert_success
    assert_line --regexp '^[4-9][0-9]+ checks, 0 failed$'
    run "$BMC_BUILD/tests/test_steal"
    assert_success
    assert_line '90 checks, 0 failed'
}

# BMC_SEED repeats what a failure prints.
exact() { # MODEL ROUNDS
    run "$BMC_BUILD/tests/test_exact" "$1" "${BMC_SEED:-1}" "$2"
    assert_success
    assert_line --regexp '^# seed '
    assert_line --regexp '^# fused: [0-9]{3,} tokens, logits off by 0 at most$'
    assert_line --regexp '^# eager, f32: [0-9]{3,} tokens'
    [ "$2" -lt 2 ] || assert_line --regexp '^# eager, bf16: [0-9]{3,} tokens'
    if grep -q '^# tie' <<<"$output"; then grep '^# tie' <<<"$output" >&3; fi
}

sanitized() { readelf -d "$BMC_BIN/bmc-prof" | grep -q libasan; }

@test "every policy gives the logits of a sequence alone: grouped queries" {
    exact "$BATS_FILE_TMPDIR/llama.bmc" "$(if [ -n "$BMC_FULL" ]; then echo 500; elif sanitized; then echo 2; else echo 4; fi)"
    [ -z "$BMC_FULL" ] || exact "$GRIMM" 100 # a model of several megabytes takes 50 times as long
}

@test "every policy gives the logits of a sequence alone: a head for every query" {
    exact "$BATS_FILE_TMPDIR/opt.bmc" "$([ -n "$BMC_FULL" ] && echo 500 || echo 4)"
}
