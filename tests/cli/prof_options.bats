# bmc-prof: subcommands refuse options that they do not use, by the table of --help; rounds in rows; and
# that KV entries are not computed again in every round.
load ../helper

setup_file() {
    "$BMC_BIN/bmc-prof" --help >"$BATS_FILE_TMPDIR/help"
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    tiny_shape tiny.shape
}

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

# refused REGEX ARGUMENT..: exit 2, nothing on standard output, one line.
refused() {
    run --separate-stderr bmc-prof "${@:2}"
    assert_equal "$* -> $status $output" "$* -> 2 "
    assert_regex "$stderr" "^bmc-prof: $1 \(see bmc-prof --help\)$"
}

commands='policies sweep latency bench memory ranks roof heads prefix-cache compare quality cache-types'

# The options of a subcommand in the usage of --help, one per line.
used_by() { # SUBCOMMAND
    awk -v job="$1" '
        /^$/ && seen { exit }
        /bmc-prof [a-z][a-z-]* / { inside = ($1 == "usage:" ? $3 : $2) == job; seen = 1 }
        inside' "$BATS_FILE_TMPDIR/help" | grep -oE -- '--[a-z-]+' | sort
}

all_options() { grep -oE '^ .{0,7}--[a-z-]+' "$BATS_FILE_TMPDIR/help" | grep -oE -- '--[a-z-]+' | grep -vx -e --help -e --version -e --no-config | sort; }

# An option with a valid value.
spelled() {
    case $1 in
    --lockstep | --hugepages | --numa) echo "$1" ;;
    --type) echo "$1=f32" ;;
    --cache-type) echo "$1=bf16" ;;
    --attend) echo "$1=padded" ;; # the default, too
    --backend) echo "$1=cpu" ;;
    --alloc) echo "$1=malloc" ;;
    --cores) echo "$1=all" ;;
    --format) echo "$1=csv" ;;
    --columns) echo "$1=all" ;;
    --plot) echo "$1=x.svg" ;;
    *) echo "$1=1" ;;
    esac
}

@test "every option is used by a subcommand, and the others refuse it" {
    local job option files tried=0
    for job in $commands; do
        used_by "$job" >"$job"
        [ -s "$job" ]
    done
    all_options >all
    # shellcheck disable=SC2086 # words
    sort -u $commands | diff all -
    while read -r option; do
        # shellcheck disable=SC2086 # words
        grep -Lx -e "$option" $commands >others
        tried=$((tried + 1))
        # One of the others, a different one each time.
        [ -n "$BMC_FULL" ] || sed -i "$((tried % $(wc -l <others) + 1))!d" others
        while read -r job; do
            files=
            [ "$job" != compare ] || files='a b'
            [ "$job" != prefix-cache ] || files=none
            # shellcheck disable=SC2046,SC2086 # words
            refused "$option goes with .* only, not with $job(; options of what --against runs follow \"--\")?" $job $files $(spelled "$option")
        done <others
    done < <(grep -vx -e --format -e --columns all) # all use these
    [ "$tried" -ge 25 ]
}

@test "a subcommand accepts all of its options at once" {
    local job
    for job in $commands; do
        used_by "$job" | while read -r option; do spelled "$option"; done >options
        # shellcheck disable=SC2046 # words
        run --separate-stderr bmc-prof "$job" $(case $job in compare) echo none none ;; prefix-cache) echo none ;; esac) $(cat options)
        case $job in
        roof) assert_success ;;
        compare) assert_regex "$stderr" '"none" is none of policies' ;; # what --against measures
        prefix-cache) assert_regex "$stderr" 'none: cannot open this folder' ;;
        heads | cache-types) assert_regex "$stderr" 'no instruction set "1"' ;;
        quality) assert_regex "$stderr" 'attention backend "1" is unknown' ;;
        *) assert_regex "$stderr" '-m and --shape exclude each other' ;;
        esac
    done
}

@test "-N extends the context of a shape" {
    ok bmc-prof bench --shape ./tiny.shape -N 200 -d 150 -p 0 -n 1 -r 1 --warmup 0 -t 1 --megabytes 1 --format csv
    run --separate-stderr bmc-prof bench --shape ./tiny.shape -d 150 -p 0 -n 1 -r 1 --megabytes 1
    assert_regex "$stderr" 'exceed the context of 128'
}

@test "messages name the refused option" {
    refused '--plot goes with policies, sweep, latency and quality only, not with roof' roof --plot x.svg
    refused '--attend goes with policies, sweep, latency, bench, ranks and predict only, not with roof' --attend padded roof
    refused '--depth goes with latency, bench and predict only, not with memory' memory -d 5
    refused '--tolerance goes with compare only, not with bench' bench --tolerance 5
    refused '--megabytes goes with bench, memory and roof only, not with sweep' sweep --megabytes 1
    refused 'one of policies, .* is expected, found also "sweep"' policies sweep
    refused 'compare takes two files.*' compare a
    refused 'compare takes two files.*' compare a b c
}

@test "the defaults of --kv are those of --help" {
    local job all='iterative,upfront,bmc,paged:16,reserve,segment,shift,headwise' help
    local -A default=([policies]=$all [latency]=iterative,bmc [bench]=bmc
        [memory]=$all [ranks]=bmc)
    local -A args=([policies]='-N 4' [latency]='-N 4 --every 4' [bench]='-p 0 -n 1 --warmup 0 --megabytes 1'
        [memory]='-p 2 -n 2')
    help=$(bmc-prof --help | tr -s ' \n' ' ')
    [[ $help == *'(default: all for policies and memory; iterative,bmc for latency; bmc for bench, predict and ranks; '* ]]
    for job in "${!args[@]}"; do
        # shellcheck disable=SC2086 # words
        bmc-prof "$job" -m "$(model grimm)" ${args[$job]} -t 1 $([ "$job" = memory ] || echo -r 1) --format json >out 2>err || fail "$job: $(cat err)"
        command jq -r '.rows[] | select(.policy == null or (.policy | endswith(")") or endswith("rows") | not)) |
            .policy // (keys_unsorted[] | select(endswith("_max_ms")) | rtrimstr("_max_ms"))' out | awk '!seen[$0]++' | paste -sd , >policies
        assert_equal "$job $(cat policies)" "$job ${default[$job]}"
    done
    bmc-prof policies -m "$(model grimm)" -N 4 -r 1 -t 1 --lockstep --format jsonl 2>/dev/null >out
    assert_equal "$(jq -r .policy out | paste -sd ' ')" "iterative upfront bmc"
}

@test "--help names the subcommands of rarely used options" {
    bmc-prof --print-options fish >fish
    grep -q -- "-l depth .*'latency, bench and predict: context depth" fish
    grep -q -- "-l megabytes .*'bench, memory and roof: size of" fish
    grep -q -- "-l kv .*(not with sweep)'" fish
    grep -q -- "-l model .*the bundled model) (not with predict)'" fish
}

@test "rows keep their rounds, the time of day and the model's identity" {
    local before after
    before=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    ok bmc-prof bench -m "$(model grimm)" -p 4 -n 2 -r 3 --warmup 1 -t 1 --megabytes 1 --format json
    after=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    echo "$output" >out
    jq -e '.rows | length == 2' out
    jq -e '.rows | all(.samples | keys == ["tok_s", "tok_s_end_to_end"] and all(length == 3 and all(. > 0)))' out
    # The figure is the mean of its rounds.
    jq -e '.rows | all(. as $r | ["tok_s", "tok_s_end_to_end"] | all(($r.samples[.] | add / 3) / $r[.] - 1 | fabs < 1e-6))' out
    jq -e '.rows | all(.samples.tok_s_end_to_end as $s | .tok_s_end_to_end_sd == 0 or ($s | max > min))' out
    jq -e --arg from "$before" --arg to "$after" '.rows | all(.timestamp >= $from and .timestamp <= $to)' out
    jq -e '.rows | all(.timestamp | test("^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"))' out
    assert_equal "$(jq -r '.rows[].model_id' out | sort -u)" "$(bmc-convert --info "$(model grimm)" | sed -n 's/^model_id *//p')"
}

@test "rounds of the other subcommands" {
    ok bmc-prof latency --shape ./tiny.shape -N 9 --every 4 --kv bmc:T=2,reserve -r 3 -t 1 --format json
    jq -e '.rows | length == 2 and all(.samples | keys == ["bmc:T=2_ms", "reserve_ms"] and all(length == 3))' <<<"$output"
    jq -e '.rows | all(.["reserve_max_ms"] >= (.samples.reserve_ms | max))' <<<"$output"
    run --separate-stderr bmc-prof policies --shape ./tiny.shape -N 8 --kv bmc,reserve -r 3 -t 1 --format json
    assert_success
    jq -e '.rows | all((.samples.total_ms | sort) == [.total_ms_min, .total_ms, .total_ms_max])' <<<"$output"
}

@test "bench -d: synthetic KV entries are written, not computed" {
    # 16 sequences of 900 rows in 6 rounds: 86,400 tokens take half a minute to compute, and next to nothing to write.
    ok sh -c 'ulimit -t 15; exec "$0" "$@"' "$BMC_BIN/bmc-prof" bench -m "$(model grimm)" -b 16 -d 900 -p 0 -n 1 --megabytes 1 --kv upfront --format json
    jq -e '.rows[0] | .depth == 900 and .N == 901 and .batch == 16' <<<"$output"
}

@test "bench -d: every policy accepts synthetic KV entries" {
    for kv in iterative upfront bmc:T=4 paged:16 reserve; do
        ok bmc-prof bench --shape ./tiny.shape -b 2 -d 100 -p 3 -n 5 -r 1 --warmup 0 -t 2 --megabytes 1 --kv $kv --format json
        jq -e '.rows | length == 2 and all(.tok_s > 0 and .roof_share > 0)' <<<"$output"
    done
}

@test "paths with arbitrary bytes" {
    cp tiny.shape $'t\xff.shape'
    for job in 'bench -p 2 -n 2 --megabytes 1' 'latency -N 4'; do
        # shellcheck disable=SC2086 # words
        ok bmc-prof $job --shape ./$'t\xff.shape' -r 1 --warmup 0 -t 1 --format json
        assert_equal "$(jq -r '.rows[0].shape' <<<"$output")" $'./t\xef\xbf\xbd.shape'
    done
}
