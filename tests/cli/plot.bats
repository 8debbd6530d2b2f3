# Charts: contents of --plot, refused names, and that names in charts are harmless.
load ../helper

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    tiny_shape tiny.shape
}

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

# bmc-prof with minimal measurements: only its output matters.
prof() { # SUBCOMMAND [OPTION]...
    run --separate-stderr bmc-prof "$@" -r 1 -t 1 --shape "${shape:-$BATS_FILE_TMPDIR/tiny.shape}"
    [ "$status" -eq 0 ] || fail "$* -> $status: $stderr"
}

# A whole SVG with these words in it.
assert_picture() { # FILE WORD...
    head -c 100 "$1" | grep -q '^<?xml version="1.0" encoding="UTF-8"?>' || fail "$1: $(head -c 100 "$1")"
    [ "$(tail -n 1 "$1")" = "</svg>" ] || fail "$1 has no end"
    if command -v xmllint >/dev/null; then xmllint --noout "$1"; fi
    local picture=$1 word
    shift
    for word; do grep -qF -- "$word" "$picture" || fail "$picture lacks $word"; done
}

circles() { grep -c '<circle.*r="'"$2"'"' "$1"; } # FILE RADIUS

cpu() { sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1; }

@test "SVG: lines, bars, spread, marks, texts of any bytes, numbers of any size" {
    run "$BMC_BUILD/tests/test_svg"
    assert_success
    assert_line --regexp '^[0-9]{3,} checks, 0 failed$'
}

@test "policies: stacked bars, the total with its spread, model, machine, threads and units" {
    prof policies -N 16 --kv bmc,paged:16,reserve --plot policies.svg --format csv
    assert_equal "$(wc -l <<<"$output")" 4
    assert_picture policies.svg 'Attention block under cache policies: tiny.shape' 'N = 16, batch 1' '1 thread,' \
        'time of all steps (ms)' '>cache policy<' '>bmc<' '>paged:16<' '>reserve<' '>allocation<' '>copying<' '>new rows<' \
        '>attention<' 'fastest to slowest round' 'bars need not reach it'
    if [ -n "$(cpu)" ]; then assert_picture policies.svg "$(cpu | sed 's/&/\&amp;/g')"; fi
    assert_equal "$(grep -c 'h10m-5' policies.svg)" 3
    assert_equal "$(grep -c '<rect' policies.svg)" $((1 + 3 * 4 + 4))
    assert_folder policies.svg
}

@test "sweep: total with its spread over T; the fastest T and bmc's default are marked" {
    prof sweep -N 16 --plot sweep.svg --format json
    printf '%s' "$output" >rows
    best=$(jq '.rows | min_by(.total_ms).T' rows)
    own=$(jq '.rows | length' rows) # 5 points, and one in the legend
    assert_picture sweep.svg 'Attention block under bmc by T: tiny.shape' 'T, allocations per context' \
        'time of all steps (ms)' '<polygon' "T = $best"
    grep -qE '>best and bmc&#39;s own T = 1<|>bmc&#39;s own T = 1 \(default\)<' sweep.svg || fail "$(grep 'T = ' sweep.svg)"
    assert_equal "$(circles sweep.svg 4)" $((4 * (own + 1)))
    [ "$(circles sweep.svg 8)" -ge 1 ]
}

@test "latency: a panel per policy, with p50, p95 and the slowest tokens" {
    prof latency -N 16 --every 1 --kv iterative,bmc:T=2 --plot latency.svg
    assert_picture latency.svg 'Time of the n-th token: tiny.shape' '>median, area up to their p95<' '>slowest of them<' \
        '>iterative: p50 ' '>bmc:T=2: p50 ' ' ms, p95 ' ' ms, slowest ' 'n, KV entries in the cache' 'time of a token (ms)'
    assert_equal "$(grep -c '<polygon' latency.svg)" 2
    assert_equal "$(circles latency.svg 4)" $((2 * 15 + 1))
    assert_equal "$(grep -c '>p95<' latency.svg)" 2
}

@test "latency: panels of five policies and a failed one, with their full names" {
    run --separate-stderr bmc-prof latency -m "$(model grimm)" -N 9 --every 4 -t 1 --plot five.svg \
        --kv iterative,upfront,bmc,paged:16,reserve,headwise:ram=1K,group=1
    assert_equal "$status" 1
    assert_picture five.svg '>headwise:ram=1K,group=1: not measured<' '>paged:16: p50 ' '8 layers, ' '1 thread, '
    assert_equal "$(grep -c ' font-weight="bold">' five.svg)" $((1 + 6))
    assert_equal "$(grep -c $'\xe2\x80\xa6' five.svg)" 0
}

@test "bmc-tune: prediction, measurements with quartiles, fit, tuned and best T" {
    ok bmc-tune --shape "$BATS_FILE_TMPDIR/tiny.shape" -N 64 --state cold --no-batch-knee --dry-run -q -t 1 --megabytes 1 --evict 1 \
        --seconds 0.1 --rounds 3 --plot tune.svg
    assert_output ""
    assert_picture tune.svg 'Cache growth and attention over T: tiny.shape' 'One layer, N = 64, batch 1, cold' '1 thread,' \
        'T, allocations per context' 'time to fill the context (ms)' '>predicted by the model<' \
        '>measured, median and quartiles<' '>fit a + bT + c/T<' 'the medians from T = ' \
        'uses separately measured rates: at T = '
    grep -qE 'The fit (agrees|disagrees) with the medians' tune.svg # by the noise of three rounds
    grep -qE '>tuned and best T = [0-9]+<|>best measured T = [0-9]+<' tune.svg
    assert_equal "$(grep -c 'h10m-5' tune.svg)" "$(($(circles tune.svg 4) - 1))"
    ok bmc-tune --shape "$BATS_FILE_TMPDIR/tiny.shape" -N 64 --state cold --no-batch-knee --no-sweep --dry-run -q -t 1 --megabytes 1 \
        --evict 1 --seconds 0.1 --plot predicted.svg
    assert_picture predicted.svg '>tuned T = ' 'not measured'
    run grep -c 'fit a + bT' predicted.svg
    assert_output 0
}

@test "charts run no program, whatever names contain" {
    local hostile='`touch hit1`$(touch hit2)"; system("touch hit3"); '\''&<b>.shape'
    cp "$BATS_FILE_TMPDIR/tiny.shape" "$hostile"
    mkdir $'line\nbreak\033[31m'
    cp "$BATS_FILE_TMPDIR/tiny.shape" $'line\nbreak\033[31m/a\nb\033[31m.shape'
    for shape in "./$hostile" $'./line\nbreak\033[31m/a\nb\033[31m.shape'; do
        prof policies -N 4 --kv bmc --plot one.svg
        assert_picture one.svg 'Attention block'
        prof sweep -N 4 --plot one.svg
        assert_picture one.svg 'Attention block'
    done
    grep -q $'a\xef\xbf\xbdb\xef\xbf\xbd\\[31m.shape' one.svg || fail "$(head -n 4 one.svg)"
    cp "$BATS_FILE_TMPDIR/tiny.shape" $'b\xff.shape'
    run bmc-tune --shape $'./b\xff.shape' -N 64 --no-sweep --no-batch-knee --dry-run -q -t 1 --megabytes 1 --evict 1 --seconds 0.1 --plot one.svg
    assert_picture one.svg $'over T: b\xef\xbf\xbd.shape'
    [ ! -e hit1 ]
    [ ! -e hit2 ]
    [ ! -e hit3 ]
    shape="./$hostile" prof latency -N 4 --plot one.svg
    assert_picture one.svg '&lt;b&gt;.shape<' '`touch hit1`$(touch hit2)&quot;'
}

@test "charts need no other program" {
    run --separate-stderr env PATH=/nowhere "$BMC_BIN/bmc-prof" policies --shape "$BATS_FILE_TMPDIR/tiny.shape" -N 4 -r 1 -t 1 --kv bmc \
        --plot picture.svg
    assert_success
    assert_picture picture.svg
}

@test "a format other than SVG is wrong usage, before measuring" {
    # A terabyte would be allocated first.
    local name
    for name in x.png x.pdf x svg .svg x.svg.gz ''; do
        run --separate-stderr bmc-prof policies --shape opt-6.7b -N 100000000 -t 1 --plot "$name"
        assert_equal "$name $status $output" "$name 2 "
        assert_regex "$stderr" '^bmc-prof: --plot: pictures are SVG'
        expect_error 2 'pictures are SVG' bmc-tune --shape opt-6.7b -N 1000000 --plot "$name"
    done
    assert_folder
    prof policies -N 4 --kv bmc --plot x.SVG
    assert_folder x.SVG
}

@test "standard output and FIFOs take SVG under any name" {
    mkfifo pipe.png
    timeout 20 cat pipe.png >read &
    local reader=$!
    prof policies -N 4 --kv bmc --plot pipe.png
    wait "$reader"
    assert_picture read 'cache policy'
    [ -p pipe.png ]
    prof policies -N 4 --kv bmc --plot - --format csv
    sed -n '/^<?xml/,$p' <<<"$output" >read
    assert_picture read 'cache policy'
    assert_equal "$(head -n 1 <<<"$output" | cut -d , -f 1)" policy
}
