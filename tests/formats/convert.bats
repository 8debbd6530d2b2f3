# bmc-convert: converting, describing and verifying model files; outputs are complete or absent.
load ../helper

setup_file() {
    for name in grimm andersen llama-bias llama-2-like llama-3-like qwen2-like; do model "$name" >/dev/null; done
}

info() { bmc-convert --info --format json "$1"; }

# Tensors of a folder, from the headers of all its safetensors files.
source_tensors() { # FOLDER
    for file in "$1"/*.safetensors; do
        tail -c +9 "$file" | head -c "$(number_at "$file" 0 8)"
    done | jq -s 'add | del(.__metadata__)'
}

bytes_of() { # FILE TENSOR
    read -r offset bytes < <(info "$1" | jq -r --arg n "$2" '.rows[] | select(.name == $n) | "\(.offset) \(.bytes)"')
    tail -c +$((offset + 1)) "$1" | head -c "$bytes"
}

# unpacked FILE TENSOR: the 4-byte words of a packed matrix in row order, in hexadecimal, a row a line (bmc-model(5)).
# The rows must be whole words.
unpacked() {
    local out words
    read -r out words < <(info "$1" | jq -r --arg n "$2" '.rows[] | select(.name == $n)
        | (.shape | split("x") | map(tonumber)) as [$out, $in] | "\($out) \($in * (if .type == "f32" then 4 else 2 end) / 4)"')
    bytes_of "$1" "$2" | od -An -v -w64 -tx4 |
        awk -v out="$out" -v words="$words" -v line=$(($(info "$1" | jq -r --arg n "$2" '.rows[] | select(.name == $n)
            | (.padded | split("x")[1] | tonumber) * (if .type == "f32" then 4 else 2 end) / 4'))) '
            { for (i = 1; i <= 16; i++) row[i] = row[i] " " $i }
            NR % line == 0 {
                for (i = 1; i <= 16; i++) {
                    if (++n <= out) print substr(row[i], 2, 9 * words - 1)
                    row[i] = ""
                }
            }'
}

# words_at FILE OFFSET ROWS WORDS: the same of rows in a source file.
words_at() { tail -c +$(($2 + 1)) "$1" | head -c $(($3 * $4 * 4)) | od -An -v -w$(($4 * 4)) -tx4 | sed 's/^ //'; }

# ---- description ----

@test "--info --format json describes the source's tensors" {
    for name in grimm andersen llama-bias llama-2-like llama-3-like qwen2-like; do
        info "$(model $name)" >info.json
        source_tensors "$(folder $name)" >source.json
        # Failed conditions are reported by name. Matrices are packed in blocks of 16 x 32, except look-up tables.
        ok jq -r --slurpfile sources source.json --argjson size "$(stat -c %s "$(model $name)")" '
            def up($n): (. + $n - 1) / $n | floor * $n;
            def numbers: split("x") | map(tonumber);
            $sources[0] as $source | .tied_head as $tied | {
                "a row for each tensor, and one for a tied head":
                    ((.rows | length) == ($source | length) + (if $source | has("lm_head.weight") then 0 else 1 end)),
                "the same shapes, as often":
                    ((.rows | map(select(.name != "head.weight") | .shape) | sort) ==
                        ($source | del(."lm_head.weight") | map(.shape | map(tostring) | join("x")) | sort)),
                "tensors on pages, up to the end of the file":
                    ((.rows | all(.offset % 4096 == 0 and .bytes > 0)) and .file_bytes == (.rows | map(.offset + .bytes) | max)),
                "ids": ((.model_id | test("^[0-9a-f]{64}$")) and (.file_id | test("^[0-9a-f]{64}$"))),
                "version": (.version == 5),
                "size of the file": (.file_bytes == $size),
                "bytes of a tensor": (.rows | all(.bytes == (if .type == "f32" then 4 else 2 end) * (.padded | numbers | .[0] * (.[1] // 1)))),
                "layout": (.rows | all(
                    (if (.shape | test("x")) and .name != "position.weight" and (.name != "embed.weight" or $tied) then
                        ["packed", (.shape | numbers | [.[0] | up(16)] + [.[1] | up(32)] | map(tostring) | join("x"))]
                    else ["rows", .shape] end) == [.layout, .padded])),
            } | if length == 8 then to_entries[] else error("checks are lost") end | select(.value | not) | .key' info.json
        assert_output ''
    done
}

# The hash of a tensor's bytes in hexadecimal; above 64 KiB, the hash of the hashes of 64 KiB blocks.
stored_hash() {
    cat >stored
    if [ "$(stat -c %s stored)" -le 65536 ]; then
        b2sum -l 256 <stored
    else
        split -b 64K --filter 'b2sum -l 256' stored | cut -c -64 | tr -d '\n' | tr a-f A-F | basenc -d --base16 | b2sum -l 256
    fi | cut -d ' ' -f 1
}

@test "hashes of header and tensors are BLAKE2b-256, in blocks of 64 KiB" {
    file=$(model llama-3-like)
    info "$file" >info.json
    jq -r '.rows[] | "\(.name) \(.blake2b)"' info.json >hashes
    [ "$(wc -l <hashes)" -ge 20 ]
    while read -r name hash; do
        assert_equal "$name $(bytes_of "$file" "$name" | stored_hash)" "$name $hash"
    done <hashes
    cp "$file" copy.bmc
    reseal copy.bmc
    equal_files copy.bmc "$file"
    size=$(number_at "$file" 16 8)
    assert_equal "$({ head -c 32 "$file"; head -c 32 /dev/zero; head -c "$size" "$file" | tail -c +65; } | b2sum -l 256 | cut -d ' ' -f 1)" "$(jq -r .file_id info.json)"
}

@test "--info: configuration, in every format" {
    jq -e '.family == "llama" and .layers == 8 and .hidden == 256 and .heads == 8 and .kv_heads == 2 and .ffn == 704 and .vocab == 4096
        and .context == 1024 and .weight_type == "bf16" and .eos == [2]' < <(info "$(model grimm)")
    assert_equal "$(info "$(model llama-3-like)" | jq -c '[.eos, .rope_scaling, .rope_factor, .tied_head]')" '[[404,405],"llama3",8,false]'
    for format in table md csv jsonl; do
        ok bmc-convert --info --format $format "$(model llama-bias)"
        assert_equal "$(grep -c 'layer.*q.weight\|[01]\.q\.weight' <<<"$output")" 2
    done
    ok bmc-convert --info "$(model grimm)"
    assert_output --regexp 'model_id +[0-9a-f]{64}'
    assert_output --regexp 'head.weight +bf16'
    ok bmc-convert --info --format csv "$(model grimm)"
    assert_equal "${lines[0]}" 'name,type,source,bits,layout,shape,padded,offset,bytes,blake2b'
}

@test "a tied head is one tensor with two names" {
    for name in grimm qwen2-like; do
        assert_equal "$(info "$(model $name)" | jq '[.rows[] | select(.name == "head.weight" or .name == "embed.weight") | .offset] | unique | length')" 1
        assert_equal "$(info "$(model $name)" | jq '[.rows[] | select(.name == "head.weight" or .name == "embed.weight")] | length')" 2
    done
    assert_equal "$(info "$(model llama-3-like)" | jq '[.rows[] | select(.name == "head.weight" or .name == "embed.weight") | .offset] | unique | length')" 2
}

@test "--verify: success, or the name of the damaged tensor" {
    for name in grimm llama-bias; do
        ok bmc-convert --verify "$(model $name)"
        assert_output "$(model $name): ok"
    done
    info "$(model llama-bias)" | jq -r '.rows[] | "\(.name) \(.offset) \(.bytes)"' >tensors
    while read -r name offset bytes; do
        cp "$(model llama-bias)" bad.bmc
        flip bad.bmc $((offset + bytes * 2 / 3))
        expect_error 1 "^bmc-convert: bad\\.bmc: .*\"$name\"" bmc-convert --verify bad.bmc
    done < <(sed -n '1p;5p;$p' tensors)
    # First and last byte count, too; the padding between tensors does not.
    read -r name offset bytes < <(sed -n 3p tensors)
    for at in 0 $((bytes - 1)); do
        cp "$(model llama-bias)" bad.bmc
        flip bad.bmc $((offset + at))
        expect_error 1 "\"$name\"" bmc-convert --verify -t 2 bad.bmc
    done
}

# ---- conversion ----

@test "the same input gives the same bytes; the name of the output does not matter" {
    bmc-convert "$(folder llama-3-like)" -o a.bmc
    bmc-convert -t 1 --output=b.bmc "$(folder llama-3-like)/"
    equal_files a.bmc b.bmc
    equal_files a.bmc "$(model llama-3-like)"
    assert_equal "$(info a.bmc | jq -r .model_id)" "$(info "$(model llama-3-like)" | jq -r .model_id)"
    refute [ "$(info a.bmc | jq -r .model_id)" = "$(info "$(model qwen2-like)" | jq -r .model_id)" ]
    assert_folder a.bmc b.bmc
    assert_equal "$(stat -c %a a.bmc)" "$(printf '%o' $((0666 & ~$(umask))))"
}

@test "bf16 and f32 sources are stored bit by bit, packed or in rows" {
    # MODEL TYPE TENSOR LAYOUT SOURCE-FILE SOURCE-TENSOR ROWS WORDS-A-ROW
    while read -r name type tensor layout file from rows words; do
        file=$(folder "$name")/$file
        words_at "$file" "$(safetensors_at "$file" "$from")" "$rows" "$words" >want
        if [ "$layout" = packed ]; then
            unpacked "$(model "$name")" "$tensor" >got
        else
            bytes_of "$(model "$name")" "$tensor" >raw
            words_at raw 0 "$rows" "$words" >got
        fi
        equal_files got want
        assert_equal "$(wc -l <got)" "$rows"
        assert_equal "$(info "$(model "$name")" | jq -r --arg n "$tensor" '.weight_type, (.rows[] | select(.name == $n) | .layout)' | xargs)" "$type $layout"
    done <<'END'
grimm bf16 embed.weight packed model.safetensors model.embed_tokens.weight 4096 128
grimm bf16 layers.7.down.weight packed model.safetensors model.layers.7.mlp.down_proj.weight 256 352
qwen2-like f32 embed.weight packed model.safetensors model.embed_tokens.weight 416 32
qwen2-like f32 layers.1.down.weight packed model.safetensors model.layers.1.mlp.down_proj.weight 32 64
llama-2-like bf16 embed.weight rows model.safetensors model.embed_tokens.weight 489 24
llama-2-like bf16 layers.1.gate.weight packed model.safetensors model.layers.1.mlp.gate_proj.weight 96 24
llama-2-like bf16 head.weight packed model.safetensors lm_head.weight 489 24
END
}

@test "model_id is stable: new configuration keys and layouts do not change it" {
    assert_equal "$(info "$(model grimm)" | jq -r .model_id)" 962f5e41d07e370a5a0f4d77b8cb83b0975cb5f6b99b8d0b0fe6f4c28fd81d52
}

@test "--type: the source's type, or f32, bf16 or f16" {
    # SOURCE TYPE -> type of matrices. Vectors are f32 always.
    while read -r name type want; do
        bmc-convert "$(folder "$name")" --type "$type" -o out.bmc
        info out.bmc >info.json
        assert_equal "$name $type $(jq -r '.rows | [map(select(.shape | test("x"))), map(select(.shape | test("x") | not))] |
            map(map(.type) | unique | join(" ")) | join(", ")' info.json)" "$name $type $want, f32"
        ok bmc-convert --verify out.bmc
        ok bmc-gen -q -m out.bmc -p "$(reference_text "$name" 0 prompt)" --ids -n 1
        [ "$want" = bf16 ] && [ "$name" != grimm ] || assert_output "$(greedy_ids "$name" 0 1)"
    done <<'END'
llama-bias auto f16
llama-bias f16 f16
llama-bias f32 f32
llama-bias bf16 bf16
grimm auto bf16
grimm f32 f32
grimm bf16 bf16
qwen2-like auto f32
qwen2-like f32 f32
qwen2-like bf16 bf16
END
}

@test "bf16 is rounded to nearest even, f16 is kept or converted exactly" {
    # The first weights of two models, replaced by numbers with known neighbours.
    cp -r "$(folder qwen2-like)" f32
    printf '\x00\x80\x80\x3f\x01\x80\x80\x3f\x00\x80\x81\x3f\xff\x7f\x80\xbf' | patch f32/model.safetensors "$(safetensors_at f32/model.safetensors model.embed_tokens.weight)"
    bmc-convert f32 --type bf16 -o out.bmc
    assert_equal "$(unpacked out.bmc embed.weight | head -n 1 | cut -c -17)" '3f813f80 bf803f82'
    cp -r "$(folder llama-bias)" f16
    # 1, -2, the smallest normal and subnormal numbers, -0, the largest number
    printf '\x00\x3c\x00\xc0\x00\x04\x01\x00\x00\x80\xff\x7b' | patch f16/model.safetensors "$(safetensors_at f16/model.safetensors model.embed_tokens.weight)"
    bmc-convert f16 -o out.bmc
    assert_equal "$(bytes_of out.bmc embed.weight | head -c 12 | od -An -v -w12 -tx2)" ' 3c00 c000 0400 0001 8000 7bff'
    bmc-convert f16 --type f32 -o out.bmc
    assert_equal "$(bytes_of out.bmc embed.weight | head -c 24 | od -An -v -w24 -tx4)" ' 3f800000 c0000000 38800000 33800000 80000000 477fe000'
}

@test "tensor names with and without the leading model." {
    cp -r "$(folder llama-bias)" plain
    edit_safetensors plain/model.safetensors 'with_entries(.key |= sub("^model\\."; ""))'
    bmc-convert plain -o plain.bmc
    equal_files plain.bmc "$(model llama-bias)"
}

@test "a sharded source gives the same model as a single file" {
    # The shards merged into one file, with adjusted offsets.
    cp -r "$(folder llama-3-like)" one
    rm one/*.safetensors*
    moved='{}' base=0
    : >data
    for file in "$(folder llama-3-like)"/*.safetensors; do
        size=$(number_at "$file" 0 8)
        moved=$(tail -c +9 "$file" | head -c "$size" | jq -c --argjson all "$moved" --argjson base $base \
            'del(.__metadata__) | map_values(.data_offsets |= map(. + $base)) | $all + .')
        tail -c +$((9 + size)) "$file" >>data
        base=$(stat -c %s data)
    done
    { bytes_le 8 ${#moved}; printf '%s' "$moved"; cat data; } >one/model.safetensors
    bmc-convert one -o one.bmc
    equal_files one.bmc "$(model llama-3-like)"
}

@test "--family selects a family file, --models-dir their folder" {
    bmc-convert --family "$ROOT/models.d/families/llama.family" "$(folder llama-bias)" -o a.bmc
    equal_files a.bmc "$(model llama-bias)"
    cp -r "$ROOT/models.d/families" families
    bmc-convert --models-dir . "$(folder llama-bias)" -o a.bmc
    equal_files a.bmc "$(model llama-bias)"
    rm families/llama.family
    expect_error 1 'LlamaForCausalLM' bmc-convert --models-dir . "$(folder llama-bias)" -o b.bmc
    assert_folder a.bmc families
}

# ---- outputs ----

@test "standard output and a FIFO receive the same bytes as a file" {
    want=$(model llama-3-like)
    source=$(folder llama-3-like)
    bmc-convert "$source" -o - | cat >piped
    equal_files piped "$want"
    bmc-convert "$source" -o - >redirected
    equal_files redirected "$want"
    { printf 'before'; bmc-convert "$source" -o -; } >appended
    tail -c +7 appended | cmp - "$want"
    mkfifo fifo
    cat fifo >got &
    bmc-convert "$source" -o fifo
    wait $!
    equal_files got "$want"
    [ -p fifo ]
    bmc-convert "$source" -o /dev/null
    [ -c /dev/null ]
    assert_folder appended fifo got piped redirected
}

@test "/dev/full stays a device, and is an error" {
    [ -c /dev/full ]
    ls -l /dev/full >before
    expect_error 1 '/dev/full: .*No space left' bmc-convert "$(folder llama-bias)" -o /dev/full
    ls -l /dev/full >after
    sed -i 's/[A-Z][a-z][a-z] .*:.. / /' before after
    equal_files before after
    assert_folder after before
    for job in "--info $(model grimm)" "--verify $(model grimm)" --help --version; do
        run --separate-stderr bash -c "'$BMC_BIN/bmc-convert' $job >/dev/full"
        assert_equal "$status" 1
        [[ $stderr =~ ^bmc-convert:\ cannot\ write\ to\ standard\ output(:\ No\ space\ left\ on\ device)?$ ]] || fail "$job: $stderr"
    done
    run --separate-stderr bash -c "'$BMC_BIN/bmc-convert' '$(folder llama-bias)' -o - >/dev/full"
    assert_equal "$status" 1
    [[ $stderr != *$'\n'* && $stderr =~ 'No space left' ]] || fail "$stderr"
}

@test "a file size limit leaves no output, and the old file unchanged" {
    echo BMCMODEL old >out.bmc
    for blocks in 1 100 1000; do
        expect_error 1 'out.bmc: .*File too large' limited $blocks
        assert_equal "$(cat out.bmc)" "BMCMODEL old"
        assert_folder out.bmc
    done
}
limited() { ( ulimit -f "$1" && bmc-convert "$(folder grimm-draft)" -o out.bmc); }

@test "a full file system leaves no output, and the old file unchanged" {
    unshare -m true 2>/dev/null || skip "no file system can be mounted here"
    mkdir small
    run --separate-stderr unshare -m bash -c "
        mount -t tmpfs -o size=128k none small || exit 77
        echo BMCMODEL old >small/out.bmc
        '$BMC_BIN/bmc-convert' '$(folder llama-bias)' -o small/out.bmc
        echo \"status \$?\"; ls -A small; cat small/out.bmc"
    [ "$status" -ne 77 ] || skip "no file system can be mounted here"
    assert_output $'status 1\nout.bmc\nBMCMODEL old'
    assert_equal "${#stderr_lines[@]}" 1
    [[ $stderr =~ ^bmc-convert:\ small/out.bmc:\ .*No\ space\ left ]]
}

@test "an existing output is replaced atomically" {
    echo BMCMODEL old >out.bmc
    ln out.bmc link
    bmc-convert "$(folder llama-bias)" -o out.bmc
    assert_equal "$(cat link)" "BMCMODEL old"
    equal_files out.bmc "$(model llama-bias)"
    # A failed conversion leaves the old one.
    cp -r "$(folder qwen2-like)" broken
    truncate -s -4 broken/model.safetensors
    expect_error 1 'broken/model.safetensors' bmc-convert broken -o out.bmc
    equal_files out.bmc "$(model llama-bias)"
    # So does one that fails at the last tensor.
    cp -r "$(folder qwen2-like)" nan
    printf '\x00\x00\xc0\x7f' | patch nan/model.safetensors $(($(stat -c %s nan/model.safetensors) - 4))
    expect_error 1 'NaN' bmc-convert nan -o out.bmc
    equal_files out.bmc "$(model llama-bias)"
    assert_folder broken link nan out.bmc
}

# Starts a large conversion and interrupts it by a signal.
interrupt() { # SIGNAL
    env --default-signal=INT,TERM,HUP "$BMC_BIN/bmc-convert" --synth opt-1.3b -o big.bmc 2>err &
    pid=$!
    begun() { compgen -G 'big.bmc*' >/dev/null; }
    wait_until begun
    kill "-$1" $pid
    code=0
    wait $pid || code=$?
}

@test "SIGTERM, SIGHUP and SIGINT leave nothing behind" {
    for signal in TERM:143 HUP:129 INT:130; do
        # A limit in case it does not stop.
        ulimit -f 600000
        interrupt ${signal%:*}
        assert_equal "$signal ends with $code" "$signal ends with ${signal#*:}"
        assert_folder err
        assert_equal "$(cat err)" ''
    done
}

# ---- synthetic models ----

@test "--synth: equal seeds give equal files, others do not" {
    tiny_shape tiny.shape
    bmc-convert --synth ./tiny.shape -o a.bmc
    bmc-convert --synth ./tiny.shape --seed 0 -t 1 -o b.bmc
    bmc-convert --synth "$PWD/tiny.shape" -s 1 -o c.bmc
    equal_files a.bmc b.bmc
    refute cmp -s a.bmc c.bmc
    refute [ "$(info a.bmc | jq -r .model_id)" = "$(info c.bmc | jq -r .model_id)" ]
    ok bmc-convert --verify c.bmc
    ok bmc-gen -q -m a.bmc -p 'abc' -n 5 --ids --ignore-eos
    assert_equal "$(wc -w <<<"$output")" 5
}

@test "a shape file can be given by path" {
    tiny_shape tiny.shape
    bmc-convert --synth ./tiny.shape -o a.bmc
    bmc-convert --synth tiny.shape -o b.bmc
    equal_files a.bmc b.bmc
}

@test "synthetic weights are N(0, 0.02); gains are 1, biases 0" {
    # 300 x 64 numbers: the mean's own deviation is 0.00014, that of the deviation 0.0001.
    tiny_shape tiny.shape family opt
    sed -i '/^kv_heads\|^norm_eps/d' tiny.shape
    bmc-convert --synth ./tiny.shape --type f32 -o a.bmc
    for tensor in embed.weight $(info a.bmc | jq -r '[.rows[] | select(.name | test("q.weight|down.weight|up.weight|fc")) | .name][0:2][]'); do
        bytes_of a.bmc $tensor | od -An -v -w4 -tf4 >numbers
        awk '{ n++; s += $1; q += $1 * $1; if ($1 > -0.02 && $1 < 0.02) near++; if ($1 > 0.06 || $1 < -0.06) far++; if ($1 > 0.1 || $1 < -0.1) absurd++ }
            END {
                mean = s / n; sd = sqrt(q / n - mean * mean); e = 0.02 / sqrt(n)
                print n, mean, sd, near / n, far / n
                exit !(n > 4000 && mean < 5 * e && mean > -5 * e && sd > 0.02 - 4 * e && sd < 0.02 + 4 * e &&
                    near / n > 0.66 && near / n < 0.70 && far / n > 0.0005 && far / n < 0.006 && !absurd)
            }' numbers
    done
    # Neighbours and tensors are not copies of each other.
    [ "$(sort -u numbers | wc -l)" -gt $(($(wc -l <numbers) * 8 / 10)) ]
    refute cmp -s <(bytes_of a.bmc "$(info a.bmc | jq -r '[.rows[] | select(.name | test("q.weight")) | .name][0]')") \
        <(bytes_of a.bmc "$(info a.bmc | jq -r '[.rows[] | select(.name | test("q.weight")) | .name][1]')")
    for pair in norm.weight:1 bias:0; do
        info a.bmc | jq -r --arg k "${pair%:*}" '.rows[] | select(.name | endswith($k)) | .name' >tensors
        [ "$(wc -l <tensors)" -ge 3 ]
        for tensor in $(cat tensors); do
            assert_equal "$tensor $(bytes_of a.bmc "$tensor" | od -An -v -w4 -tf4 | tr -d ' ' | sort -u)" "$tensor ${pair#*:}"
        done
    done
}

@test "a synthetic vocabulary of 128,256, and one with a tokenizer" {
    tiny_shape big.shape hidden 16 heads 2 ffn 16 layers 1 vocab 128256 eos 128001
    bmc-convert --synth ./big.shape -o big.bmc
    assert_equal "$(info big.bmc | jq -c '[.vocab, .eos, .weight_type]')" '[128256,[128001],"bf16"]'
    ok bmc-gen -q -m big.bmc -p 'Once' -n 8 --ids --temp 1 --seed 1
    assert_equal "$(wc -w <<<"$output")" 8
    for id in $output; do [ "$id" -lt 128256 ]; done
    expect_error 1 '128256' bmc-gen -q -m big.bmc --prompt-ids 128256 -n 1
    tiny_shape grimm.shape vocab 4096 eos 2
    bmc-convert --synth ./grimm.shape --tokenizer "$(folder grimm)" -o with.bmc
    ok bmc-gen -q -m with.bmc --tokenize -p 'Once upon a time' --format jsonl
    assert_equal "$(jq -c .ids <<<"$output")" "$(jq -c '.cases[0].prompt_ids' "$(reference grimm)")"
    # A shape with too few rows for its ids gets more.
    tiny_shape small.shape
    bmc-convert --synth ./small.shape --tokenizer "$(folder grimm)" -o grown.bmc
    assert_equal "$(info grown.bmc | jq .vocab)" 4096
    assert_folder big.bmc big.shape grimm.shape grown.bmc small.shape with.bmc
}

@test "every shape by its name, and its number of parameters" {
    # The sizes that their names promise, in millions, by the published models. All weights are drawn before the first byte.
    while read -r shape low high; do
        [ "$BMC_FULL" = 1 ] || [ "$shape" = tinyllama-draft-55m ] || [ "$shape" = opt-125m ] || continue
        run --separate-stderr timeout 60 bash -c "'$BMC_BIN/bmc-convert' --synth $shape -o - | head -c 1000000 >head"
        [ "$(head -c 8 head)" = BMCMODEL ] || fail "$shape"
        file_bytes=$(number_at head 24 8)
        [ $((file_bytes / 2000000)) -ge "$low" ] && [ $((file_bytes / 2000000)) -le "$high" ] || fail "$shape: $file_bytes bytes"
    done <<'END'
opt-125m 124 128
opt-350m 330 335
tinyllama-draft-55m 50 60
END
    for shape in opt-{125m,350m,1.3b,2.7b,6.7b,13b,30b,66b} llama-2-{7b,13b,70b} llama-3-{8b,70b} qwen2-7b tinyllama-1.1b tinyllama-draft-55m; do
        [ -f "$ROOT/models.d/shapes/$shape.shape" ] || fail "$shape"
    done
}
