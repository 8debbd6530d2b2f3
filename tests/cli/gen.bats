# bmc-gen: plain generation, scoring, tokenizing, statistics. Expected values are from the fixtures' reference files, or
# computed by hand beside the check.
load ../helper

setup_file() {
    for name in grimm andersen llama-3-like llama-2-like qwen2-like; do model "$name" >/dev/null; done
}

once='Once upon a time'

# Generated ids of the reference's first case.
once_ids() { bmc-gen -q -m "$(model grimm)" -p "$once" --ids "$@"; }

# Statistics of the reference's first case: 4 prompt tokens, N = 16, so 12 tokens in 1 + 11 forward passes.
stats_of() { # JQ-PROGRAM OPTION..
    local program=$1
    shift
    ok bmc-gen --no-spec -q -m "$(model grimm)" -p "$once" -n 12 -c 16 --ignore-eos --stats stats.json "$@"
    ok jq -c "$program" stats.json
}

# ---- text ----

@test "greedy text equals the reference, followed by one newline" {
    for name in grimm andersen; do
        for i in 0 1 2 3; do
            bmc-gen -q -m "$(model $name)" -p "$(reference_text $name $i prompt)" -n 64 --ignore-eos --precision f32 >out 2>err
            { reference_text $name $i greedy_text; echo; } >expected
            equal_files out expected
            assert_equal "$(cat err)" ''
        done
    done
}

@test "greedy ids equal the reference" {
    for name in grimm andersen llama-3-like llama-2-like qwen2-like; do
        ok bmc-gen -q -m "$(model $name)" -p "$(reference_text $name 0 prompt)" -n 40 --ignore-eos --ids --precision f32
        assert_output "$(greedy_ids $name 0 40)"
    done
}

@test "-n: number of tokens; 0 prints only the newline" {
    for n in 1 2 7; do
        ok once_ids -n $n
        assert_output "$(greedy_ids grimm 0 $n)"
    done
    bmc-gen -q -m "$(model grimm)" -p "$once" -n 0 >out
    assert_equal "$(od -An -c out | tr -d ' ')" '\n'
}

@test "--echo prints the prompt before the text, with --ids as ids" {
    bmc-gen -q -m "$(model grimm)" -p "$once" -n 20 --echo >out
    bmc-gen -q -m "$(model grimm)" -p "$once" -n 20 >plain
    { printf '%s' "$once"; cat plain; } >expected
    equal_files out expected
    ok once_ids -n 5 --echo
    assert_output "$(jq -r '.cases[0].prompt_ids | map(tostring) | join(" ")' "$(reference grimm)") $(greedy_ids grimm 0 5)"
    bmc-gen -q -m "$(model grimm)" -p "$once" -n 0 --echo >out
    assert_equal "$(cat out)" "$once"
}

@test "--prompt-ids: the prompt as ids, without BOS" {
    for name in grimm llama-3-like; do
        ids=$(jq -r '.cases[1].prompt_ids | map(tostring) | join(" ")' "$(reference $name)")
        ok bmc-gen -q -m "$(model $name)" --prompt-ids "$ids" -n 20 --ignore-eos --ids
        assert_output "$(greedy_ids $name 1 20)"
    done
}

@test "the prompt is read from -p, -f, standard input or -f -, without one trailing newline" {
    expected=$(greedy_ids grimm 0 12)
    printf '%s' "$once" >plain
    printf '%s\n' "$once" >line
    printf '%s\n\n' "$once" >two
    for file in plain line; do
        ok once_ids -n 12 -p "$once"
        assert_output "$expected"
        ok bmc-gen -q -m "$(model grimm)" -f $file -n 12 --ids
        assert_output "$expected"
        ok bmc-gen -q -m "$(model grimm)" -n 12 --ids <$file
        assert_output "$expected"
        ok bmc-gen -q -m "$(model grimm)" -f - -n 12 --ids <$file
        assert_output "$expected"
    done
    # A second newline belongs to the prompt, as does one in -p.
    prefill_tokens() { bmc-gen -q -m "$(model grimm)" -n 0 --stats stats.json "$@" >/dev/null && jq .prefill_tokens stats.json; }
    assert_equal "$(prefill_tokens -p "$once")" 4
    assert_equal "$(prefill_tokens -f line)" 4
    assert_equal "$(prefill_tokens -f two)" 5
    assert_equal "$(prefill_tokens -p "$once"$'\n')" 5
}

@test "-e processes escapes in -p and --stop; without it they are plain text" {
    ids() { bmc-gen -q -m "$(model grimm)" -n 0 --echo --ids "$@"; }
    assert_equal "$(ids -e -p 'a\n\tb\x41\\\"')" "$(ids -p $'a\n\tbA\\"')"
    assert_equal "$(ids -e -p '\xc3\xa4')" "$(ids -p 'ä')"
    refute [ "$(ids -p 'a\nb')" = "$(ids -p $'a\nb')" ]
    # The text of the second case has a newline after "to me.'".
    bmc-gen -q -m "$(model grimm)" -p "$(reference_text grimm 1 prompt)" -n 64 -e --stop '\nThe King' >out
    { reference_text grimm 1 greedy_text | sed -n '1p'; } >expected
    equal_files out expected
}

@test "--stop ends the text before the stop string, across token boundaries too" {
    text=$(reference_text grimm 0 greedy_text)
    for stop in 'king' "the king's s" 'e n' ', and the'; do
        ok bmc-gen -q -m "$(model grimm)" -p "$once" -n 64 --stop "$stop"
        assert_equal "$output" "${text%%"$stop"*}"
    done
    ok bmc-gen -q -m "$(model grimm)" -p "$once" -n 64 --stop 'palace' --stop 'sitting' -r 'no such text'
    assert_equal "$output" "${text%%sitting*}"
    ok bmc-gen -q -m "$(model grimm)" -p "$once" -n 64 --stop 'no such text'
    assert_equal "$output" "$text"
}

@test "EOS ends the text unless --ignore-eos" {
    # Token 25 of this case is the second of the model's two EOS ids.
    prompt=$(reference_text llama-3-like 1 prompt)
    at=$(jq '.cases[1].greedy_ids | index(405)' "$(reference llama-3-like)")
    ok bmc-gen -q -m "$(model llama-3-like)" -p "$prompt" -n 40 --ids
    assert_output "$(greedy_ids llama-3-like 1 "$at")"
    ok bmc-gen -q -m "$(model llama-3-like)" -p "$prompt" -n 40 --ids --ignore-eos
    assert_output "$(greedy_ids llama-3-like 1 40)"
}

@test "without -m the default model is used" {
    ok bmc-gen -q -p "$once" -n 12 --ids
    assert_output "$(greedy_ids grimm 0 12)"
}

@test "streamed text consists of whole characters and is complete" {
    cat >packets.pl <<'END'
# Each write of the program arrives as one packet.
use Socket;
socketpair(my $in, my $out, AF_UNIX, SOCK_SEQPACKET, 0) or die;
my $child = fork // die;
if (!$child) { open STDOUT, '>&', $out; close $in; exec @ARGV; die; }
close $out;
my ($all, $n) = ('', 0);
while (sysread $in, my $packet, 65536) {
    my $copy = $packet;
    utf8::decode($copy) or die "half a character in packet $n\n";
    $all .= $packet;
    $n++;
}
waitpid $child, 0;
print STDERR "$n packets, status $?\n";
print $all;
END
    for name in llama-2-like llama-3-like qwen2-like; do
        for i in 0 1 2; do
            prompt=$(reference_text $name $i prompt)
            perl packets.pl "$BMC_BIN/bmc-gen" -q -m "$(model $name)" -p "$prompt" -n 40 --ignore-eos >out 2>err
            [[ $(cat err) =~ ^([0-9]+)' packets, status 0'$ ]]
            [ "${BASH_REMATCH[1]}" -ge 5 ]
            jq -nc --arg p "$prompt" '{prompt: $p, n: 40}' >in
            bmc-gen -q -m "$(model $name)" --jsonl --ignore-eos <in | jq -r .text >expected
            equal_files out expected
        done
    done
}

@test "text is valid UTF-8 for any number of tokens" {
    prompt=$(reference_text llama-2-like 2 prompt)
    for n in {1..40}; do
        bmc-gen -q -m "$(model llama-2-like)" -p "$prompt" -n $n --ignore-eos >out
        iconv -f UTF-8 -t UTF-8 out >/dev/null
    done
    # Stray bytes of this random model appear as U+FFFD.
    grep -q $'\xef\xbf\xbd' out
}

# ---- sampling ----

@test "a seed reproduces its text; another seed gives another text" {
    one=$(once_ids -n 30 --temp 1 --seed 1)
    assert_equal "$(once_ids -n 30 --temp 1 --seed 1)" "$one"
    refute [ "$(once_ids -n 30 --temp 1 --seed 2)" = "$one" ]
    refute [ "$(greedy_ids grimm 0 30)" = "$one" ]
    # The default is 0; -1 draws a seed, which --stats reports.
    assert_equal "$(once_ids -n 30 --temp 1)" "$(once_ids -n 30 --temp 1 -s 0)"
    drawn=$(once_ids -n 30 --temp 1 --seed -1 --stats stats.json)
    assert_equal "$(once_ids -n 30 --temp 1 --seed "$(jq .seed stats.json)")" "$drawn"
}

@test "sampled tokens do not depend on threads or batch size" {
    jq -nc --arg p "$once" 'range(5) | {prompt: $p, n: 20}' >in
    sample() { bmc-gen -q -m "$(model grimm)" --jsonl --temp 1 --seed 7 "$@" <in | jq -c .ids; }
    expected=$(sample -b 1 -t 1)
    for options in '-b 1 -t 2' '-b 2 -t 1' '-b 3 -t 2' '-b 8 -t 1 --chunk 3' '-b 5 --kv iterative'; do
        # shellcheck disable=SC2086
        assert_equal "$(sample $options)" "$expected"
    done
    # Lines with the same prompt and seed differ, as the line number selects the stream. A single prompt is line 0.
    assert_equal "$(sort -u <<<"$expected" | wc -l)" 5
    assert_equal "[$(once_ids -n 20 --temp 1 --seed 7 | tr ' ' ,)]" "$(head -n 1 <<<"$expected")"
}

@test "samplers that leave one candidate are greedy" {
    expected=$(greedy_ids grimm 0 30)
    for options in '--temp 0' '--temp 1 --top-k 1' '--temp 1 --top-p 0' '--temp 1 --top-p 1e-9' '--temp 1 --min-p 1' '--temp 1e-6'; do
        # shellcheck disable=SC2086
        ok once_ids -n 30 --seed 3 $options
        assert_output "$expected"
    done
}

@test "a high repeat penalty prevents repeated tokens within --repeat-last-n" {
    ok once_ids -n 40 --repeat-penalty 1000 --repeat-last-n -1 --ignore-eos
    assert_equal "$(tr ' ' '\n' <<<"$output" | sort -u | wc -l)" 40
    ok once_ids -n 40 --repeat-penalty 1000 --repeat-last-n 0 --ignore-eos
    assert_output "$(greedy_ids grimm 0 40)"
}

@test "--logprobs: chosen and most likely ids match the reference's logits" {
    for name in llama-2-like qwen2-like; do
        jq -c '.cases[] | {prompt, n: 1}' "$(reference $name)" >in
        ok bmc-gen -q -m "$(model $name)" --jsonl --logprobs 10 --ignore-eos --precision f32 <in
        jq -nc --slurpfile got <(echo "$output") --slurpfile want "$(reference $name)" '
            $want[0].cases | to_entries[] | .key as $i | .value as $c
            | ($c.first_step_logits | max) as $max
            | ($c.first_step_logits | map(. - $max | exp) | add | log + $max) as $norm
            | $got[$i].logprobs[0] as $token
            | [$token.id == $c.greedy_ids[0],
               ($token.top | length) == 10,
               ($token.top | map(.id)) == ($c.first_step_top10 | map(.[0])),
               ($token.logprob - $token.top[0].logprob | fabs) < 1e-6,
               ([range(10)] | all($token.top[.].logprob - ($c.first_step_top10[.][1] - $norm) | fabs < 1e-3))]
        ' >checks
        assert_equal "$(sort -u checks)" '[true,true,true,true,true]'
    done
}

# ---- context ----

@test "a full context ends the text" {
    cut() { # success, and one line that says it
        run --separate-stderr "$@"
        assert_success
        assert_equal "$stderr" "bmc-gen: the text was cut: the context of $3 tokens is full; -c takes up to 1024"
    }
    cut once_ids -c 16 --ignore-eos
    assert_output "$(greedy_ids grimm 0 12)"
    cut once_ids -c 16 -n 100 --ignore-eos
    assert_output "$(greedy_ids grimm 0 12)"
    # A prompt that fills the context leaves no room for text.
    cut once_ids -c 4
    assert_output ''
    cut once_ids -c 5
    assert_output "$(greedy_ids grimm 0 1)"
}

@test "-c defaults to the model's context, at most the larger of 4096 and prompt + n" {
    context() { bmc-gen -q --stats stats.json --ids "$@" >/dev/null && jq .N stats.json; }
    assert_equal "$(context -m "$(model grimm)" -p x -n 1)" 1024
    assert_equal "$(context -m "$(model grimm)" -p x -n 1 -c 0)" 1024
    tiny_shape long.shape layers 1 hidden 8 heads 1 kv_heads 1 ffn 8 context 8192
    bmc-convert --synth ./long.shape -o long.bmc
    assert_equal "$(context -m long.bmc --prompt-ids '1 2 3' -n 1)" 4096
    assert_equal "$(context -m long.bmc --prompt-ids '1 2 3' -n 1 -c 0)" 8192
    assert_equal "$(context -m long.bmc --prompt-ids "$(seq -s ' ' 200 -1 1) $(yes 5 | head -n 4300 | paste -sd ' ')" -n 2)" 4502
    assert_equal "$(context -m long.bmc --prompt-ids "$(yes 5 | head -n 8190 | paste -sd ' ')" -n 100)" 8192
}

# ---- kernels ----

# A field of --stats of the first case, which must still equal the reference.
kernel_stats() { # FIELD OPTION..
    ok bmc-gen -q -m "$(model grimm)" -p "$(reference_text grimm 0 prompt)" -n 12 --ignore-eos --ids --stats stats.json "${@:2}"
    assert_equal "$output" "$(greedy_ids grimm 0 12)"
    ok jq -r "$1" stats.json
}

@test "--precision: every value runs and is reported; an unknown one lists the three" {
    for precision in f32 bf16 bf16x2; do
        kernel_stats .precision --precision $precision
        assert_output $precision
    done
    for value in nosuch f16; do
        expect_error 2 "precision \"$value\".*f32, bf16, bf16x2" bmc-gen -q -m "$(model grimm)" -p x -n 1 --precision $value
    done
    # Their results differ.
    for precision in f32 bf16 bf16x2; do
        kernel_stats .logits_hash --precision $precision
        echo "$output" >>hashes
    done
    assert_equal "$(sort -u hashes | wc -l)" 3
}

@test "--isa and BMC_ISA select every usable kernel set; --version lists them and the one in use" {
    [ "$(isas | wc -w)" -ge 2 ]
    for isa in $(isas); do
        kernel_stats .isa --isa "$isa"
        assert_output "$isa"
        BMC_ISA=${isa^^} kernel_stats .isa
        assert_output "$isa"
        BMC_ISA=$isa ok bmc-gen --version
        assert_line --regexp "^isa: +$isa; usable: .*\b$isa\b"
    done
}

@test "the default kernel set is the fastest by the profile's rates; --version, --stats and snapshots name it" {
    [ "$(isas | wc -w)" -ge 3 ]
    for isa in $(isas); do
        case $isa in blas | ref) continue ;; esac
        # bf16 products must be clearly faster than those of f32, and at these rates are not.
        want=$isa
        case $isa in bf16 | amx) want=vnni ;; esac
        prefer_isa "$isa" "$isa"
        precision=f32
        export XDG_CONFIG_HOME=$PWD/$isa
        kernel_stats '"\(.isa) \(.isa_from) \(.precision)"' --save-kv "$isa.kv"
        assert_equal "$isa: $output" "$isa: $want profile $precision"
        ok bmc-gen --version
        assert_line --regexp "^isa: +$want;"
        assert_line --regexp "^default: +isa $want \(profile\), precision $precision;"
        ok bmc-convert --info --format json "$isa.kv"
        assert_equal "$(jq -r '"\(.isa) \(.precision)"' <<<"$output")" "$want $precision"
        export XDG_CONFIG_HOME=/nowhere
    done
    # --isa and BMC_ISA override it; without a profile it is measured, with the same result each time.
    prefer_isa avx2 slow
    export XDG_CONFIG_HOME=$PWD/slow
    kernel_stats '"\(.isa) \(.isa_from)"' --isa ref
    assert_output "ref option"
    BMC_ISA=ref kernel_stats '"\(.isa) \(.isa_from)"'
    assert_output "ref BMC_ISA"
    for again in 1 2 3; do kernel_stats '"\(.isa) \(.isa_from)"' --profile none; echo "$output"; done >chosen
    [[ $(sort -u chosen) =~ ^[a-z0-9]+\ measured$ ]] || fail "$(cat chosen)"
}

@test "an unknown kernel set in BMC_ISA is an error that names BMC_ISA" {
    BMC_ISA=zork expect_error 1 '^bmc-gen: BMC_ISA: no instruction set "zork"' bmc-gen -p x
}

@test "a profile without the rates of a kernel set does not select one" {
    isa=$(isas)
    isa=${isa##* }
    measured=$(kernel_stats .isa && echo "$output")
    prefer_isa avx2 p
    sed -i "/^rate $isa /d" p/bmc/profile
    XDG_CONFIG_HOME=$PWD/p kernel_stats '"\(.isa) \(.isa_from)"'
    assert_output "$measured measured"
}

@test "the default precision for bf16 weights is bf16 where the set has bf16 products, else f32; f32 for receipts and f32 weights" {
    bmc-convert -q --type f32 "$ROOT/models.d/grimm" -o wide.bmc
    for isa in $(isas); do
        want=f32
        case $isa in bf16 | amx) want=bf16 ;; esac
        kernel_stats .precision --isa "$isa"
        assert_output $want
        kernel_stats .precision --isa "$isa" -m wide.bmc
        assert_output f32
        [ "$isa" = blas ] || kernel_stats .precision --isa "$isa" --receipt r
        assert_output f32
    done
}

@test "--attn: fused by default, blas or onednn" {
    kernel_stats .attn
    assert_output fused
    for attn in $(attns); do
        kernel_stats .attn --attn "$attn"
        assert_output "$attn"
    done
}

@test "-t and -tb are reported and change no bit of the logits" {
    kernel_stats .logits_hash -t 1
    hash=$output
    for threads in '1 2' '2 1' '2 2' '3 5'; do
        kernel_stats '"\(.threads) \(.threads_batch) \(.logits_hash)"' -t "${threads% *}" -tb "${threads#* }"
        assert_output "$threads $hash"
    done
    # -tb defaults to -t.
    kernel_stats '"\(.threads) \(.threads_batch)"' -t 1
    assert_output '1 1'
}

# ---- statistics ----

@test "--stats has every documented field with its type" {
    ok bmc-gen -q -m "$(model grimm)" -p "$once" -n 5 -t 2 --stats stats.json
    ok jq -e '
        ([.model_id, .kv_policy, .isa, .precision, .attn, .attended, .weight_type, .kv_type, .logits_hash] | all(type == "string"))
        and ([.T, .r, .N, .batch, .threads, .prefill_tokens, .decode_tokens, .decode_steps,
              .kv_allocations, .kv_copied_bytes, .kv_resident_bytes, .kv_padded_rows] | all(type == "number" and . == floor))
        and ([.load_ms, .prefill_ms, .prefill_tok_s, .decode_ms, .decode_tok_s] | all(type == "number" and . > 0))
        and (.logits_hash | test("^[0-9a-f]{16}$")) and (.model_id | test("^[0-9a-f]{64}$"))
        and .attn == "fused" and .attended == "padded" and .weight_type == "bf16" and .kv_type == "f32" and .kv_policy == "bmc"
        and .threads == 2 and .batch == 1 and .N == 1024' stats.json
    assert_equal "$(jq -r .model_id stats.json)" "$(bmc-convert --info --format json "$(model grimm)" | jq -r .model_id)"
    [ "$(wc -l <stats.json)" -eq 1 ]
}

# A layer has 704512 elements in matrices, the head 4096 * 256, both bf16; 17 norms have 256 in f32. A token's KV entries are 8 * 2 * 2 * 32 in
# f32, and attention to them 8 * 2 * 8 * 32 multiply-adds. The prompt's tokens attend to 1 to 4 entries, the 11 decoded ones to 5 to 15.
@test "bytes and multiply-adds of prefill and decoding are counted" {
    stats_of '[.prefill_weight_bytes, .prefill_kv_read_bytes, .prefill_kv_write_bytes, .prefill_macs_attention, .prefill_macs_quantised, .prefill_macs_f32]'
    assert_output "[$((2 * (8 * 704512 + 4096 * 256) + 4 * 17 * 256)),$((4 * 4096)),$((4 * 4096)),$((10 * 4096)),0,0]"
    # of the last layer, out, gate, up and down are computed for the last token only
    ok jq .prefill_macs_bf16 stats.json
    assert_output $((4 * 8 * 704512 - 3 * (256 * 256 + 3 * 704 * 256) + 4096 * 256))
    ok jq -c '[.decode_weight_bytes, .decode_kv_read_bytes, .decode_kv_write_bytes, .decode_macs_attention, .decode_macs_bf16]' stats.json
    assert_output "[$((11 * (2 * (8 * 704512 + 4096 * 256) + 4 * 17 * 256))),$((110 * 4096)),$((11 * 4096)),$((110 * 4096)),$((11 * (8 * 704512 + 4096 * 256)))]"
    ok jq -e '[.prefill_attention_ms, .prefill_projections_ms, .prefill_mlp_ms, .prefill_head_ms, .prefill_other_ms] as $parts |
        ($parts | all(. > 0)) and ($parts | add) <= .prefill_ms * 1.0001 and .prefill_conversion_ms + .prefill_wait_ms <= .prefill_ms' stats.json
}

@test "the roofline is measured if asked for, else the profile's, else unknown" {
    stats_of '[.roof_from, .roof_read_gb_s, .decode_roof_share, .decode_roof_kind]' --profile none
    assert_output '[null,null,null,null]'
    stats_of '.roof_from == "measured" and .roof_read_gb_s > 0 and .roof_f32_gop_s > 0 and .prefill_roof_share > 0 and .decode_roof_share > 0' --roofline
    assert_output true
}

@test "prompt and generated tokens are counted" {
    # The first token comes from prefill, each of the others from a decode step.
    stats_of '[.prefill_tokens, .decode_tokens, .decode_steps, .sampled_tokens]' -n 7
    assert_output '[4,6,6,7]'
    stats_of '[.prefill_tokens, .decode_tokens, .decode_steps]' -n 0
    assert_output '[4,0,0]'
    jq -nc '{ids: [5, 6, 7], n: 4}, {ids: [8], n: 6}' >in
    ok bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -b 2 --stats stats.json <in
    ok jq -c '[.prefill_tokens, .decode_tokens, .decode_steps, .sequences]' stats.json
    assert_output '[4,8,5,2]' # 3 + 5 tokens; both in 3 steps, then 2 more
}

@test "T and r by their definitions: r = ceil(N/T)" {
    stats_of '[.T, .r, .N, .kv_policy]' -n 1 --kv iterative
    assert_output '[16,1,16,"iterative"]'
    stats_of '[.T, .r, .N, .kv_policy]' -n 1 --kv upfront
    assert_output '[1,16,16,"upfront"]'
    stats_of '[.T, .r]' -n 1 --kv bmc:T=4
    assert_output '[4,4]'
    stats_of '[.T, .r]' -n 1 --kv bmc:r=5
    assert_output '[4,5]'
    # The default T is the power of two nearest to sqrt(0.1 N): 10.1 -> 8, 7.2 -> 8, 2.5 -> 2.
    for pair in 1024:8 512:8 64:2; do
        stats_of .T -n 1 -c "${pair%:*}"
        assert_output "${pair#*:}"
    done
}

@test "iterative: every token reallocates the cache and copies all KV entries" {
    # 4 entries, then 5 to 15: 12 growths, which copy 4 + 5 + .. + 14 entries; 4 + 5 + .. + 15 positions are attended to.
    stats_of '[.kv_allocations, .kv_copied_rows, .kv_padded_rows, .kv_rows_computed]' --kv iterative
    assert_output '[12,99,0,114]'
}

@test "bmc: T growths copy N(T-1)/2 KV entries" {
    # r = 4: growths at entries 1, 5, 9, 13, which copy 0 + 4 + 8 + 12 = 16 * 3 / 2 entries. Steps with 4, 5 .. 15 entries
    # attend to 4, 4 times 8, 4 times 12 and 3 times 16 positions: 132, of which 132 - 114 are padding.
    stats_of '[.kv_allocations, .kv_copied_rows, .kv_padded_rows, .kv_rows_computed]' --kv bmc:T=4
    assert_output '[4,24,18,132]'
    # r = 5: growths at entries 1, 6 and 11; capacity 5 twice, then 10 and 15 five times each.
    stats_of '[.kv_allocations, .kv_copied_rows, .kv_padded_rows, .kv_rows_computed]' --kv bmc:r=5
    assert_output '[3,15,21,135]'
}

@test "upfront: one allocation, no copies, N positions attended to in every step" {
    stats_of '[.kv_allocations, .kv_copied_rows, .kv_copied_bytes, .kv_padded_rows, .kv_rows_computed]' --kv upfront
    assert_output '[1,0,0,78,192]' # 12 * 16, less 114
    stats_of '[.kv_padded_rows, .kv_rows_computed, .attended]' --kv upfront --attend valid
    assert_output '[0,114,"valid"]'
}

@test "bytes of KV entries: K and V, 8 layers, 2 KV heads of 32" {
    stats_of .kv_copied_bytes --kv bmc:T=4
    assert_output $((24 * 2 * 8 * 2 * 32 * 4))
    stats_of .kv_copied_bytes --kv bmc:T=4 --cache-type bf16
    assert_output $((24 * 2 * 8 * 2 * 32 * 2))
    stats_of .kv_resident_bytes --kv upfront
    assert_output $((16 * 2 * 8 * 2 * 32 * 4))
    stats_of .kv_resident_bytes --kv upfront -c 17 # storage comes in tiles of 16 rows
    assert_output $((32 * 2 * 8 * 2 * 32 * 4))
}

@test "printed statistics: load, prompt eval, eval, tokens per second" {
    bmc-gen -m "$(model grimm)" -p "$once" -n 5 >out 2>err
    for word in 'load time' 'prompt eval time' 'tokens per second' 'eval time' 'bmc'; do grep -q "$word" err; done
    grep -qE 'prompt eval time .* 4 tokens' err
    bmc-gen -q -m "$(model grimm)" -p "$once" -n 5 >quiet 2>err
    equal_files out quiet
    [ ! -s err ]
}

@test "--stats - writes to standard output; a device is not replaced, a full one is an error" {
    bmc-gen -q -m "$(model grimm)" -p "$once" -n 5 --stats - >out
    assert_equal "$(tail -n 1 out | jq .prefill_tokens)" 4
    run --separate-stderr bmc-gen -q -m "$(model grimm)" -p "$once" -n 5 --stats /dev/full
    assert_equal "$status" 1
    [[ $stderr =~ ^bmc-gen:\ /dev/full:\ [^$'\n']*$ ]]
    [ -c /dev/full ]
}

# ---- scores ----

@test "--score --format jsonl: log-probabilities and perplexity match the reference" {
    for name in grimm andersen llama-3-like llama-2-like qwen2-like; do
        [ "$(jq '.scores | length' "$(reference $name)")" -ge 1 ]
        for nth in $(jq '.scores | keys[]' "$(reference $name)"); do
            jq -j ".scores[$nth].text" "$(reference $name)" >text
            ok bmc-gen -q -m "$(model $name)" --score --format jsonl --precision f32 <text
            echo "$output" | jq -s --slurpfile want "$(reference $name)" --argjson i "$nth" '
                $want[0].scores[$i] as $w | .[:-1] as $rows | .[-1] as $last
                | [($rows | map(.id)) == $w.ids,
                   ($rows | map(.pos)) == [range($w.ids | length)],
                   $rows[0].logprob == null,
                   ([range(1; $w.ids | length)] | all($rows[.].logprob - $w.logprobs_of_ids_from_second[. - 1] | fabs < 1e-3)),
                   ($rows | all(.piece | type == "string")),
                   $last.tokens == ($w.ids | length) - 1,
                   ($last.perplexity / $w.perplexity - 1 | fabs) < 1e-3]' -c >checks
            assert_equal "$(cat checks)" '[true,true,true,true,true,true,true]'
        done
    done
}

@test "--score: the other formats have the same values" {
    jq -j '.scores[0].text' "$(reference grimm)" >text
    score() { bmc-gen -q -m "$(model grimm)" --score -f text --precision f32 "$@"; }
    score --format json >json
    score --format csv >csv
    score --format table >table
    score --format md >md
    score >default
    equal_files default table
    want=$(jq -c '.scores[0].ids' "$(reference grimm)")
    assert_equal "$(jq -c '[.rows[].id]' json)" "$want"
    jq -e --slurpfile w "$(reference grimm)" '.tokens == 87 and (.perplexity - $w[0].scores[0].perplexity | fabs) < 0.03' json
    assert_equal "$(head -n 1 csv)" 'pos,id,piece,logprob'
    assert_equal "$(grep -cE '^[0-9]+,' csv)" 88
    assert_equal "$(head -n 1 table | xargs)" 'pos id piece logprob'
    assert_equal "$(grep -cE '^\| +[0-9]+ ' md)" 88
    grep -qE '^perplexity +29\.6[0-9]*$' table
}

@test "--score keeps a trailing newline, and scores texts longer than the context" {
    printf 'The King\n' >text
    ok bmc-gen -q -m "$(model grimm)" --score --format jsonl <text
    assert_equal "$(jq -rsj '.[:-1] | map(.piece) | add' <<<"$output" | od -An -c | tr -d ' ')" 'TheKing\n'
    jq -j '.scores[0].text' "$(reference grimm)" >text
    # Tokens of the first window of 16 attend to all predecessors, later ones to some of them.
    ok bmc-gen -q -m "$(model grimm)" --score --format jsonl -c 16 --precision f32 <text
    jq -s --slurpfile want "$(reference grimm)" -c '
        $want[0].scores[0] as $w | .[:-1] as $rows
        | [($rows | map(.id)) == $w.ids,
           ([range(1; 17)] | all($rows[.].logprob - $w.logprobs_of_ids_from_second[. - 1] | fabs < 1e-3)),
           ($rows[1:] | all(.logprob < 0)),
           .[-1].tokens == 87,
           (.[-1].perplexity / ($rows[1:] | map(.logprob) | add / -87 | exp) - 1 | fabs < 1e-4)]' <<<"$output" >checks
    assert_equal "$(cat checks)" '[true,true,true,true,true]'
    for i in {1..20}; do cat text; echo; done >long
    ok bmc-gen -q -m "$(model grimm)" --score --format jsonl <long
    jq -se '(.[:-1] | length) > 1500 and .[-1].tokens == (.[:-1] | length) - 1 and (.[1:-1] | all(.logprob | type == "number"))' <<<"$output"
}

@test "--score of an empty text" {
    ok bmc-gen -q -m "$(model grimm)" --score --format jsonl </dev/null
    assert_output '{"tokens":0,"mean_logprob":null,"perplexity":null}'
    ok bmc-gen -q -m "$(model grimm)" --score --format json </dev/null
    ok jq -c '[.tokens, .perplexity, .rows]' <<<"$output"
    assert_output '[0,null,[]]'
}

# ---- tokens ----

@test "tokenizers: reference cases" {
    arguments=()
    # llama-2-like replaces stray bytes by another number of U+FFFD; fixtures.bats compares its ids.
    for name in $(all_models); do
        [ "$name" = llama-2-like ] || arguments+=("$(folder "$name")" "$(reference "$name")")
    done
    run "$BMC_BUILD/tests/test_text" "$FIXTURES/tokenizers" "${arguments[@]}"
    assert_success
    refute_output --partial 'not ok'
}

@test "--tokenize: ids equal the reference" {
    for name in grimm andersen llama-3-like llama-2-like qwen2-like; do
        jq -r '.cases[].prompt | select(test("\n|\r") | not)' "$(reference $name)" >text
        [ -s text ]
        ok bmc-gen -q -m "$(model $name)" --tokenize --format jsonl <text
        assert_equal "$(jq -c .ids <<<"$output")" "$(jq -c '.cases[] | select(.prompt | test("\n|\r") | not) | .prompt_ids' "$(reference $name)")"
        jq -e '(.ids | length) == (.pieces | length) and (.pieces | all(type == "string"))' <<<"$output" >/dev/null
    done
}

@test "--detokenize restores the text" {
    for name in grimm andersen llama-3-like llama-2-like qwen2-like; do
        printf '%s\n' "$once" 'Der Müller aß ein Brötchen — «хлеб» 東京 🙂' '  two  blanks ' '' 'x' >text
        bmc-gen -q -m "$(model $name)" --tokenize --format jsonl <text | jq -r '.ids | map(tostring) | join(" ")' >ids
        bmc-gen -q -m "$(model $name)" --detokenize <ids >back
        equal_files text back
    done
    ok bmc-gen -q -m "$(model grimm)" --detokenize < <(greedy_ids grimm 0 64)
    assert_output "$(reference_text grimm 0 greedy_text)"
}

@test "--tokenize: other formats; tables quote pieces" {
    tokenize() { bmc-gen -q -m "$(model grimm)" --tokenize -p "$once" "$@"; }
    want=$(jq -c '.cases[0].prompt_ids' "$(reference grimm)")
    assert_equal "$(tokenize --format json | jq -c '[.rows[].id]')" "$want"
    assert_equal "$(tokenize --format json | jq -r '[.rows[].piece] | add')" "$once"
    assert_equal "$(tokenize --format csv | head -n 3)" $'id,piece\n2090,Once\n675, upon'
    assert_equal "$(tokenize | sed 's/^ *//; s/ *$//; s/  */ /' | head -n 3)" $'id piece\n2090 "Once"\n675 " upon"'
}

# ---- terminals, pipes, signals ----

@test "the text is the same with standard input closed or without a terminal" {
    expected=$(reference_text grimm 0 greedy_text)
    ok bmc-gen -q -m "$(model grimm)" -p "$once" -n 64 <&-
    assert_output "$expected"
    ok setsid "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -p "$once" -n 64 </dev/null
    assert_output "$expected"
}

@test "the text is the same on a terminal" {
    needs_terminal
    expected=$(reference_text grimm 0 greedy_text)
    script -qec "$BMC_BIN/bmc-gen -q -m $(model grimm) -p '$once' -n 64 >out" typescript >/dev/null </dev/null
    assert_equal "$(cat out)" "$expected"
}

@test "reading from a terminal prints a hint, except with -q" {
    needs_terminal
    m=$(model grimm)
    hint='reading .* from the terminal; Ctrl-D ends the input'
    # typed TEXT COMMAND: types TEXT and Ctrl-D; prints the command's output with the terminal's echo.
    typed() { { sleep 0.2 && printf '%s\n' "$1" && sleep 0.1 && printf '\004'; } | script -qec "$2" typescript | tr -d '\r'; }
    typed "$once" "$BMC_BIN/bmc-gen -m $m -n 5" >out
    grep -qx "bmc-gen: ${hint/.\*/the prompt}" out
    grep -qxF ', and the next day' out
    typed "$once" "$BMC_BIN/bmc-gen -q -m $m -n 5" >out
    refute grep -q "$hint" out
    grep -qxF ', and the next day' out
    for from in '' '-f -'; do
        typed "{\"prompt\": \"$once\"}" "$BMC_BIN/bmc-gen --stats s.json -m $m -n 5 --jsonl $from" >out
        grep -q "^bmc-gen: $hint" out
        grep -q '"text":", and the next day"' out
    done
    typed "{\"text\": \"$once\"}" "$BMC_BIN/bmc-gen -q -m $m --score --summary --jsonl" >out
    grep -q '"tokens":3' out
    typed "$once" "$BMC_BIN/bmc-gen -q -m $m --tokenize --format csv" >out
    grep -qx '2090,Once' out
    typed "$once" "$BMC_BIN/bmc-spec -q -m $m --lookup -n 5" >out
    grep -qxF ', and the next day' out
}

@test "a progress bar is shown on a terminal only and erased at the end" {
    needs_terminal
    yes "$once" | head -n 150 >prompt
    long="$BMC_BIN/bmc-gen -m $(model grimm) -f prompt -n 1"
    script -qec "$long --chunk 64 >out" typescript >/dev/null </dev/null
    bar='prompt of [0-9]+ tokens \[#* *\] +[0-9]+ %'
    grep -qE "$bar" typescript
    # It is erased before the statistics.
    [ "$(tr '\r' '\n' <typescript | grep -E "$bar|\[K" | tail -n 1)" = $'\e[K' ]
    script -qec "$long -q --chunk 64 >out" typescript >/dev/null </dev/null
    refute grep -q '[#%]' typescript
    bmc-gen -q -m "$(model grimm)" -f prompt --chunk 64 -n 1 >plain 2>err
    [ ! -s err ]
    equal_files out plain
}

@test "progress is shown within a slow forward pass of a prompt and changes no result" {
    needs_terminal
    tiny_shape deep.shape layers 32 hidden 256 ffn 768 context 512
    bmc-convert --synth ./deep.shape -o deep.bmc
    printf '%300s' x >prompt # a token for each byte, in one step
    slow="$BMC_BIN/bmc-gen -m deep.bmc -f prompt -n 1 --isa ref -t 1"
    script -qec "$slow --stats seen.json >out" typescript >/dev/null </dev/null
    tr '\r' '\n' <typescript | grep -qE 'prompt of 300 tokens \[#* *\] +[0-9]+ %$'
    $slow -q --stats plain.json >plain 2>err
    [ ! -s err ]
    equal_files out plain
    assert_equal "$(jq .logits_hash seen.json)" "$(jq .logits_hash plain.json)"
    [ "$(jq .prefill_tokens plain.json)" -le "$(jq .chunk plain.json)" ]
}

@test "a closed pipe ends the program silently" {
    { code=0; env --default-signal=PIPE "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -p "$once" --ignore-eos 2>err || code=$?; echo $code >code; } | head -c 5 >out
    assert_equal "$(cat code)" 141
    [ ! -s err ]
    assert_equal "$(cat out)" ', and'
}

@test "a full disk under standard output gives one error line" {
    jq -nc 'range(4) | {text: "The king \(.)"}' >lines # several in flight when the first result fails
    for job in '-p x -n 5' '-p x -n 0' '--score' '--score --jsonl -f lines' '--embed --jsonl -f lines' '--tokenize' '--help' '--version'; do
        # shellcheck disable=SC2086
        run --separate-stderr bash -c "'$BMC_BIN/bmc-gen' -q -m '$(model grimm)' $job >/dev/full <<<'some text'"
        assert_equal "$status" 1
        [[ $stderr =~ ^bmc-gen:\ cannot\ write\ to\ standard\ output(:\ No\ space\ left\ on\ device)?$ ]] || fail "$job: $stderr"
    done
    run --separate-stderr bash -c "'$BMC_BIN/bmc-gen' -q -m '$(model grimm)' -p x -n 5 >&-"
    assert_equal "$status" 1
    [[ $stderr =~ ^bmc-gen:\ cannot\ write\ to\ standard\ output(:\ Bad\ file\ descriptor)?$ ]] || fail "closed: $stderr"
}

@test "SIGINT ends after the current token, with statistics and by the signal" {
    env --default-signal=INT "$BMC_BIN/bmc-gen" -m "$(model grimm)" -p "$once" --ignore-eos --kv iterative -t 1 --ids \
        --stats stats.json >out 2>err &
    pid=$!
    wait_until test -s out
    kill -INT $pid
    code=0
    wait $pid || code=$?
    assert_equal "$code" 130
    grep -q 'eval time' err
    refute grep -q 'bmc-gen:' err
    n=$(wc -w <out)
    [ "$n" -lt 1020 ]
    assert_equal "$(tail -c 1 out | od -An -c | tr -d ' ')" '\n'
    assert_equal "$(jq .sampled_tokens stats.json)" "$n"
    m=$((n < 64 ? n : 64))
    assert_equal "$(cut -d ' ' -f "1-$m" out)" "$(greedy_ids grimm 0 $m)"
}

@test "--cpu-mask chooses the cores, and as many threads" {
    core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
    plain=$(bmc-gen -q -m "$(model llama-3-like)" -p Once -n 4 --ids)
    ok bmc-gen -q -m "$(model llama-3-like)" -p Once -n 4 --ids --cpu-mask "$(printf %x $((1 << core)))" --stats one.json
    assert_equal "$output $(jq .threads one.json)" "$plain 1"
    ok bmc-gen -q -m "$(model llama-3-like)" -p Once -n 4 --ids --cores performance
    assert_equal "$output" "$plain"
    unused=1$(printf '0%.0s' {1..30})
    expect_error 1 "^bmc-gen: --cpu-mask $unused: this process may run on none of these cores" bmc-gen -q -m "$(model llama-3-like)" -p Once --cpu-mask $unused
    for program in bmc-gen "$BMC_BIN/bmc-prof bench" bmc-tune; do
        for mask in 0 0x fg 1$(printf '0%.0s' {1..300}); do
            expect_error 2 "^bmc-[a-z]*: --cpu-mask \"${mask:0:40}[^\"]*\": (is no mask of up to|names no core)" $program --cpu-mask "$mask"
        done
    done
    ok "$BMC_BIN/bmc-prof" bench -m "$(model llama-3-like)" -p 4 -n 2 -r 1 --megabytes 1 --cpu-mask "$(printf %x $((1 << core)))" --hugepages --format json
    assert_equal "$(jq '.rows[0].threads // .threads' <<<"$output")" 1
    expect_error 2 '--hugepages copies a model file' "$BMC_BIN/bmc-prof" bench --shape opt-125m --hugepages
    expect_error 2 '--hugepages copies a model file' bmc-tune --hugepages
    ok "$BMC_BIN/bmc-prof" bench -m "$(model llama-3-like)" -p 4 -n 2 -r 1 --megabytes 1 --cores performance
    for program in "bmc-gen -p Once" "$BMC_BIN/bmc-prof bench" bmc-tune; do
        # shellcheck disable=SC2086
        expect_error 2 '--cpu-mask and --cores exclude each other' $program --cpu-mask 1 --cores performance
    done
}

@test "--hugepages copies the model to huge pages, with the same output" {
    grep -q '\[never\]' /sys/kernel/mm/transparent_hugepage/enabled && skip "no transparent huge pages"
    plain=$(bmc-gen -q -m "$(model grimm)" -p Once -n 8 --ids)
    ok bmc-gen -q -m "$(model grimm)" -p Once -n 8 --ids --hugepages
    assert_equal "$output" "$plain"
    mkfifo prompt
    "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" --hugepages -f - -n 1 <prompt >out 2>err &
    pid=$!
    exec 5>prompt
    # The file is unmapped after it was copied.
    copied() { awk '/grimm.bmc/ { mapped = 1 } /^AnonHugePages/ { kb += $2 } END { exit mapped || kb < 2048 }' "/proc/$pid/smaps"; }
    wait_until copied || fail "no huge pages, or the file is still mapped: $(cat err)"
    echo "$once" >&5
    exec 5>&-
    wait $pid
    expect_error 2 '--experts reads weights from the file, --hugepages copies all of it' bmc-gen -p Once --experts ram=1G --hugepages
}

@test "--numa gives the same output; with one node it says that nothing changes" {
    plain=$(bmc-gen -q -m "$(model grimm)" -p Once -n 8 --ids)
    run_plain bmc-gen -q -m "$(model grimm)" -p Once -n 8 --ids --numa
    assert_equal "$status $output" "0 $plain"
    set -- /sys/devices/system/node/node[0-9]*
    [ $# -gt 1 ] || [[ $stderr == *'cores of one NUMA node only: --numa changes nothing'* ]]
    expect_error 2 '--experts reads weights from the file, --numa copies all of it' bmc-gen -p Once --experts ram=1G --numa
    expect_error 2 '--numa places weights for one number of threads' bmc-gen -p Once --numa -t 1 -tb 2
    expect_error 2 '--numa copies a model file' "$BMC_BIN/bmc-prof" bench --shape opt-125m --numa
    expect_error 2 '--numa copies a model file' bmc-tune --numa
}

@test "--mlock locks the model in memory" {
    size=$(($(stat -c %s "$(model llama-3-like)") / 1024))
    mkfifo prompt
    "$BMC_BIN/bmc-gen" -q -m "$(model llama-3-like)" --mlock -f - -n 1 <prompt >out 2>err &
    pid=$!
    exec 5>prompt
    locked() { [ "$(awk '/VmLck/ { print $2 }' "/proc/$pid/status")" -ge "$size" ]; }
    if ! wait_until locked; then
        exec 5>&-
        skip "no memory may be locked here: $(cat err)"
    fi
    echo "$once" >&5
    exec 5>&-
    wait $pid
    [ -s out ]
    [ ! -s err ]
}

# Makes a control group, $group, with a limit: `cpu PERCENT` of a core or `memory SIZE`; skips the test where that cannot be done.
make_group() {
    local base=/sys/fs/cgroup file=$1.max value=$2
    [ "$1" = memory ] || value="$(($2 * 1000)) 100000"
    if [ -d "$base/$1" ]; then
        base=$base/$1 file=memory.limit_in_bytes
        [ "$1" = memory ] || file=cpu.cfs_quota_us value=$(($2 * 1000)) # the period is 100000
    fi
    group=$base/bmc-test-$$
    mkdir "$group" 2>/dev/null || skip "no control group can be made here"
    echo "$value" 2>/dev/null >"$group/$file" || { rmdir "$group"; skip "control groups have no limits here"; }
}

in_group() { # COMMAND..: of grimm, then the group is removed
    local code=0
    (echo "$BASHPID" >"$group/cgroup.procs" && exec "$BMC_BIN/bmc-gen" -m "$(model grimm)" "$@") || code=$?
    rmdir "$group"
    return $code
}

@test "limits of control groups: the CPU quota, and memory" {
    sanitized && skip "AddressSanitizer needs more memory"
    make_group cpu 50
    ok in_group -q -p Once -n 2 --stats half.json
    assert_equal "$(jq .threads half.json)" 1
    # the cache of 400 sequences needs 200 MiB, beyond which the kernel would end the process
    jq -nc 'range(400) | {ids: [5], n: 2}' >in
    make_group memory 100M
    run --separate-stderr in_group -q --jsonl -b 400 -f in
    assert_equal "$status" 1
    [[ $stderr =~ ^'bmc-gen: out of memory for '.*'use a smaller -c or -np, or another --kv'$ ]]
    make_group memory 100M
    run --separate-stderr in_group --jsonl -np 64 -f in --memory 1G --stats few.json
    assert_equal "$status $(jq -s 'map(select(.finish == "length")) | length' <<<"$output")" "0 400"
    [[ $stderr =~ ^'bmc-gen: --memory 1G: the control group of this process leaves '[0-9]+' MiB; the cache gets '[0-9]+ ]]
    [ "$(jq .memory_bytes few.json)" -lt $((75 << 20)) ]
}

@test "-p TEXT -f - appends standard input, which is not read otherwise" {
    m=$(model llama-3-like) both=$'Once upon\n\na time'
    for how in '-n 3 --ids' '-n 3 --echo' --tokenize --embed; do
        # shellcheck disable=SC2086
        assert_equal "$(bmc-gen -q -m "$m" -p 'Once upon' -f - $how <<<'a time')" "$(bmc-gen -q -m "$m" -p "$both" $how)"
    done
    assert_equal "$(bmc-gen -q -m "$m" -p "$both" --score --summary </dev/null)" "$(printf 'a time' | bmc-gen -q -m "$m" -p 'Once upon' -f - --score --summary)"
    assert_equal "$(bmc-spec -q -m "$m" --lookup -p 'Once upon' -f - -n 3 --ids <<<'a time')" "$(bmc-gen -q -m "$m" -p "$both" -n 3 --ids)"
    assert_equal "$(bmc-gen -q -m "$m" -p Once -f - --tokenize </dev/null)" "$(bmc-gen -q -m "$m" -p Once --tokenize)"
    expect_error 2 'exclude each other, except that -f - appends' bmc-gen -m "$m" -p x --prompt-ids 5 -f -
    expect_error 2 '^bmc-gen: -i is a conversation' bmc-gen -m "$m" --chat -i -p x -f -
    # a loop keeps its input, and a pipe that stays open is not waited for
    assert_equal "$(printf 'a\nb\nc\n' | while read -r word; do bmc-gen -q -m "$m" -p "$word" -n 1 --ids; bmc-spec -q -m "$m" --lookup -p "$word" -n 1 --ids; done | wc -l)" 6
    mkfifo open
    exec 5<>open
    for how in '-n 1' '--score --summary' --embed --tokenize; do
        # shellcheck disable=SC2086
        ok timeout 30 "$BMC_BIN/bmc-gen" -q -m "$m" -p Once $how <&5
    done
    exec 5>&-
}
