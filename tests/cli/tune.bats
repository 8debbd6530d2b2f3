# bmc-tune: output in every format, the profile and its use by programs, errors, charts, and that sampled runs agree with
# whole runs.
#
# Times are compared only with BMC_FULL=1, on an idle machine.
load ../helper

setup_file() {
    model grimm >/dev/null
    cd "$BATS_FILE_TMPDIR" || return 1
    tiny
    calibrate ./real
}

# A tiny shape, measured for about a second: fit and measurement need not agree.
quick="--megabytes 1 --evict 1 --seconds 0.1 --rounds 3 -t 1 --force"
tiny() { tiny_shape tiny.shape "$@"; }

# Measures the rates of the tiny shape quickly into a profile.
calibrate() { # PROFILE [OPTION]...
    local profile=$1
    shift
    # shellcheck disable=SC2086 # words
    ok bmc-tune $quick --shape ./tiny.shape -N 64 --no-sweep --no-batch-knee --state cold --profile "$profile" "$@"
}

# Runs a command that must succeed; its standard output is in `out`.
tune() {
    # shellcheck disable=SC2086 # words
    run --separate-stderr bmc-tune $quick "$@"
    [ "$status" -eq 0 ] || fail "bmc-tune $* -> $status: $stderr"
    [ -z "$(grep -v '^bmc-tune: warning: .* fit and measurement disagree' <<<"$stderr")" ] || fail "$stderr"
    printf '%s\n' "$output" >out
}

jq_true() { # FILTER FILE
    jq -e "[$1] | length > 0 and all(. == true)" "$2" >verdict || fail "$1 is $(cat verdict) in $(head -c 2000 "$2")"
}

# A profile of this machine for -t 1, whose formula gives T = sqrt(N * RATIO / 2) with RATIO = copy / sdpa.
hand_made() { # FILE RATIO [LINE]...
    local file=$1 ratio=$2
    shift 2
    {
        grep -vE '^(constant|T|model|policy) ' "$BATS_FILE_TMPDIR/real"
        echo "constant copy_elem_s - f32 256 4 1 1 cold 1000000 ${ratio}e9 0 5"
        echo "constant sdpa_mac_s fused f32 256 4 1 1 cold 1000000 1e9 0 5"
        printf '%s\n' "$@"
    } >"$file"
    sed -i '/^$/d' "$file"
}

T_of() { # OPTION..: "T T_from policy policy_from"
    ok bmc-gen -m "$(model grimm)" -p Once -n 1 -c 512 -t 1 -q --stats stats.json "$@"
    jq -r '"\(.T) \(.T_from) \(.kv_policy) \(.kv_policy_from)"' stats.json
}

# ---- the unit test ----

@test "cost model and fits against values computed by hand" {
    run "$BMC_BUILD/tests/test_tune"
    assert_success
}

# ---- output ----

@test "a shape: every format has its points" {
    tiny
    tune --shape ./tiny.shape -N 32,64 -b 2 --no-batch-knee --profile ./measured --format json --seconds 1
    mv out out.json
    for format in jsonl csv; do
        tune --shape ./tiny.shape -N 32,64 -b 2 --no-batch-knee --no-sweep --constants ./measured --dry-run --format $format
        mv out "out.$format"
    done
    assert_equal "$(jq '.rows | length' out.json)" 4 # cold and hot
    assert_equal "$(wc -l <out.jsonl)" 4
    assert_equal "$(wc -l <out.csv)" 5
    assert_equal "$(head -n 1 out.csv)" "$(command jq -r '.rows[0] | keys_unsorted | join(",")' out.json)"
    jq_true '.rows[] | .T_pow2 >= 1 and .T_pow2 <= .N and .T_model >= 1 and .T_model <= .N and .T_closed > 0' out.json
    jq_true '.rows[] | .measured_ms > 0 and .predicted_ms > 0 and .regret >= 1 and .regret_lo <= .regret_hi' out.json
    jq_true '.rows[] | .T_fit >= 1 and .T_fit <= .N and .T_fit_lo <= .T_fit_hi' out.json
    jq_true '.rows[] | .iterative_ms > 0 and .reserve_ms > 0 and .upfront_ms > 0 and .paged_ms > 0 and .segment_ms > 0' out.json
    for constant in copy_elem_s sdpa_mac_s alloc_s; do
        jq_true ".constants.$constant | .value > 0 and .spread >= 0 and .samples >= 15 and (.at | length) >= 5" out.json
    done
    # Powers of two up to 8 times away from T_pow2, each once, and T = 1.
    jq_true '.rows as $rows | .curve as $curve | range(4) as $i | $rows[$i] as $row |
        [$curve[] | select(.N == $row.N and .state == $row.state) | .T] | . == unique and .[0] == 1 and index($row.T_pow2) != null' out.json
    [ ! -e "$XDG_CONFIG_HOME/bmc" ]
}

@test "without a format, at most 15 lines, the last of which says where the result is" {
    tiny
    tune --shape ./tiny.shape -N 32,40,64 -np 1,2,3,4,5 --no-batch-knee --no-sweep --profile ./p
    [ "${#lines[@]}" -le 15 ] || fail "$output"
    assert_line --partial '(2 more batch sizes: --verbose)'
    assert_line --regexp '^Rates at N = 64, f32 cache, attention fused: [0-9.e+]+ elements copied and [0-9.e+]+ multiply-accumulates per second\.$'
    assert_regex "${lines[-1]}" '^T [0-9]+( to [0-9]+)?: written to \./p; nothing else to do$'
    tune --shape ./tiny.shape -N 64 --no-batch-knee --no-sweep --state hot --constants ./p --profile ./p
    assert_equal "${lines[-1]}" 'rates: written to ./p; nothing else to do'
}

@test "tables and Markdown have the same content" {
    tiny
    tune --shape ./tiny.shape -N 32 --state cold --dry-run --layers 1 --verbose
    assert_output --partial "Rates by bytes of K and V:"
    assert_output --regexp 'N = 32, batch 1, cold: use T = [0-9]+; '
    assert_output --regexp 'Batch knee of [^:]+: (1 token|[0-9]+ tokens); more take over 1\.15 times as long as one\.'
    tune --shape ./tiny.shape -N 32 --state hot --no-batch-knee --dry-run --format md
    assert_output --partial "| copy_elem_s |"
}

@test "every field of a row is in the man page" {
    tiny
    tune --shape ./tiny.shape -N 32 --no-sweep --no-batch-knee --dry-run --format json
    sed -n '/^\.SS JSON/,/BEGIN OPTIONS/{s/\\f[BIR]//g;p}' "$ROOT/man/bmc-tune.1" >section
    jq -r '(.rows[0] | keys[]), keys[], (.constants | keys[])' out >fields
    [ "$(wc -l <fields)" -ge 20 ]
    for field in $(cat fields); do
        grep -qw -- "$field" section || fail "$field"
    done
    jq_true '.rows[] | .measured_ms == null and .regret == null and .T_fit == null' out
}

@test "GQA: the alternative reading of eq. 8, with G and Q" {
    tiny
    tune --shape ./tiny.shape -N 64 --no-sweep --no-batch-knee --dry-run --format json --cache-type bf16 --state cold
    jq_true '.rows[] | .G == 2 and .T_closed_gq > 0' out
    # The curves of both readings exist.
    jq_true '[.points[] | "\(.constant) \(.kv_type) \(.G)"] | unique | length >= 5' out
}

@test "speculation: the model takes k and m, runs have steps of k rows, the profile no T" {
    tiny
    tune --shape ./tiny.shape -N 64 --spec k=8,m=2 --state cold --no-batch-knee --profile ./p --format json
    jq_true '.rows[] | .k == 8 and .m == 2 and .measured_ms > 0' out
    jq_true '.constants.sdpa_mac_s_k.value > 0' out
    grep -q '^constant sdpa_mac_s fused f32 64 2 8 1 cold' p
    run grep '^T ' p
    assert_failure
}

@test "speculation: T and the shape of drafts are planned, and kept in the profile" {
    tune -m "$(model grimm)" -d "$(model grimm-draft)" --spec auto -N 24 -np 1,2 --state cold --no-sweep --no-batch-knee --profile ./p --format json
    jq_true '[.speculation[] | [.N, .batch]] == [[24, 1], [24, 2]]' out
    jq_true '.speculation | all(.T >= 1 and .T <= 24 and .tokens_per_step >= 1 and .ms <= .plain_ms and .speedup >= 1 and (.shape == "chain" or .levels > 1))' out
    target=$(bmc-convert --info "$(model grimm)" --format json | jq -r .model_id) draft=$(bmc-convert --info "$(model grimm-draft)" --format json | jq -r .model_id)
    assert_equal "$(grep -cE "^spec $target $draft fused f32 [12] 24 [0-9]+ (chain|tree) " p)" 2
    # With these rates from here on: at an acceptance rate of 0.99 and without a draft model, drafts that cost nothing gain.
    tune -m "$(model grimm)" --spec auto,p=0.99 -N 24 --constants ./p --state cold --no-sweep --no-batch-knee --profile ./p --format json
    jq_true '.speculation[0] | .draft_tokens >= 1 and .tokens_per_step > 1.9 and .shape == "chain"' out
    assert_equal "$(grep -cE "^spec $target (-|$draft) " p)" 3
    # The draft head in the model's own file; a model without one.
    tune -m "$ROOT/models.d/grimm-mtp.bmc" -d self --spec auto -N 24 --constants ./p --state cold --no-sweep --no-batch-knee --dry-run --format json
    jq_true '.speculation | length == 1' out
    # Contexts shorter than the largest draft.
    tune -m "$(model grimm)" -d "$(model grimm-draft)" --spec auto -N 2,30 --constants ./p --state cold --no-sweep --no-batch-knee --dry-run --format json
    jq_true '.speculation | map(.draft_tokens < .N) | all' out
    # Errors come before anything is measured, or rates are read.
    tune_error() { expect_error 1 "$1" bmc-tune $quick -m "$(model grimm)" --spec auto -N 24 --no-sweep --no-batch-knee --dry-run --constants absent "${@:2}"; }
    tune_error 'draft: .*has no draft head' -d self
    printf 'target x\ndraft y\naccept 0.5\n' >other
    tune_error 'other: was recorded for another model' --acceptance other
    tune_error 'another vocabulary' -d "$(model llama-3-like)"
    tune_error 'absent does not exist'
}

@test "a model: its batch knee and its chart" {
    tune -m "$(model grimm)" -N 64 --state cold --profile ./p --plot p.svg --format json
    jq_true '.batch_knee | .batch_knee >= 1 and (.step_ms | keys | length) == 10 and .k_for["0.9"].speedup >= 1' out
    id=$(bmc-convert --info "$(model grimm)" | sed -n 's/^model_id[^0-9a-f]*//p')
    grep -q "^model $id grimm.bmc$" p
    grep -q "^policy $id [a-z]" p
    grep -q "^step_ms $id 64 " p
    grep -q "^batch_knee $id " p
    grep -q '^T fused f32 256 4 8 1 64 ' p
    [ "$(grep -c '<circle.*r="4"' p.svg)" -eq "$(jq '.curve | length + 1' out)" ]
    assert_folder out p p.svg verdict
}

@test "sampled runs agree with whole runs" {
    [ -n "$BMC_FULL" ] || skip "BMC_FULL=1 holds times against each other"
    local common="--shape opt-350m --layers 1 -N 256 --state hot --no-batch-knee" attempt
    # The same constants for both, so that both measure the same T.
    # shellcheck disable=SC2086 # words
    ok bmc-tune $common --no-sweep --profile ./p --megabytes 16 -q
    for attempt in 1 2 3; do # one of three, since other processes disturb times
        # shellcheck disable=SC2086
        bmc-tune $common --constants ./p --dry-run --format json >sampled
        # shellcheck disable=SC2086
        bmc-tune $common --constants ./p --dry-run --format json --exact >whole
        jq -n --slurpfile a sampled --slurpfile b whole \
            '[$a[0].curve, $b[0].curve] | transpose[] | .[0].measured_ms / .[1].measured_ms | select(. < 0.9 or . > 1.1)' >far
        [ -s far ] || break
    done
    assert_equal "$(cat far)" ""
}

# ---- the profile ----

@test "T: the default without a profile, its table, else the formula; the option wins" {
    # Eq. 7 with G = 4: sqrt(4 * 512 * 1 / 2) = 32.
    hand_made p 1
    assert_equal "$(T_of)" "8 default bmc default"
    assert_equal "$(T_of --profile ./p)" "32 formula bmc default"
    hand_made p 1 'T fused f32 256 4 8 1 512 2'
    assert_equal "$(T_of --profile ./p)" "2 profile bmc default"
    assert_equal "$(T_of --profile ./p --kv bmc)" "2 profile bmc option"
    assert_equal "$(T_of --profile ./p --kv bmc:T=4)" "4 option bmc option"
    assert_equal "$(T_of --profile ./p --kv bmc:r=64)" "8 option bmc option"
    assert_equal "$(T_of --profile ./p --kv upfront)" "1 policy upfront option"
    assert_equal "$(T_of --profile none)" "8 default bmc default"
    # Another configuration: by formula. Another number of threads: the profile is not used.
    assert_equal "$(T_of --profile ./p -c 128)" "16 formula bmc default"
    assert_equal "$(T_of --profile ./p -t 2)" "8 default bmc default"
}

@test "the library uses the profile that it is given: the first allocation has N / T entries" {
    [ -x /usr/bin/python3 ] || skip "no /usr/bin/python3 here"
    if sanitized; then skip "the library needs its sanitizer"; fi
    hand_made p 1 'T fused f32 256 4 8 1 512 2'
    PYTHONPATH=$ROOT/lib/python BMC_LIBRARY=$ROOT/lib/libbmc.so PYTHONDONTWRITEBYTECODE=1 run /usr/bin/python3 - "$(model grimm)" <<'END'
import sys, bmc
model = bmc.Model(sys.argv[1])
def first(**options):
    with bmc.Session(model, context=512, **options) as session:
        session.eval([5])
        return session.stats()["kv_bytes"]
one = first(kv="bmc:T=512")  # 16 entries, a tile
print(*[first(**o) // one for o in ({"threads": 1}, {"threads": 1, "profile": "p"}, {"threads": 1, "profile": "p", "kv": "bmc:T=4"}, {"threads": 2, "profile": "p"})])
try:
    first(profile="missing")
except bmc.Error as error:
    print(error.code, error)
END
    assert_success
    assert_line --index 0 "4 16 8 4"
    assert_line --index 1 "-2 missing: there is no such profile; bmc-tune makes it"
}

@test "bmc-prof uses the profile, and its rows tell" {
    hand_made p 1 'T fused f32 256 4 8 1 64 2'
    ok "$BMC_BIN/bmc-prof" bench -m "$(model grimm)" -p 0 -n 64 --kv bmc,bmc:T=4 -t 1 --profile ./p --format json -r 1 --warmup 0 --megabytes 1
    assert_equal "$(jq -r '[.rows[] | "\(.T) \(.T_from)"] | join(" ")' <<<"$output")" "2 profile 4 option"
}

@test "the default path of the profile; its folder is created" {
    tiny
    XDG_CONFIG_HOME=$PWD/config ok bmc-tune --shape ./tiny.shape -N 64 --no-sweep --no-batch-knee --state cold --megabytes 1 --evict 1 --seconds 0.1 -t 1
    [ -s config/bmc/profile ]
    XDG_CONFIG_HOME=$PWD/config T_of >found
    grep -q formula found
    XDG_CONFIG_HOME='' HOME=$PWD/home ok bmc-tune --shape ./tiny.shape -N 64 --no-sweep --no-batch-knee --state cold --megabytes 1 --evict 1 --seconds 0.1 -t 1
    [ -s home/.config/bmc/profile ]
    XDG_CONFIG_HOME='' HOME='' run --separate-stderr bmc-tune --shape ./tiny.shape -N 64 --no-sweep --no-batch-knee --state cold \
        --megabytes 1 --evict 1 --seconds 0.1 -t 1 --format csv
    assert_equal "$status" 1
    [[ $stderr =~ ^bmc-tune:\ .*neither\ XDG_CONFIG_HOME\ nor\ HOME ]]
}

@test "a second run adds to the profile and replaces what it measured again" {
    tiny
    cp "$BATS_FILE_TMPDIR/real" p
    tune --shape ./tiny.shape -N 32,64 --no-sweep --no-batch-knee --state cold --profile ./p
    assert_equal "$(grep '^T ' p | cut -d ' ' -f 2-8 | sort | uniq -c | awk '{ print $1 }' | xargs)" "1 1"
    assert_equal "$(grep '^constant' p | cut -d ' ' -f 2-10 | sort | uniq -d)" ""
}

# The line that ignores the profile in ./config, and the text all the same.
ignored() { # REGEX
    XDG_CONFIG_HOME=$PWD/config run --separate-stderr bmc-gen -m "$(model grimm)" -p "$once" -n 4 -t 1 -q --ids
    assert_success
    assert_equal "$output" "$(bmc-gen -m "$(model grimm)" -p "$once" -n 4 -t 1 -q --ids)"
    [[ $stderr =~ ^bmc-gen:\ ignoring\ the\ tuned\ profile:\ .*$1 ]] && [[ $stderr != *$'\n'* ]] || fail "$stderr"
}
once='Once upon a time'

@test "an unusable profile is ignored with one line" {
    hand_made good 1
    mkdir -p config/bmc
    sed 's/^cpu .*/cpu Another One/' good >config/bmc/profile
    ignored 'Another One'
    sed 's/^cores .*/cores 999/' good >config/bmc/profile
    ignored '999 cores'
    sed 's/^bmc_profile .*/bmc_profile 7/' good >config/bmc/profile
    ignored 'version 7'
    head -c 5000 /dev/urandom >config/bmc/profile
    ignored ''
    : >config/bmc/profile
    ignored 'bmc_profile'
    sed '$a model x\npolicy x zork 1 1 1' good >config/bmc/profile
    ignored 'profile: cache policy "zork" is unknown'
    sed '$a model x\nbatch_knee x -5' good >config/bmc/profile
    ignored 'batch_knee'
    sed 's/1e9/-1e9/' good >config/bmc/profile
    ignored 'positive'
    printf '%s\n' "$(sed 's/^cpu .*/cpu \x1b[31mred/' good)" >config/bmc/profile
    ignored 'red'
    yes 'x y' | head -c 2000000 >config/bmc/profile
    ignored 'longer'
    rm config/bmc/profile
    mkfifo config/bmc/profile
    ignored 'is not a regular file'
    rm config/bmc/profile
    mkdir config/bmc/profile
    ignored ''
    rmdir config/bmc/profile
    ln -s profile config/bmc/profile
    ignored ''
    # The same profile given by the option is an error.
    sed 's/^bmc_profile .*/bmc_profile 7/' good >bad
    expect_error 1 '--profile: .*version 7' bmc-gen -m "$(model grimm)" -p x -n 1 -t 1 -q --profile ./bad
    expect_error 1 '--profile: .*does not exist' bmc-gen -m "$(model grimm)" -p x -n 1 -t 1 -q --profile ./absent
}

@test "a profile that is replaced and truncated while it is read" {
    hand_made good 1
    mkdir -p config/bmc
    (
        while [ ! -e stop ]; do
            cp good config/bmc/profile # in place: truncated, then written
            head -c 300 good >part
            mv part config/bmc/profile
        done
    ) &
    local writer=$! turn
    for ((turn = 0; turn < 20; turn++)); do
        XDG_CONFIG_HOME=$PWD/config run --separate-stderr bmc-gen -m "$(model grimm)" -p Once -n 1 -t 1 -q --ids
        [ "$status" -eq 0 ] && [[ $stderr != *$'\n'* ]] || break
    done
    touch stop
    wait "$writer"
    assert_success
    assert_equal "$turn" 20
}

@test "--constants takes the rates of an earlier run" {
    tiny
    cp "$BATS_FILE_TMPDIR/real" p
    tune --shape ./tiny.shape -N 64 --no-sweep --no-batch-knee --dry-run --format csv --constants p --state cold
    cp out first
    tune --shape ./tiny.shape -N 64 --no-sweep --no-batch-knee --dry-run --format csv --constants p --state cold
    equal_files first out
    expect_error 1 '--constants: .*does not exist' bmc-tune --shape ./tiny.shape --constants absent --dry-run
}

@test "--check: fits after tuning, not with the rates of another machine" {
    tiny
    cp "$BATS_FILE_TMPDIR/real" p
    # shellcheck disable=SC2086 # words
    run --separate-stderr bmc-tune $quick --state cold --shape ./tiny.shape --check --profile ./p --format json
    [ "$status" -le 1 ]
    [ -z "$stderr" ]
    printf '%s' "$output" >out
    jq_true '.worst_ratio >= 0.9 and .limit == 1.08' out
    # Copying a million times slower: T far too small.
    awk '$1 == "constant" && $2 == "copy_elem_s" { $11 *= 1e-6 } $1 != "T"' p >wrong
    # shellcheck disable=SC2086 # words
    run --separate-stderr bmc-tune $quick --state cold --shape ./tiny.shape --check --profile ./wrong
    assert_failure 1
    assert_output --partial "does not fit: the profile's T take up to"
    sed 's/^cpu .*/cpu Another One/' p >other
    expect_error 1 'Another One' bmc-tune -t 1 --evict 1 --shape ./tiny.shape --check --profile ./other
    expect_error 1 'does not exist' bmc-tune -t 1 --evict 1 --check --profile ./absent
}

# ---- errors ----

@test "wrong usage and wrong values" {
    tiny
    expect_error 2 'exclude' bmc-tune -m x --shape y
    expect_error 2 'unexpected' bmc-tune model.bmc
    expect_error 2 '--check takes' bmc-tune --check --dry-run
    expect_error 2 'rounds' bmc-tune --rounds 2
    expect_error 2 'is not a list' bmc-tune --shape ./tiny.shape -N 1 --dry-run
    expect_error 2 'is not a list' bmc-tune --shape ./tiny.shape -N 64,x --dry-run
    expect_error 2 'is not a list' bmc-tune --shape ./tiny.shape -b 0 --dry-run
    expect_error 2 'parallel: entry 2 of "1," is empty' bmc-tune --shape ./tiny.shape -b 1, --dry-run
    expect_error 2 'ctx-size: entry 2 of "64,,128" is empty' bmc-tune --shape ./tiny.shape -N 64,,128 --dry-run
    for spec in k=4 k=4,m=5 k=0,m=0 m=1,k=2 k=4,m=2x k=99999,m=1 'k=,m=1'; do
        expect_error 2 '--spec' bmc-tune --shape ./tiny.shape --spec "$spec" --dry-run
    done
    for spec in autox auto, auto,p=0 auto,p=1 auto,p=x auto,p=0.5,; do
        expect_error 2 "--spec: \"$spec\" is not as auto or auto,p=0.8" bmc-tune -m "$(model grimm)" --spec "$spec" --dry-run
    done
    expect_error 2 'give it with -m' bmc-tune --shape ./tiny.shape --spec auto --dry-run
    expect_error 2 'draft goes with --spec auto' bmc-tune -m "$(model grimm)" -d x --dry-run
    expect_error 2 'exclude each other' bmc-tune -m "$(model grimm)" --spec auto,p=0.5 --acceptance x --dry-run
    expect_error 2 'unknown' bmc-tune --shape ./tiny.shape --attn none --dry-run
    expect_error 1 'absent' bmc-tune -m absent.bmc --dry-run
    expect_error 1 'beyond the model' bmc-tune -m "$(model grimm)" -N 99999 --dry-run
}

@test "a point that does not fit in memory is listed as such" {
    tiny
    tune --shape ./tiny.shape -N 1048576 -b 1024 --state cold --no-batch-knee --constants "$BATS_FILE_TMPDIR/real" --dry-run --format json
    jq_true '.rows[] | .note == "the cache does not fit in memory" and .measured_ms == null' out
}

@test "interrupted: nothing is left behind" {
    tiny
    run --separate-stderr timeout -s INT -k 20 0.7 "$BMC_BIN/bmc-tune" --shape ./tiny.shape -N 128 -t 1 --profile ./p --plot p.svg --seconds 60 --rounds 60
    assert_failure
    [ "$status" -ne 137 ] || fail "bmc-tune did not end at SIGINT"
    assert_folder tiny.shape
}

# A profile of this machine with so many models, each with all that a model may have if its names are LONG.
profile_of() { # MODELS [LONG]
    [ -s made ] || bmc-tune --shape ./tiny.shape "${short_run[@]}" --profile made
    cp made p
    awk -v n="$1" -v long="$2" 'BEGIN {
        for (i = 0; i < n; i++) {
            key = long ? sprintf("m%065d", i) : "m" i
            print "model " key " x\npolicy " key " bmc 1 1 1"
            n_rows = split("1 2 4 8 12 16 24 32 48 64", rows)
            for (j = 1; long && j <= n_rows; j++) print "step_ms", key, rows[j], "1.5"
            if (long) print "batch_knee", key, 1
        }
    }' >>p
    cp p before
}
short_run=(-N 8 -t 1 --no-sweep --no-batch-knee --state hot --megabytes 1 --evict 1 --seconds 0.1 -q)
long_run=(-N 8192 -t 1 --rounds 60 --seconds 3600 --megabytes 4000 --force)

@test "bmc-tune: a full profile is an error before anything is measured" {
    tiny_shape tiny.shape
    profile_of 1024
    expect_error 1 'p: has 1024 models of at most 1024' timeout 30 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long_run[@]}" --profile p
    equal_files p before
    # One that is there, or nothing of a new model: there is room.
    sed 's/m1023/tiny/' before >p
    ok bmc-tune --shape ./tiny.shape "${short_run[@]}" --constants made --profile p
    cp tiny.shape other.shape
    ok bmc-tune --shape ./other.shape "${short_run[@]}" --constants made --profile p
    assert_equal "$(grep -c '^model ' p)" 1024
    profile_of 900 long
    expect_error 1 'p: has 1[0-9]* bytes of at most 1048576' timeout 30 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long_run[@]}" --profile p
    equal_files p before
}

@test "bmc-tune: an invalid profile is an error and is not overwritten" {
    tiny_shape tiny.shape
    profile_of 1
    while read -r edit pattern; do
        sed "${edit//\~/ }" before >p
        cp p edited
        expect_error 1 "cannot be updated: remove it or give another name: p: .*$pattern" timeout 30 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long_run[@]}" --profile p
        equal_files p edited
    done <<'END'
s/^bmc_profile~.*/bmc_profile~7/ version 7
$apolicy~m0~bmc~x~1~1 line
END
    yes '# more' | head -c $((1 << 20)) >>p
    expect_error 1 'longer than 1048576 bytes' timeout 30 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long_run[@]}" --profile p
    run_plain bmc-tune --shape ./tiny.shape "${short_run[@]}" --constants made --profile /dev/stdout
    assert_regex "$output" 'bmc_profile 3'
}

@test "bmc-tune: --profile none is an error" {
    expect_error 2 '--profile: "none" means no profile' timeout 30 "$BMC_BIN/bmc-tune" --shape opt-125m -N 8 --profile none
    expect_error 2 '--profile: "none" means no profile' timeout 30 "$BMC_BIN/bmc-tune" --check --profile none
    assert_folder
}
