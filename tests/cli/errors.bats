# Errors: one clear line, the right exit code, and no incomplete files.
load ../helper

setup_file() {
    for name in grimm grimm-draft llama-bias qwen2-like; do model "$name" >/dev/null; done
}

# A small model in ./tiny.bmc, to be damaged.
make_tiny() {
    tiny_shape tiny.shape
    bmc-convert --synth ./tiny.shape -o tiny.bmc
    rm tiny.shape
}

# A model folder to be spoiled: copy NAME FOLDER
copy() { cp -r "$(folder "$1")" "$2"; }

# The folder ./bad cannot be converted, and existing files stay unchanged.
refused() { # REGEX OPTION..
    local pattern=$1
    shift
    echo BMCMODEL old >out.bmc
    expect_error 1 "$pattern" bmc-convert bad -o out.bmc "$@"
    assert_equal "$(cat out.bmc)" "BMCMODEL old"
    rm out.bmc
    expect_error 1 "$pattern" bmc-convert bad -o out.bmc "$@"
    assert_folder bad
}

edit_json() { # FILE JQ-PROGRAM
    jq "$2" "$1" >edited
    mv edited "$1"
}

# ---- command lines ----

@test "wrong usage of bmc-gen: exit 2" {
    m=$(model grimm-draft)
    expect_error 2 '--no-such-option' bmc-gen --no-such-option
    expect_error 2 '-z' bmc-gen -z
    expect_error 2 '-mx' bmc-gen -mx
    expect_error 2 '-n: needs a whole number, -1 or more; found "-2"' bmc-gen -m "$m" -p x -n -2
    expect_error 2 '--predict: needs a whole number, -1 or more; found "-2"' bmc-gen -m "$m" -p x --predict=-2
    for value in x '' 1.5 1x ' 1' 0x10 1e3 99999999999999999999 --; do
        expect_error 2 '-n' bmc-gen -m "$m" -p x -n "$value"
    done
    for option in -t -tb -b --chunk; do
        expect_error 2 "^bmc-gen: $option: needs .*; found \"0\"" bmc-gen -m "$m" -p x $option 0
        expect_error 2 "^bmc-gen: $option: needs .*; found \"-1\"" bmc-gen -m "$m" -p x $option -1
        expect_error 2 "^bmc-gen: $option: needs .*; found \"999999999\"" bmc-gen -m "$m" -p x $option 999999999
    done
    expect_error 2 '-c' bmc-gen -m "$m" -p x -c -1
    for value in x nan inf '' 1,5; do expect_error 2 '--temp' bmc-gen -m "$m" -p x --temp "$value"; done
    expect_error 2 '--top-p' bmc-gen -m "$m" -p x --top-p 1.5
    expect_error 2 '--top-p' bmc-gen -m "$m" -p x --top-p -0.5
    expect_error 2 '--min-p' bmc-gen -m "$m" -p x --min-p 2
    expect_error 2 '--top-k' bmc-gen -m "$m" -p x --top-k -1
    expect_error 2 '--repeat-penalty' bmc-gen -m "$m" -p x --repeat-penalty 0
    expect_error 2 '--repeat-last-n' bmc-gen -m "$m" -p x --repeat-last-n -2
    expect_error 2 '--seed' bmc-gen -m "$m" -p x --seed -2
    expect_error 2 '--format.*xml.*table' bmc-gen -m "$m" -p x --tokenize --format xml
    expect_error 2 '--cache-type.*f64.*f32' bmc-gen -m "$m" -p x --cache-type f64
    expect_error 2 '--cache-type: "q8:scales=x" has shared scales, which only bmc-gen, bmc-spec and bmc-prof quality use' "$BMC_BIN/bmc-prof" bench --cache-type q8:scales=x
    expect_error 2 '--attend.*all.*padded' bmc-gen -m "$m" -p x --attend all
    expect_error 2 '-n needs a value' bmc-gen -m "$m" -p x -n
    expect_error 2 '--quiet takes no value' bmc-gen -m "$m" -p x --quiet=yes
    expect_error 2 'unexpected "Once"' bmc-gen -m "$m" Once upon a time
    expect_error 2 '--rerank has no use for --temp, --top-k and --predict: leave them out' bmc-gen -m "$m" --rerank -n 2 --temp 1 --top-k 3
    expect_error 2 '--isa chooses kernels of the CPU: leave --backend opencl out' bmc-gen -m "$m" -p x --backend opencl --isa ref
    expect_error 2 '"siz=4G" is none of size=BYTES and states=TOKENS' bmc-gen -m "$m" -p x --prefix-cache d,siz=4G
    expect_error 2 'a divergence of 0 or more is expected' bmc-gen -m "$m" -p x --cache-kld x
    expect_error 2 'kv-pressure foo: "foo" is no step' "$BMC_BIN/bmc-serve" -m "$m" --kv-pressure foo
    expect_error 2 '--lora: the name is empty' bmc-gen -m "$m" -p x --lora ''
    expect_error 2 'exclude' bmc-gen -m "$m" -p x -f y
    expect_error 2 'exclude' bmc-gen -m "$m" -p x --prompt-ids 5
    expect_error 2 'exclude' bmc-gen -m "$m" --score --tokenize
    expect_error 2 'exclude' bmc-gen -m "$m" --jsonl --tokenize
    expect_error 2 '--jsonl' bmc-gen -m "$m" --jsonl -p x
    expect_error 2 '--jsonl' bmc-gen -m "$m" --unordered -p x
    expect_error 2 '--jsonl' bmc-gen -m "$m" --logprobs 3 -p x
    expect_error 2 '--echo' bmc-gen -m "$m" --jsonl --echo
}

@test "unknown policies, backends and instruction sets: exit 2, with the known ones" {
    m=$(model grimm-draft)
    for value in nosuch '' bmc:T=0 bmc:r=0 bmc:T= bmc:T=x bmc:T=-1 bmc: bmc:T bmc:q=4 bmc:T=4,r=2 BMC upfront:T=4 iterative:r=1 bmc:T=99999999999999999999; do
        expect_error 2 "cache policy \"$value\"" bmc-gen -q -m "$m" -p x -n 1 --kv "$value"
    done
    expect_error 2 '"nosuch".*bmc.*iterative' bmc-gen -q -m "$m" -p x -n 1 --kv nosuch
    expect_error 2 '"nosuch".*blas' bmc-gen -q -m "$m" -p x -n 1 --attn nosuch
    expect_error 2 '"nosuch".*ref' bmc-gen -q -m "$m" -p x -n 1 --isa nosuch
    expect_error 2 '--isa: the name is empty' bmc-gen -q -m "$m" -p x -n 1 --isa ''
    expect_error 2 '--precision: the name is empty' bmc-gen -q -m "$m" -p x -n 1 --precision ''
    expect_error 2 '^bmc-gen: --isa: did you mean ref\? \([^)]*"reff"[^)]*\) \(see' bmc-gen -q -m "$m" -p x -n 1 --isa reff
    expect_error 2 '^bmc-gen: --precision: did you mean f32\? \(precision "fp32" is unknown; ' bmc-gen -q -m "$m" -p x -n 1 --precision fp32
    expect_error 2 '^bmc-gen: --kv: did you mean bmc\? \(cache policy "bmm" is unknown' bmc-gen -q -m "$m" -p x -n 1 --kv bmm
    # The wrong part of a value is named, and a name like it is suggested.
    while read -r option value why; do
        expect_error 2 "$why" bmc-gen -q -m "$m" -p x -n 1 $option $value
    done <<'END'
--kv shift:S=64,sink=4 "sink=4" is no parameter of it; did you mean sinks=\? \(S=ROWS
--kv bmc:zork=4 "zork=4" is no parameter of it \(T=COUNT or r=ROWS
--kv bmc:T=0 "T=0" is not accepted \(T=COUNT or r=ROWS
--kv headwise:ram=1G,rum=2 "rum=2" is no parameter of it; did you mean ram=\?
--cache-type k=q4,w=q8 cache type "k=q4,w=q8": "w=q8" is expected to be k=TYPE or v=TYPE
--cache-type w=q4 "w=q4" is expected to be k=TYPE or v=TYPE
--cache-type k=q9 cache type "q9" is unknown; there are
--cache-type qq8 --cache-type: did you mean q8\? \("qq8" is none of f32
END
    ok bmc-gen -q -m "$m" -p x -n 1 --isa REF --precision F32 --attn Fused --alloc MMAP
}

@test "an instruction set that the CPU lacks is not an unknown one" {
    sets=$(bmc-gen --help | sed -n '/--isa SET/,/default/p' | tr -s ' \n' ' ' | sed 's/.*instruction set: //; s/ (default.*//; s/,\| or//g')
    usable=$(bmc-gen --version)
    for set in $sets; do
        [[ $usable =~ [\ ,]$set([,\ \)]|$) ]] || lacking=$set
    done
    [ -n "${lacking-}" ] || skip "this CPU has all"
    expect_error 2 "^bmc-gen: this CPU does not support the instruction set \"$lacking\"" bmc-gen -q -p x -n 1 --isa "$lacking"
    export BMC_ISA=$lacking
    expect_error 1 "^bmc-gen: BMC_ISA: this CPU does not support the instruction set \"$lacking\"" bmc-gen -q -m "$(model grimm-draft)" -p x -n 1
}

@test "empty values, and values that are too long, are shown as such" {
    m=$(model grimm-draft)
    expect_error 2 '--model: the name is empty' bmc-gen -m '' -p x
    expect_error 2 '--load-kv: the name is empty' bmc-gen -m "$m" --load-kv '' -p x
    expect_error 2 '--cpu-mask "": is no mask' bmc-gen -m "$m" -p x --cpu-mask ''
    expect_error 2 '--cpu-mask "0": names no core' bmc-gen -m "$m" -p x --cpu-mask 0
    expect_error 2 '--cpu-mask "x1{60}\.\.": is no mask' bmc-gen -m "$m" -p x --cpu-mask "x$(printf '1%.0s' {1..80})"
    for word in distribute isolate numactl; do
        expect_error 2 "unexpected \"$word\": --numa takes no value; " bmc-gen -m "$m" -p x --numa $word
        expect_error 2 "unexpected \"$word\": --numa takes no value; " bmc-tune -m "$m" --numa $word
        expect_error 2 "unexpected \"$word\": a prompt is given with -p" bmc-gen -m "$m" -p x $word
    done
}

@test "an unknown BMC_ISA is reported" {
    export BMC_ISA=nosuch
    expect_error 1 '"nosuch".*ref' bmc-gen -q -m "$(model grimm-draft)" -p x -n 1
    # An option goes before it.
    ok bmc-gen -q -m "$(model grimm-draft)" -p x -n 1 --isa ref
}

@test "wrong usage of bmc-convert: exit 2" {
    expect_error 2 'exactly one' bmc-convert
    expect_error 2 'exactly one' bmc-convert a b -o c
    expect_error 2 '-o' bmc-convert "$(folder grimm)"
    expect_error 2 '--synth' bmc-convert a --synth opt-125m -o c
    expect_error 2 'exclude' bmc-convert --info --verify a
    expect_error 2 '-o' bmc-convert --info a -o b
    expect_error 2 '--type.*f32.*bf16' bmc-convert a -o b --type q3
    expect_error 2 '--seed' bmc-convert --synth opt-125m -o b --seed -1
    expect_error 2 '--no-such' bmc-convert --no-such
    expect_error 2 '--format' bmc-convert --info a --format yaml
    expect_error 2 '-o needs a value' bmc-convert a -o
    assert_folder
}

# ---- prompts ----

@test "prompts that cannot be continued" {
    m=$(model grimm)
    expect_error 1 'empty' bmc-gen -q -m "$m" -p ''
    expect_error 1 'empty' bmc-gen -q -m "$m" </dev/null
    expect_error 1 'empty' bmc-gen -q -m "$m" --prompt-ids ''
    expect_error 1 'UTF-8 at byte 3 ' bmc-gen -q -m "$m" -p $'abc\xff'
    printf 'cut \xe2\x82' >cut
    expect_error 1 'UTF-8 at byte 4 ' bmc-gen -q -m "$m" -f cut
    expect_error 1 'UTF-8' bmc-gen -q -m "$m" <cut
    expect_error 1 'UTF-8' bmc-gen -q -m "$m" --score <cut
    printf 'fine\n\xc0\xaf\n' >second
    run --separate-stderr bmc-gen -q -m "$m" --tokenize --format jsonl -f second
    assert_equal "$status" 1
    [[ $stderr =~ ^bmc-gen:\ line\ 2:\ .*UTF-8 ]]
    printf '\xed\xa0\x80' >surrogate
    expect_error 1 'UTF-8' bmc-gen -q -m "$m" -f surrogate
    yes king | head -n 1100 >long
    expect_error 1 '1024' bmc-gen -q -m "$m" -f long
    expect_error 1 'the prompt has 4 tokens, the context holds 3' bmc-gen -q -m "$m" -p 'Once upon a time' -c 3
    expect_error 1 '1025.*1024' bmc-gen -q -m "$m" -p x -c 1025
    expect_error 1 '4096' bmc-gen -q -m "$m" --prompt-ids '5 4096'
    expect_error 2 '"x"' bmc-gen -q -m "$m" --prompt-ids '5 x'
    expect_error 2 '"-1"' bmc-gen -q -m "$m" --prompt-ids '-1'
    for ids in 1,,2:2 ,1:1 1,2,:3 '[1, , 2]:2' '[1, 2,]:3' '1 2,, 3:3' ,:1; do
        expect_error 2 "--prompt-ids: entry ${ids#*:} is empty: expected ids separated by single commas" \
            bmc-gen -q -m "$m" --prompt-ids "${ids%:*}"
        expect_error 1 "entry ${ids#*:} is empty" bmc-gen -q -m "$m" --detokenize -p "${ids%:*}"
    done
    for ids in 5,9 '5 , 9' '[5, 9]' '[5,9][]'; do
        ok bmc-gen -q -m "$m" --detokenize -p "$ids"
        assert_equal "$output" "$(bmc-gen -q -m "$m" --detokenize -p '5 9')"
    done
    for list in 1,,2:2 ,1:1 1,2,:3 ,:1; do
        expect_error 2 "--layers: entry ${list#*:} of \"${list%:*}\" is empty" bmc-gen -p x --parallelism pipeline --layers "${list%:*}"
    done
    expect_error 1 'line 1: .*"x"' bmc-gen -q -m "$m" --detokenize <<<'5 x'
    expect_error 1 '4096' bmc-gen -q -m "$m" --detokenize <<<4096
    expect_error 1 'none: .*No such file' bmc-gen -q -m "$m" -f none
    expect_error 1 'none: .*No such file' bmc-gen -q -m "$m" --jsonl -f none
    expect_error 1 '\.: ' bmc-gen -q -m "$m" -f .
    expect_error 1 'none/s.json: ' bash -c "'$BMC_BIN/bmc-gen' -q -m '$m' -p x -n 1 --stats none/s.json >/dev/null"
    assert_folder cut long second surrogate
}

@test "a batch that exceeds memory" {
    sanitized && skip "AddressSanitizer does not allow limits"
    beyond() { ( ulimit -v 300000 && bmc-gen -q -m "$(model grimm)" "$@" ); }
    ok beyond -p x -n 1 -t 1
    expect_error 1 'memory' beyond -p x -n 1 -t 1 -b 65536 --kv upfront
    jq -nc 'range(400) | {ids: [5], n: 20}' >in
    run --separate-stderr beyond --jsonl -b 400 --kv upfront -t 1 <in
    assert_equal "$status" 1
    [[ $stderr =~ ^bmc-gen:\ .*memory ]]
    [[ $stderr != *$'\n'* ]]
}

# ---- model files ----

@test "files that are not models" {
    gen() { bmc-gen -q -m "$1" -p x -n 1; }
    expect_error 1 'none.bmc: .*No such file' gen none.bmc
    expect_error 1 'folder.*bmc-convert' gen "$(folder grimm)"
    : >empty
    echo 'some text that is no model' >text
    for command in gen 'bmc-convert --info' 'bmc-convert --verify'; do
        expect_error 1 'empty: .*\.bmc' $command empty
        expect_error 1 'text: .*\.bmc' $command text
        expect_error 1 '/dev/null: ' $command /dev/null
        expect_error 1 'none: .*No such file' $command none
    done
    mkfifo fifo
    expect_error 1 'fifo: .*regular file' timeout 30 "$BMC_BIN/bmc-gen" -q -m fifo -p x
    expect_error 1 'model.safetensors: ' gen "$(folder grimm)/model.safetensors"
}

@test "a truncated model file, at many lengths" {
    make_tiny
    size=$(stat -c %s tiny.bmc)
    header=$(number_at tiny.bmc 16 8)
    for length in 0 1 7 8 9 63 64 255 256 257 1000 4095 4096 $((header - 1)) $header $((header + 1)) $((header + 4096)) $((size / 2)) $((size - 4096)) $((size - 1)); do
        head -c "$length" tiny.bmc >cut.bmc
        expect_error 1 'cut.bmc: ' bmc-gen -q -m cut.bmc -p x -n 1
        expect_error 1 'cut.bmc: ' bmc-convert --verify cut.bmc
    done
    expect_error 1 "cut.bmc: has $((size - 1)) bytes, its header says $size: truncated or damaged; copy or convert it again" bmc-gen -q -m cut.bmc -p x -n 1
    { cat tiny.bmc; echo; } >cut.bmc
    expect_error 1 "cut.bmc: has $((size + 1)) bytes, its header says $size: something was appended, or it is damaged; copy or convert it again" bmc-gen -q -m cut.bmc -p x -n 1
}

@test "a flipped byte of the header, every 256th, of its head every 16th; with BMC_FULL=1 4 times as many" {
    make_tiny
    seed=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$seed" >&3
    if [ "$BMC_FULL" = 1 ]; then step=64; else step=256; fi
    header=$(number_at tiny.bmc 16 8)
    read -ra byte < <(od -An -v -tu1 -w"$header" -N "$header" tiny.bmc)
    cp tiny.bmc bad.bmc
    for at in $(seq $((seed % (step / 16))) $((step / 16)) 255) $(seq $((256 + seed % step)) $step $((header - 1))) $((header - 1)); do
        bytes_le 1 $((byte[at] ^ 1)) | patch bad.bmc "$at"
        expect_error 1 'bad.bmc: ' bmc-convert --info bad.bmc
        bytes_le 1 "${byte[at]}" | patch bad.bmc "$at"
    done
    equal_files bad.bmc tiny.bmc
    flip bad.bmc 300
    expect_error 1 'bad.bmc: .*hash' bmc-gen -q -m bad.bmc -p x -n 1
}

@test "wrong magic, unsupported version" {
    make_tiny
    cp tiny.bmc bad.bmc
    printf 'GGUF' | patch bad.bmc 0
    expect_error 1 'bad.bmc: GGUF version .* is unsupported' bmc-gen -q -m bad.bmc -p x -n 1
    printf 'BMCM0DEL' | patch bad.bmc 0
    expect_error 1 'bad.bmc: .*BMCMODEL' bmc-gen -q -m bad.bmc -p x -n 1
    for version in 0 4 6 4294967295; do
        cp tiny.bmc bad.bmc
        bytes_le 4 $version | patch bad.bmc 8
        reseal bad.bmc
        expect_error 1 "bad.bmc: .*version $version.*convert again" bmc-gen -q -m bad.bmc -p x -n 1
    done
}

# spoil OFFSET BYTES NUMBER REGEX: an inconsistent number in the header, with a valid hash.
spoil() {
    cp tiny.bmc bad.bmc
    bytes_le "$2" "$3" | patch bad.bmc "$1"
    reseal bad.bmc
    expect_error 1 "bad.bmc: .*$4" bmc-gen -q -m bad.bmc -p x -n 1
    expect_error 1 "bad.bmc: .*$4" bmc-convert --info bad.bmc
}

@test "inconsistent headers with a valid hash" {
    make_tiny
    size=$(stat -c %s tiny.bmc)
    header=$(number_at tiny.bmc 16 8)
    cp tiny.bmc same.bmc
    reseal same.bmc
    equal_files same.bmc tiny.bmc
    # Sections: offset and bytes of configuration, tokenizer, tensors, names, text.
    for section in 0 1 2 3 4; do
        at=$((96 + 16 * section))
        for lie in 0 1 64 $((header + 64)) -64; do
            [ "$section" -lt 2 ] || [ "$lie" != 64 ] || continue
            cp tiny.bmc bad.bmc
            bytes_le 8 $lie | patch bad.bmc $at
            reseal bad.bmc
            expect_error 1 'bad.bmc' bmc-gen -q -m bad.bmc -p x -n 1
        done
        for lie in "$header" -1; do spoil $((at + 8)) 8 $lie ''; done
    done
    # Tensor 2 of the table: 192 bytes each.
    at=$(($(number_at tiny.bmc 128 8) + 2 * 192))
    offset=$(number_at tiny.bmc $((at + 80)) 8)
    spoil $at 4 9 'tensor 2'                            # type
    spoil $((at + 4)) 4 9 'tensor 2'                    # layout
    spoil $((at + 4)) 4 0 '"layers.0.q.weight" has layout "rows", expected "packed"; convert the model again'
    spoil $((at - 2 * 192 + 4)) 4 1 'tensor 0 has the wrong padding for layout "packed"' # 300 rows
    spoil $((at - 192 + 4)) 4 1 'tensor 1 has the wrong padding for layout "packed"' # a vector
    spoil $((at + 8)) 4 3 'tensor 2 has the wrong padding'
    spoil $((at + 8)) 4 0 'tensor 2'                    # dimensions
    spoil $((at + 8)) 4 5 'tensor 2'
    spoil $((at + 16)) 8 0 'tensor 2'                   # shape
    spoil $((at + 16)) 8 4611686018427387904 'tensor 2'
    spoil $((at + 48)) 8 4611686018427387904 'tensor 2' # padded shape
    spoil $((at + 48)) 8 80 'tensor 2 has the wrong padding for layout "packed"'
    spoil $((at + 56)) 8 96 'tensor 2 has the wrong padding for layout "packed"'
    spoil $((at - 192 + 48)) 8 80 'tensor 1 has the wrong padding for layout "rows"'
    spoil $((at + 16)) 8 -1 'tensor 2'
    spoil $((at + 80)) 8 $((offset + 64)) 'tensor 2'    # offset: alignment
    spoil $((at + 80)) 8 $((size / 4096 * 4096 + 4096)) 'tensor 2.*outside'
    spoil $((at + 80)) 8 -4096 'tensor 2.*outside'
    spoil $((at + 80)) 8 0 'tensor 2.*outside'          # in the header
    spoil $((at + 80)) 8 "$(number_at tiny.bmc $((at - 192 + 80)) 8)" 'tensors 1 and 2 overlap'
    spoil $((at + 88)) 8 8 'tensor 2'                   # bytes
    spoil $((at + 88)) 8 -1 'tensor 2'
    # An unknown tensor name, and one beyond the text.
    names=$(number_at tiny.bmc 144 8)
    spoil "$names" 4 9999 'name 0'
    spoil $((names + 4)) 4 999999 'name 0'
    spoil $((names + 8)) 4 -1 'name 0'
    # Header and file size.
    spoil 16 8 $((header + 4096)) ''
    spoil 24 8 $((size + 1)) 'truncated'
}

@test "an inconsistent configuration with a valid hash" {
    make_tiny
    config=$(number_at tiny.bmc 96 8)
    # Of the same length, so that offsets stay.
    change() { # FROM TO REGEX
        cp tiny.bmc bad.bmc
        text=$(tail -c +$((config + 1)) tiny.bmc | head -c "$(number_at tiny.bmc 104 8)" | sed "s/^$1\$/$2/")
        printf '%s\n' "$text" | patch bad.bmc "$config"
        refute cmp -s tiny.bmc bad.bmc
        reseal bad.bmc
        expect_error 1 "bad.bmc.*$3" bmc-gen -q -m bad.bmc -p x -n 1
    }
    change 'layers 2' 'layers 0' layers
    change 'layers 2' 'layers 3' 'layer'
    change 'layers 2' 'layers x' layers
    change 'hidden 64' 'hidden 65' ''
    change 'heads 4' 'heads 3' heads
    change 'kv_heads 2' 'kv_heads 0' kv_heads
    change 'vocab 300' 'vocab 301' ''
    change 'vocab 300' 'vocab 200' ''
    change 'norm rms' 'norm abc' norm
    change 'position rope' 'position ropa' position
    change 'context 128' 'context 000' context
}

@test "an unreadable file" {
    cp "$(model grimm-draft)" secret.bmc
    chmod 000 secret.bmc
    if [ -r secret.bmc ]; then
        # Root can read everything unless it drops that capability.
        without="setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search"
        $without cat secret.bmc >/dev/null 2>&1 && skip "nothing is unreadable here"
        $without true || skip "nothing is unreadable here"
    fi
    expect_error 1 'secret.bmc: .*Permission denied' ${without:-} "$BMC_BIN/bmc-gen" -q -m secret.bmc -p x -n 1
    expect_error 1 'secret.bmc: .*Permission denied' ${without:-} "$BMC_BIN/bmc-convert" --verify secret.bmc
}

# ---- model folders ----

@test "sources of other kinds: what to do" {
    expect_error 1 'nowhere: ' bmc-convert nowhere -o out.bmc
    mkdir bad
    refused 'bad: .*config.json'
    copy llama-bias bad/x
    mv bad/x/* bad/
    rmdir bad/x
    rm bad/model.safetensors
    refused 'contains neither model.safetensors nor pytorch_model.bin, nor an index'
    echo PK >bad/pytorch_model.bin
    refused 'pytorch_model.bin: not a PyTorch checkpoint'
    rm -r bad
    copy llama-bias bad
    rm bad/tokenizer.json
    refused 'tokenizer.json'
    echo x >bad/tokenizer.model
    refused 'tokenizer.model: not a SentencePiece model'
    rm -r bad
    printf 'GGUF\3\0\0\0' >bad
    refused 'ends within its header'
    printf 'PK\3\4' >bad
    refused 'PyTorch checkpoint.*pass its folder'
    echo text >bad
    refused 'folder'
}

@test "config.json: malformed, inconsistent, or with unsupported features" {
    change() { # JQ-PROGRAM REGEX
        rm -rf bad
        copy llama-bias bad
        edit_json bad/config.json "$1"
        refused "$2"
    }
    change '.architectures = ["NoSuchForCausalLM"]' 'config.json: .*"NoSuchForCausalLM" is unknown; families in .* are bailing-moe2, bamba, bert, bitnet, bloom, .*, gemma, .* and [1-9][0-9]* others; to add one, write a family file'
    change 'del(.architectures)' 'config.json: .*architecture'
    change '.architectures = 5' 'config.json: .*architecture'
    change '[.]' 'config.json: .*object'
    change 'del(.hidden_size)' 'hidden_size'
    change '.hidden_size = "many"' 'hidden'
    change '.hidden_size = 0' 'hidden'
    change '.hidden_size = -32' 'hidden'
    change '.num_hidden_layers = 3' 'layers\.2\.'
    change '.num_hidden_layers = 100000' 'layers'
    change '.num_key_value_heads = 3' 'heads'
    change '.intermediate_size = 81' '\[81\]'
    change '.vocab_size = 381' '\[381\]'
    change '.vocab_size = 10' ''
    change '.hidden_act = "swoosh"' 'activation.*swoosh.*silu'
    change '.rope_scaling.rope_type = "cubic"' 'cubic.*linear'
    change '.max_position_embeddings = 0' ''
    rm -rf bad
    copy llama-bias bad
    rm bad/generation_config.json
    edit_json bad/config.json '.eos_token_id = 380'
    refused 'eos_token_id'
    for text in '' '{' 'no JSON' '{"architectures":["LlamaForCausalLM"],'; do
        printf '%s' "$text" >bad/config.json
        refused 'bad/config.json'
    done
}

@test "tokenizer.json: damaged, or of unsupported kinds" {
    change() {
        rm -rf bad
        copy llama-bias bad
        edit_json bad/tokenizer.json "$1"
        refused "bad/tokenizer.json: .*$2"
    }
    change '.model.type = "WordPiece"' WordPiece
    change '.normalizer = {type: "Nmt"}' Nmt
    change '.pre_tokenizer = {type: "Whitespace"}' Whitespace
    change '.decoder = {type: "CTC"}' CTC
    change '.post_processor = {type: "BertProcessing", sep: ["a", 1], cls: ["b", 2]}' BertProcessing
    change 'del(.model)' model
    change '.model.vocab |= with_entries(.value += 1000)' ''
    change '.model.merges[0] = "nosuch merge"' ''
    printf '{"model":' >bad/tokenizer.json
    refused 'bad/tokenizer.json'
}

@test "weights that are damaged or do not fit" {
    change() { # JQ-PROGRAM REGEX
        rm -rf bad
        copy llama-bias bad
        edit_safetensors bad/model.safetensors "$1"
        refused "bad.*$2"
    }
    q=model.layers.0.self_attn.q_proj.weight o=model.layers.0.self_attn.o_proj.weight
    change ".[\"$q\"].data_offsets |= map(. + 10000000)" "\"$q\".*truncated"
    change ".[\"$q\"] |= (.shape[0] = 320000 | .data_offsets[1] = .data_offsets[0] + 320000 * 64)" "\"$q\".*truncated"
    change ".[\"$q\"].data_offsets = .[\"$o\"].data_offsets" "\"($q|$o)\" and \"($q|$o)\" overlap"
    change ".[\"$q\"].data_offsets |= map(. + 2)" "\"$q\".*overlap|overlap.*\"$q\""
    change ".[\"$q\"].data_offsets |= [.[1], .[0]]" "\"$q\""
    change ".[\"$q\"].data_offsets = [-64, 1984]" "\"$q\""
    change ".[\"$q\"].data_offsets = \"x\"" "\"$q\""
    change ".[\"$q\"].data_offsets[1] -= 2" "\"$q\".*shape"
    change ".[\"$q\"].shape = [64, 16]" "\"$q\".*\\[64\\]\\[16\\].*\\[32\\]\\[32\\]"
    change ".[\"$q\"].shape = [4611686018427387904, 4]" "\"$q\""
    change ".[\"$q\"].shape = [1024]" "\"$q\""
    change ".[\"$q\"].dtype = \"F12\"" "\"$q\".*F12"
    change ".[\"$q\"].dtype = \"I16\"" "\"$q\".*I16"
    change "del(.[\"$q\"])" "\"$q\""
    change '[.]' 'model.safetensors: '
    rm -rf bad
    copy llama-bias bad
    for length in 0 7 8 100 5000 $(($(stat -c %s bad/model.safetensors) - 1)); do
        head -c "$length" "$(folder llama-bias)/model.safetensors" >bad/model.safetensors
        refused 'bad/model.safetensors: '
    done
    for size in 0 -1 100000000000 1; do
        cp "$(folder llama-bias)/model.safetensors" bad/model.safetensors
        bytes_le 8 $size | patch bad/model.safetensors 0
        refused 'bad/model.safetensors: '
    done
}

@test "weights that are NaN or infinite, in every type of source" {
    # Little-endian NaN, infinity and minus infinity, at two positions of a tensor.
    while read -r name tensor size nan inf minus; do
        for value in "$nan" "$inf" "$minus"; do
            for place in 0 1001; do
                rm -rf bad
                copy "$name" bad
                printf '%b' "$value" | patch bad/model.safetensors $(($(safetensors_at bad/model.safetensors $tensor) + place * size))
                refused "\"$tensor\".*(NaN|infinite)"
                refused "\"$tensor\".*(NaN|infinite)" --type bf16
            done
        done
    done <<'END'
llama-bias model.embed_tokens.weight 2 \x01\x7e \x00\x7c \x00\xfc
qwen2-like model.embed_tokens.weight 4 \x00\x00\xc0\x7f \x00\x00\x80\x7f \x00\x00\x80\xff
opt-nobias decoder.embed_tokens.weight 2 \xc0\x7f \x80\x7f \x80\xff
END
}

@test "a weight that is too large for bf16 is refused only there" {
    copy qwen2-like bad
    printf '\xff\xff\x7f\x7f' | patch bad/model.safetensors "$(safetensors_at bad/model.safetensors model.embed_tokens.weight)"
    refused 'model.embed_tokens.weight.*too large for bf16; use --type f32$' --type bf16
    ok bmc-convert bad -o out.bmc
}

@test "shards that are missing or outside the folder" {
    change() {
        rm -rf bad
        copy llama-3-like bad
        edit_json bad/model.safetensors.index.json "$1"
        refused "bad.*$2"
    }
    change '.weight_map["lm_head.weight"] = "none.safetensors"' 'none.safetensors'
    change '.weight_map["lm_head.weight"] = "../../etc/passwd"' 'lm_head.weight'
    change '.weight_map["lm_head.weight"] = 5' 'lm_head.weight'
    change 'del(.weight_map)' weight_map
    rm -rf bad
    copy llama-3-like bad
    rm bad/model-00002-of-00003.safetensors
    refused 'model-00002-of-00003.safetensors'
    printf '{' >bad/model.safetensors.index.json
    refused 'model.safetensors.index.json'
}

@test "missing shape files and output folders" {
    expect_error 1 'nosuch' bmc-convert --synth nosuch -o out.bmc
    expect_error 1 './none.shape' bmc-convert --synth ./none.shape -o out.bmc
    expect_error 1 'none/out.bmc: .*No such file' bmc-convert "$(folder llama-bias)" -o none/out.bmc
    expect_error 1 'folder' bmc-convert "$(folder llama-bias)" -o .
    expect_error 2 '^bmc-convert: --output: the name is empty' bmc-convert "$(folder llama-bias)" -o ''
    expect_error 1 'none.family' bmc-convert "$(folder llama-bias)" --family none.family -o out.bmc
    expect_error 1 'none' bmc-convert "$(folder llama-bias)" --models-dir none -o out.bmc
    expect_error 1 'none' bmc-convert --synth opt-125m --tokenizer none -o out.bmc
    assert_folder
    for line in 'layers 0' 'hidden x' 'heads 3' 'family nosuch' 'head_dim 15'; do
        tiny_shape bad.shape "${line% *}" "${line#* }"
        expect_error 1 "bad.shape|${line#* }" bmc-convert --synth ./bad.shape -o out.bmc
    done
    assert_folder bad.shape
}

@test "small limits of the system: the run goes on, or ends with a sentence" {
    sanitized && skip "AddressSanitizer needs more memory"
    m=$(model llama-3-like)
    for limit in '-s 64' '-n 8' '-f 0' '-v 40000' '-u 1'; do
        for command in "bmc-gen -q -m $m -p Once -n 2 -t 3 --stats s" "bmc-spec -q -m $m --lookup -p Once -n 2" "bmc-convert --verify $m" "bmc-prof bench -m $m -p 4 -n 2 -r 1 --megabytes 1"; do
            # through a pipe, since -f 0 is for standard error in a file, too
            run_plain bash -c "(ulimit $limit && exec timeout 60 '$BMC_BIN/'$command) 2>&1 | cat; exit \${PIPESTATUS[0]}"
            [ "$status" -eq 0 ] || [[ $status -eq 1 && ${lines[-1]} =~ ^bmc-[a-z]*:\  ]] || fail "$limit, $command: $status $output"
        done
    done
    # a user who may not raise the limit; nesting, which takes stack
    other=''
    [ "$(id -u)" != 0 ] || other='setpriv --reuid 2222 --regid 2222 --clear-groups'
    if [ -z "$other" ] || $other test -x "$BMC_BIN/bmc-gen"; then
        expect_error 1 '^bmc-gen: the stack is limited to 64 KiB, 1024 are needed' bash -c "ulimit -s 64 && exec $other '$BMC_BIN/bmc-gen' -q -p x -n 1"
    fi
    deep() { yes "$1" | head -n 5000 | tr -d '\n'; }
    jq -nc --arg open "$(deep '[')" '{prompt: "x", n: 1}, {prompt: "x", n: 1, regex: ($open | gsub("\\["; "("))}, {prompt: "x", n: 1, grammar: ("root ::= " + ($open | gsub("\\["; "(")))}' >in
    echo "{\"messages\":$(deep '[')" >>in
    run_plain bash -c "ulimit -s 1024 && exec '$BMC_BIN/bmc-gen' -q -m '$m' --jsonl --lenient -f in"
    [ "$status" -eq 1 ] || fail "$status $stderr"
    assert_equal "$(wc -l <<<"$output")" 4
    for nest in "$(deep '{{ (')" "$(deep '{% if a %}')" "{{ $(deep '[') }}" "{{ $(deep 'not ') }}"; do
        echo "$nest" >deep.jinja
        run_plain bash -c "ulimit -s 1024 && exec '$BMC_BIN/bmc-gen' -q -m '$m' --chat --chat-template deep.jinja -p x -n 1"
        [[ $status -eq 1 && $stderr =~ ^bmc-gen:\  ]] || fail "${nest:0:20}: $status $stderr"
    done
}
