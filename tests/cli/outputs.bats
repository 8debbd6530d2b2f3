# The files of a run: what an output may replace, with which mode, through which links and pipes; what is wrong usage.
load ../helper

setup_file() {
    for name in grimm grimm-draft; do model "$name" >/dev/null; done
}

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

# A model of a few thousand weights in ./m.bmc, with a token per byte; a snapshot of it in ./s.kv.
make_files() {
    tiny_shape tiny.shape
    bmc-convert --synth ./tiny.shape -o m.bmc
    bmc-gen -q -m m.bmc -p x -n 2 --ignore-eos --save-kv s.kv >/dev/null
}

mode_of() { stat -c %a "$1"; }

# refused CODE REGEX FILE COMMAND..: that, and the file stays as it is.
refused() {
    local file=$3 before
    before=$(b2sum <"$file")
    expect_error "$1" "$2" "${@:4}"
    [ "$(b2sum <"$file")" = "$before" ] || fail "$file was changed by ${*:4}"
}

# ---- what is replaced ----

@test "no output replaces an input, however its name is spelt" {
    make_files
    ln -s m.bmc soft
    ln m.bmc hard
    echo x >prompt
    for name in m.bmc ./m.bmc "$PWD/m.bmc" soft hard; do
        refused 2 "--stats: $name is read \(--model\)" m.bmc bmc-gen -q -m m.bmc -p x -n 1 --stats "$name"
    done
    refused 2 '--save-kv: soft is read \(--model\)' m.bmc bmc-gen -q -m m.bmc -p x -n 1 --save-kv soft
    ln -s m.bmc soft.svg
    refused 2 '--plot: soft.svg is read \(--model\)' m.bmc bmc-prof latency -m m.bmc -N 4 --plot soft.svg
    refused 2 '--plot: soft.svg is read \(--model\)' m.bmc bmc-tune -m m.bmc --dry-run --plot soft.svg
    refused 2 '--profile: soft is read \(--model\)' m.bmc bmc-tune -m m.bmc --profile soft
    refused 2 '--acceptance: soft is read \(--model\)' m.bmc bmc-spec -q -m m.bmc --recycle -p x -n 1 --record-acceptance --acceptance soft
    refused 2 'is read \(--draft\)' m.bmc bmc-spec -q -m "$(model grimm)" -d m.bmc -p x --stats m.bmc
    refused 2 'is read \(--file\)' prompt bmc-gen -q -m m.bmc -f prompt -n 1 --stats prompt
    refused 2 'is read \(--file\)' prompt bmc-gen -q -m m.bmc --jsonl -f prompt --save-kv prompt
    refused 2 'is read \(--load-kv\)' s.kv bmc-gen -q -m m.bmc --load-kv s.kv -n 1 --stats s.kv
    refused 2 'is read \(--shape\)' tiny.shape bmc-tune --shape ./tiny.shape --profile tiny.shape
    refused 2 'is read \(--synth\)' tiny.shape bmc-convert --synth ./tiny.shape -o tiny.shape
    run --separate-stderr bmc-gen -q -m m.bmc -n 1 --stats prompt <prompt
    assert_equal "$status" 2
    [[ $stderr =~ is\ read\ \(standard\ input\) ]] || fail "$stderr"
    assert_equal "$(cat prompt)" x
    refused 2 "--output: soft is read \(the model to convert\)" m.bmc bmc-convert m.bmc --type q4_0 -o soft
    # What the run goes on from may be brought up to date.
    ok bmc-gen -q -m m.bmc --load-kv s.kv --save-kv ./s.kv -n 1
    ok bmc-gen -q -m m.bmc --prompt-cache s.kv -p x -n 1
}

@test "bmc-convert replaces no file of the folder that it reads, but a model there" {
    cp -r "$(folder llama-bias)" hf
    for file in model.safetensors config.json tokenizer.json; do
        refused 2 "--output: hf/$file is a file of hf" "hf/$file" bmc-convert hf -o "hf/$file"
    done
    mkdir blobs
    mv hf/model.safetensors blobs/abc
    ln -s ../blobs/abc hf/model.safetensors
    refused 2 'is a file of hf' blobs/abc bmc-convert hf -o blobs/abc
    refused 1 'is a safetensors file' blobs/abc bmc-convert --synth opt-125m -o blobs/abc
    ok bmc-convert hf -o hf/new.bmc
    ok bmc-convert hf -o hf/new.bmc
}

# Every option that names a file, of every program.
file_options() { # PROGRAM
    "$BMC_BIN/$1" --print-options fish | sed -n 's/.* -l \([a-z-]*\) -r .*/--\1/p'
}

@test "no option of any program lets a model or a snapshot be replaced by something else" {
    make_files
    cp m.bmc other.bmc
    cp s.kv other.kv
    export XDG_CONFIG_HOME=$BATS_TEST_TMPDIR/config
    sums=$(b2sum ./*)
    n=0
    for line in "bmc-gen -q -m m.bmc -p x -n 1" "bmc-spec -q -m m.bmc --recycle -p x -n 1 --record-acceptance" \
        "bmc-prof latency -m m.bmc -N 4" "bmc-tune --check -t 1" "bmc-convert --synth ./tiny.shape -s 1"; do
        program=${line%% *}
        for option in $(file_options "$program"); do
            file=other.bmc
            [ "$program" != bmc-convert ] || file=other.kv
            n=$((n + 1))
            # shellcheck disable=SC2086
            timeout 20 "$BMC_BIN/"$line "$option" "$file" >/dev/null 2>&1 </dev/null || true
            [ "$(b2sum ./*)" = "$sums" ] || fail "$line $option $file: $(ls -l; b2sum ./*)"
        done
    done
    [ "$n" -gt 20 ]
}

@test "a file of another kind is refused by its first bytes" {
    make_files
    printf 'GGUF\3\0\0\0 and more' >x.gguf
    printf '# made by hand\nbmc_profile 1\n' >p
    printf 'target 00\ndraft 00\n' >a
    refused 1 's.kv: is a snapshot' s.kv bmc-convert --synth ./tiny.shape -o s.kv
    refused 1 'x.gguf: is a GGUF file' x.gguf bmc-gen -q -p x -n 1 --stats x.gguf
    cp p p.svg
    refused 1 'p.svg: is a tuned profile' p.svg bmc-prof latency -N 4 --plot p.svg
    refused 1 'a: is a file of acceptance rates' a bmc-gen -q -p x -n 1 --stats a
    refused 1 'a: is a file of acceptance rates' a bmc-tune --shape ./tiny.shape -N 8 --profile a
    refused 1 'p: is a tuned profile' p bmc-spec -q -p x -n 2 --record-acceptance --acceptance p
    refused 1 'tiny.shape: exists and is no tuned profile' tiny.shape bmc-tune --profile tiny.shape
    refused 1 'tiny.shape: exists and is no snapshot' tiny.shape bmc-gen -q -p x -n 1 --prompt-cache tiny.shape
    # Through a descriptor, too.
    run --separate-stderr bash -c "'$BMC_BIN/bmc-gen' -q -p x -n 1 --stats /dev/fd/3 3<>s.kv"
    assert_equal "$status" 1
    [[ $stderr =~ /dev/fd/3:\ is\ a\ snapshot ]] || fail "$stderr"
}

@test "an output replaces no file but of its own kind" {
    make_files
    export XDG_CONFIG_HOME=$BATS_TEST_TMPDIR/config
    bmc-gen -q -m m.bmc -p x -n 1 --stats stats >/dev/null
    bmc-prof latency -m m.bmc -N 4 --plot plot.svg >/dev/null
    bmc-prof cache-scales -m m.bmc -o ranges <<<abc >/dev/null
    bmc-prof heads -m m.bmc -N 120 --recent 1 -o heads >/dev/null
    for kind in stats plot.svg ranges heads; do # a second run replaces them
        cp "$kind" "before.$kind"
        case $kind in
        stats) ok bmc-gen -q -m m.bmc -p x -n 2 --ignore-eos --stats stats ;;
        plot.svg) ok bmc-prof latency -m m.bmc -N 5 --plot plot.svg ;;
        ranges) ok bmc-prof cache-scales -m m.bmc -o ranges <<<abcd ;;
        heads) ok bmc-prof heads -m m.bmc -N 120 --recent 2 -o heads ;;
        esac
        cmp -s "$kind" "before.$kind" && fail "$kind was not replaced"
    done
    echo mine >text.svg
    echo '{"version":"1","dependencies":{}}' >json.svg
    printf '<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>\n' >drawing.svg
    cp stats stats.svg
    cp ranges ranges.svg
    for how in "gen -p x -n 1 --stats" "gen -p x -n 1 --save-kv" "gen -p x -n 1 --prompt-cache" "gen -p x --score --save-imatrix" \
        "spec --recycle -p x -n 1 --stats" "spec --recycle -p x -n 1 --record-acceptance --acceptance" "prof latency -N 4 --plot" \
        "prof policies -N 4 --plot" "prof heads -f s.kv -o" "prof cache-scales -f s.kv -o" "tune --profile" "tune --plot" "convert --synth ./tiny.shape -o"; do
        for file in text json drawing stats ranges; do
            [[ $how-$file =~ --stats-stats|cache-scales.*-ranges ]] && continue
            model='-m m.bmc'
            [[ $how != convert* ]] || model=''
            # shellcheck disable=SC2086
            refused 1 "^bmc-[a-z]*: $file.svg: (exists and is no |is a file of )[a-z -]*, so it is not replaced: give another name$" $file.svg "$BMC_BIN/bmc-"$how $file.svg $model
        done
    done
}

@test "two outputs need two names" {
    make_files
    expect_error 2 '--save-kv and --stats are one file' bmc-gen -q -m m.bmc -p x -n 1 --stats new --save-kv new
    ln -s new link
    expect_error 2 'are one file' bmc-gen -q -m m.bmc -p x -n 1 --stats link --save-kv ./new
    expect_error 2 '--plot and --profile are one file' bmc-tune --shape ./tiny.shape -N 8 --plot p.svg --profile "$PWD/p.svg"
    expect_error 2 'are one file' bmc-spec -q -m m.bmc --recycle -p x -n 1 --record-acceptance --acceptance a --stats a
    expect_error 2 'standard output and --stats are one file' bash -c "'$BMC_BIN/bmc-gen' -q -m m.bmc -p x -n 1 --stats out >out"
    # What is no file may be named as often as one likes.
    ok bmc-spec -q -m m.bmc --recycle -p x -n 1 --stats /dev/null --prompt-cache new
    ok bmc-gen -q -m m.bmc -p x -n 1 --stats -
    assert_folder link m.bmc new out s.kv tiny.shape
}

# ---- pipes ----

@test "a FIFO where a snapshot or a model is wanted is refused at once" {
    mkfifo fifo
    for option in --save-kv --prompt-cache --load-kv -m; do
        expect_error 1 'fifo: .*regular file' timeout 30 "$BMC_BIN/bmc-gen" -q -p x -n 1 "$option" fifo
    done
    expect_error 1 'fifo: .*regular file' timeout 30 "$BMC_BIN/bmc-prof" latency -N 4 --load-kv fifo
    expect_error 1 'fifo: .*regular file' timeout 30 "$BMC_BIN/bmc-spec" -q -p x -n 1 -d fifo
    expect_error 1 'regular file' timeout 30 "$BMC_BIN/bmc-gen" -q -p x -n 1 --save-kv >(cat)
}

@test "<(...) and >(...) do what a FIFO does" {
    make_files
    run --separate-stderr bmc-gen -q -m m.bmc -f <(printf x) -n 2 --ignore-eos --ids --stats >(cat >stats)
    assert_equal "$status $stderr" "0 "
    wait_until test -s stats
    assert_equal "$(jq .sampled_tokens stats)" 2
    run --separate-stderr bmc-gen -q -m m.bmc --jsonl -f <(echo '{"ids":[1],"n":1}') --stats /dev/fd/3 3>three
    assert_equal "$status $stderr" "0 "
    assert_equal "$(jq .sequences three)" 1
    ok bmc-convert --synth ./tiny.shape -o >(cat >piped.bmc)
    wait_until cmp -s piped.bmc m.bmc
    ok bmc-convert --synth ./tiny.shape -o /proc/self/fd/1
    "$BMC_BIN/bmc-convert" --synth ./tiny.shape -o /proc/self/fd/4 4>four.bmc
    equal_files four.bmc m.bmc
    expect_error 1 '/dev/fd/77: ' bmc-gen -q -m m.bmc -p x -n 1 --stats /dev/fd/77
}

@test "what was closed from the start gets no file of ours" {
    make_files
    gen="'$BMC_BIN/bmc-gen' -m m.bmc -p x -n 4 --ignore-eos --save-kv new.kv"
    run --separate-stderr bash -c "$gen -q >&-"
    assert_equal "$status" 1
    assert_folder m.bmc s.kv tiny.shape
    ok bash -c "$gen -q <&-"
    ok bmc-convert --verify new.kv
    bash -c "$gen 2>&-" >out
    ok bmc-convert --verify new.kv
    bash -c "$gen 2>&- <&-" >out
    ok bmc-convert --verify new.kv
    bash -c "$gen >&- 2>&- <&-" || true
    ok bmc-convert --verify new.kv
    run bash -c "'$BMC_BIN/bmc-gen' -q -m m.bmc -n 1 <&-"
    assert_equal "$status" 1
}

# ---- modes and links ----

@test "a file that is replaced keeps its mode, a new snapshot is the user's alone" {
    umask 022
    make_files
    assert_equal "$(mode_of s.kv) $(mode_of m.bmc)" "600 644"
    bmc-gen -q -m m.bmc -p x -n 1 --prompt-cache cache.kv --stats stats >/dev/null
    assert_equal "$(mode_of cache.kv) $(mode_of stats)" "600 644"
    for mode in 600 640 604 666; do
        chmod $mode s.kv stats m.bmc
        bmc-gen -q -m m.bmc --load-kv s.kv -n 1 --save-kv s.kv --stats stats >/dev/null
        bmc-convert --synth ./tiny.shape -o m.bmc
        assert_equal "$(mode_of s.kv) $(mode_of stats) $(mode_of m.bmc)" "$mode $mode $mode"
    done
}

@test "a file that is replaced keeps its owner and group where that is possible" {
    [ "$(id -u)" = 0 ] || skip "only the superuser can give files away"
    make_files
    chown 1234:4321 s.kv
    bmc-gen -q -m m.bmc --load-kv s.kv -n 1 --save-kv s.kv >/dev/null
    assert_equal "$(stat -c '%u %g %a' s.kv)" "1234 4321 600"
    # Where not, its new group may do no more than everybody.
    command -v setpriv >/dev/null || skip "no setpriv"
    other="setpriv --reuid 2222 --regid 2222 --clear-groups"
    chmod 777 .
    $other test -w . && $other test -x "$BMC_BIN/bmc-gen" || skip "the programs cannot be run by others here"
    echo >stats
    chown 1234:4321 stats
    chmod 664 stats
    $other "$BMC_BIN/bmc-gen" -q -m m.bmc -p x -n 1 --stats stats >/dev/null
    assert_equal "$(stat -c '%u %g %a' stats)" "2222 2222 644"
}

@test "a link is written through, also one that points to nothing" {
    make_files
    mkdir a b
    ln -s ../b/there a/link
    ln -s link a/link2
    ok bmc-gen -q -m m.bmc -p x -n 1 --stats a/link2
    [ -L a/link ]
    [ -L a/link2 ]
    assert_equal "$(jq .sequences b/there)" 1
    ln -s missing/deeper a/far
    expect_error 1 'cannot create a file in its folder' bmc-gen -q -m m.bmc -p x -n 1 --stats a/far
    ln -s round a/round
    expect_error 1 'a/round: cannot follow the link' bmc-gen -q -m m.bmc -p x -n 1 --stats a/round
    assert_equal "$(ls b)" there
}

# fs.protected_symlinks, proc_sys_fs(5): an output must not be a way around it.
@test "links of other users in a world-writable folder are not followed where the system forbids it" {
    [ "$(id -u)" = 0 ] || skip "only the superuser can make links of others"
    [ "$(cat /proc/sys/fs/protected_symlinks)" = 1 ] || skip "this system allows it"
    make_files
    mkdir public
    chmod 1777 public
    echo precious >mine
    ln -s "$PWD/mine" public/trap
    ln -s "$PWD/missing" public/dangling
    chown -h 1234 public/trap public/dangling
    for link in trap dangling; do
        refused 1 "public/$link: cannot follow the link: Permission denied" mine bmc-gen -q -m m.bmc -p x -n 1 --stats public/$link
    done
    [ ! -e missing ]
    chown 1234 public # the folder's owner may
    ok bmc-gen -q -m m.bmc -p x -n 1 --stats public/trap
    assert_equal "$(jq .sequences mine)" 1
}

@test "folders of the user's configuration are the user's alone" {
    umask 022
    tiny_shape tiny.shape
    export XDG_CONFIG_HOME=$PWD/one/config
    expect_error 1 'absent' bmc-tune --shape ./tiny.shape --constants absent # the folders are made before anything else
    export XDG_CONFIG_HOME=$PWD/two/config
    ok bmc-spec -q -p 'The king' -n 64 --recycle --record-acceptance
    for folder in one one/config one/config/bmc two two/config two/config/bmc; do
        assert_equal "$folder $(mode_of $folder)" "$folder 700"
    done
}

# ---- before it is measured ----

@test "an output that cannot be written is noticed before anything is measured" {
    tiny_shape tiny.shape
    long=(-N 4096 --seconds 600 -r 60)
    for option in --profile --plot; do
        expect_error 1 'none/p.svg: cannot create' timeout 30 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long[@]}" $option none/p.svg
    done
    XDG_CONFIG_HOME=/proc/none expect_error 1 '/proc/none/bmc/profile: cannot create' timeout 30 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long[@]}"
    expect_error 1 'none/p.svg: cannot create' timeout 30 "$BMC_BIN/bmc-prof" policies --shape opt-6.7b -N 2048 -r 64 --plot none/p.svg
    mkdir folder.svg
    expect_error 1 'is a folder' timeout 30 "$BMC_BIN/bmc-prof" policies --shape opt-6.7b -N 2048 -r 64 --plot folder.svg
    expect_error 1 'none/a: cannot create' timeout 30 "$BMC_BIN/bmc-spec" -q -p x --ignore-eos --record-acceptance --acceptance none/a
    expect_error 1 'none/s: cannot create' timeout 30 "$BMC_BIN/bmc-gen" -q -p x --ignore-eos --save-kv none/s
    assert_folder folder.svg tiny.shape
}

@test "wrong usage ends with 2, also where it takes a look at several options" {
    m=$(model grimm) d=$(model grimm-draft)
    while read -r pattern command; do
        # shellcheck disable=SC2086
        expect_error 2 "${pattern//_/ }" $command
    done <<END
one_tensor bmc-spec -m $m -d $d -p x --ragged pad --kv reserve
one_tensor bmc-spec -m $m -d $d -p x --kv paged --ragged pad
250_draft_tokens bmc-spec -m $m -d $d -p x -k 250 -c 100
100_draft_tokens bmc-spec -m $m --recycle -p x --tree 100 -c 100
window_of_16 bmc-spec -m $m -d $d -p x -k 26 -cd 16
nothing_to_draft_with bmc-spec -m $m -p x
--draft-kv bmc-spec -m $m -d $d -p x --draft-kv zork
--prompt-ids:_"x" bmc-gen -m $m --prompt-ids 5,x
not_with_sweep bmc-prof sweep --kv bmc
entry_2_of bmc-prof bench -p 1,,2
nothing_to_measure bmc-prof bench -p 0 -n 0
not_a_list bmc-prof bench -b 0
at_least_2_tokens bmc-prof latency -N 1
"zork" bmc-prof policies --attn zork
"zork" bmc-prof bench --precision zork
"zork" bmc-prof policies --kv zork
lockstep bmc-prof policies --lockstep --kv paged
not_a_list bmc-tune -N 1 --dry-run
not_a_list bmc-tune -b 0 --dry-run
--spec bmc-tune --spec k=2,m=3 --dry-run
"zork" bmc-tune --isa zork --dry-run
"zork" bmc-tune --precision zork --dry-run
a_.safetensors_file_cannot_be_written bmc-convert folder -o out.safetensors
a_.bin_file_cannot_be_written bmc-convert folder -o out.BIN
--tokenizer_goes_with bmc-convert folder -o out --tokenizer folder
--family_goes_with bmc-convert --synth opt-125m -o out --family x
END
    assert_folder
}

@test "a model that memory is too short to map is not replaced either" {
    if sanitized; then skip "address space of a sanitizer"; fi
    printf BMCMODEL >large.bmc
    truncate -s 8G large.bmc
    (
        ulimit -v 2000000
        expect_error 1 'large.bmc: is a model file, so it is not replaced' bmc-gen -q -m "$(model grimm)" -p x -n 1 --stats large.bmc
    )
    assert_equal "$(head -c 8 large.bmc)" BMCMODEL
}

@test "a descriptor that is open for reading only is refused before anything is computed" {
    expect_error 1 '/dev/fd/5: cannot be written' bmc-gen -q -m "$(model grimm)" -p x -n 1 --stats /dev/fd/5 5</dev/null
    expect_error 1 '/dev/fd/1: cannot be written' bash -c '"$0" "$@" >&-' "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -p x -n 1 --stats /dev/fd/1
}

@test "no output may overwrite any of many inputs" {
    run "$BMC_BUILD/tests/test_files"
    assert_output --regexp ' checks, 0 failed$'
    assert_success
}

@test "an output may not overwrite the file that a shape name stands for, but one of that name in the folder" {
    mkdir bin models.d
    cp "$BMC_BIN/bmc-tune" bin
    cp -r "$ROOT/models.d/shapes" "$ROOT/models.d/families" models.d
    few=(-N 8 -t 1 --no-sweep --no-batch-knee --state hot --megabytes 1 --evict 1 --seconds 0.1 -q)
    touch opt-125m
    ok bin/bmc-tune --shape opt-125m "${few[@]}" --profile opt-125m
    assert_regex "$(head -n 2 opt-125m)" 'bmc_profile'
    cp models.d/shapes/opt-125m.shape before
    expect_error 2 'opt-125m.shape is read \(--shape\)' bin/bmc-tune --shape opt-125m "${few[@]}" --profile models.d/shapes/opt-125m.shape
    equal_files before models.d/shapes/opt-125m.shape
}

@test "a model does not overwrite a text file, but an empty one" {
    echo important >notes.txt
    expect_error 1 'notes.txt: exists and is no model file, so it is not replaced: give another name' \
        bmc-convert "$(folder llama-bias)" -o notes.txt
    assert_equal "$(cat notes.txt)" important
    : >empty.bmc
    ok bmc-convert "$(folder llama-bias)" -o empty.bmc
    ok bmc-convert "$(folder llama-bias)" -o empty.bmc
}

@test "a full disk while a snapshot is written costs no result of that forward pass, nor text generated so far" {
    gen() { bmc-gen -q -m "$(model grimm)" "$@"; }
    for id in 1 2 3 4 5 6; do
        jq -nc --argjson id $id '{id: $id, prompt: "Once upon a time", n: (if $id < 5 then 6 else 60 end)}'
    done >in
    limited() { (ulimit -f 200 && gen --jsonl -b 6 --ignore-eos --save-kv k.kv -f in | cat && exit "${PIPESTATUS[0]}"); }
    run --separate-stderr limited
    assert_equal "$status" 1
    assert_equal "$stderr" "bmc-gen: k.kv: cannot write: File too large"
    assert_equal "$(jq -c '[.id, .finish, (.ids | length), (.text | length > 0)]' <<<"$output")" '[1,"length",6,true]
[2,"length",6,true]
[3,"length",6,true]
[4,"length",6,true]
[5,"error",6,true]
[6,"error",6,true]'
    assert_equal "$(jq -r 'select(.id > 4).error' <<<"$output" | sort -u)" "the run ended: ${stderr#bmc-gen: }"
}
