# The backend opencl, on whatever device has a driver: PoCL's is a CPU. Without one all of this is skipped.
load ../helper

setup_file() {
    # PoCL compiles kernels when they first run; they stay compiled between runs of the tests.
    export POCL_CACHE_DIR=$BMC_BUILD/pocl XDG_CACHE_HOME=$BMC_BUILD/pocl/programs
    mkdir -p "$POCL_CACHE_DIR"
    local status=0
    NO_DEVICE=$(quickly "$BMC_BUILD/tests/opencl_device" --info) || status=$?
    [ $status -eq 77 ] || NO_DEVICE=
    export NO_DEVICE=${NO_DEVICE#skipped: }
}

setup() {
    [ -z "$NO_DEVICE" ] || skip "$NO_DEVICE"
    cd "$BATS_TEST_TMPDIR" || return 1
}

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

# Runs a command whose kernels PoCL compiles without optimisation, which takes ten times as long as all else of that, and
# more than a model of few parameters. BMC_FULL optimises everything.
quickly() {
    if [ "$BMC_FULL" = 1 ]; then "$@"; else POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable "$@"; fi
}

# A converted fixture, cached.
converted() {
    local file=$BMC_BUILD/models/opencl-$1.bmc
    if [ ! "$file" -nt "$BMC_BIN/bmc-convert" ]; then
        mkdir -p "$BMC_BUILD/models"
        bmc-convert -q "$FIXTURES/families/$1" -o "$file" || return 1
    fi
    echo "$file"
}

# Those that the backend does not refuse for what it lacks.
families() {
    local name refusal
    for config in "$FIXTURES"/families/*/config.json; do
        name=$(basename "$(dirname "$config")")
        if refusal=$(bmc-gen -q -m "$(converted "$name")" --prompt-ids 3 -n 1 --backend opencl 2>&1 >/dev/null) || [[ $refusal != 'bmc-gen: backend opencl lacks '* ]]; then echo "$name"; fi
    done
}

on_device() { # TYPE FAMILY..
    local files=()
    for name in "${@:2}"; do files+=("$(converted "$name")"); done
    run quickly "$BMC_BUILD/tests/opencl_device" "$1" "${files[@]}"
    [ "$status" -eq 0 ] || fail "$*: $output"
    [[ $output =~ ^([0-9]+)' checks, 0 failed'$ ]] || fail "$output"
    [ "${BASH_REMATCH[1]}" -ge $((18 * ($# - 1) + 38)) ]
}

# Prints ids and the hash of logits.
traced() { # PROGRAM ARGUMENT..
    "$1" -q -m "$ROOT/models.d/grimm.bmc" --temp 0 --ignore-eos --ids --stats stats "${@:2}" || return 1
    jq -r .logits_hash stats
}

@test "on OpenCL, ids are those of the CPU, and logits do not depend on policy, chunk and drafts; growth and copies are those of equations 1 and 2; ram= bounds the device's memory" {
    # Layers that differ, and experts, whose rows batches and chunks group in other ways; opencl_matrix.sh has more families.
    local names=(decilm)
    [ "$BMC_FULL" != 1 ] || mapfile -t names < <(families)
    [ "$BMC_FULL" != 1 ] || [ "${#names[@]}" -ge 60 ]
    on_device f32 "${names[@]}"
    on_device q8 mixtral-fused
    [ "$BMC_FULL" != 1 ] || on_device q8 qwen3
    [ "$BMC_FULL" != 1 ] || on_device k=f16,v=bf16 qwen3
}

@test "programs are kept in a folder, and one that is damaged there is compiled again" {
    local kept
    for want in '1 compiled, 0 found' '0 compiled, 1 found' '1 compiled, 0 found'; do
        # a kernel that does not compile, which PoCL reports, too, is one of the checks
        run --separate-stderr quickly "$BMC_BUILD/tests/opencl_device" --programs programs
        assert_success
        assert_output "$want"$'\n2 checks, 0 failed'
        kept=(programs/*.cl)
        [ "${#kept[@]}" -eq 1 ]
        [[ $want != 0* ]] || truncate -s -1 "${kept[0]}"
    done
}

@test "on OpenCL, ids, logits and log-probabilities match transformers" {
    local names=(gpt2 qwen3 mixtral)
    [ "$BMC_FULL" != 1 ] || mapfile -t names < <(families)
    for name in "${names[@]}"; do
        BMC_BACKEND=opencl run quickly "$BMC_BUILD/tests/reference" "$(converted "$name")" "$FIXTURES/families/$name/reference.json" bmc 1 64 2 f32 f32 1e-4
        [ "$status" -eq 0 ] || fail "$name: $output"
    done
}

@test "on OpenCL, drafts, batches and beams have the ids of one sequence, and drafts its logits" {
    local prompt="Once upon a time there was a king, and the king had a daughter, and the king" alone
    alone=$(traced bmc-gen -p "$prompt" -n 12 --backend opencl)
    assert_equal "$(jq -r .backend stats)" opencl
    assert_equal "$(traced bmc-spec -p "$prompt" -n 12 --backend opencl --lookup)" "$alone"
    assert_equal "$(traced bmc-spec -p "$prompt" -n 12 --backend opencl -md "$ROOT/models.d/grimm-draft.bmc" --tree 6 --kv paged:16)" "$alone"
    assert_equal "$(head -n 1 <<<"$alone")" "$(traced bmc-gen -p "$prompt" -n 12 --precision f32 | head -n 1)"
    local beams=(-p "$prompt" -n 8 --beams 3)
    assert_equal "$(traced bmc-gen "${beams[@]}" --backend opencl --kv segment | head -n 1)" "$(traced bmc-gen "${beams[@]}" --precision f32 | head -n 1)"
}

@test "of a model that is split between the device and the CPU the ids are those of the CPU, and logits depend on the split alone" {
    local gen=(bmc-gen -p "Once upon a time there was a king, and the king had a daughter" -n 6) ids split
    ids=$(traced "${gen[@]}" --precision f32 | head -n 1)
    split=$(traced "${gen[@]}" --backend opencl -ngl 3 --save-kv saved)
    assert_equal "$(head -n 1 <<<"$split")" "$ids"
    assert_equal "$(jq -c '[.backend, .device_layers, .boundary_bytes > 0]' stats)" '["opencl",3,true]'
    assert_equal "$(traced "${gen[@]}" --backend opencl -ngl 3 --chunk 3 --kv iterative)" "$split"
    # entries of a snapshot, from the memory of the process to that of both
    assert_equal "$(traced bmc-gen --load-kv saved -p " and" -n 4 --backend opencl -ngl 3 | head -n 1)" "$(traced bmc-gen --load-kv saved -p " and" -n 4 --precision f32 | head -n 1)"
    # what the device lacks, layer by layer
    gen=(bmc-gen -m "$(converted lfm2)" --prompt-ids 3,5,7,9,11 -n 6)
    split=$(quickly traced "${gen[@]}" --backend opencl --fallback cpu)
    assert_equal "$(head -n 1 <<<"$split")" "$(traced "${gen[@]}" --precision f32 | head -n 1)"
    assert_equal "$(quickly traced "${gen[@]}" --backend opencl --fallback cpu --chunk 2)" "$split"
    assert_equal "$(jq -c '[.device_layers, .boundary_bytes > 0]' stats)" '[2,true]'
    # the output layer alone, and a cache with layers of indexers
    gen=(bmc-gen -m "$(converted deepseek-v32)" --prompt-ids 3,5,7,9,11 -n 20)
    assert_equal "$(quickly traced "${gen[@]}" --backend opencl -ngl 1 | head -n 1)" "$(traced "${gen[@]}" --precision f32 | head -n 1)"
    # all layers, and none, are no split
    traced "${gen[@]}" --backend opencl -ngl 0 >/dev/null
    assert_equal "$(jq -r .backend stats)" cpu
    gen=(bmc-gen -q -m "$ROOT/models.d/grimm.bmc" -p a -n 1 -ngl 2)
    expect_error 1 '^bmc-gen: --gpu-layers is for a device: add --backend opencl, or leave it out$' "${gen[@]}"
    gen+=(--backend opencl)
    expect_error 1 '^bmc-gen: layers on two backends need a cache whose layers are apart: use --kv bmc, upfront or iterative$' "${gen[@]}" --kv paged
    expect_error 1 '^bmc-gen: hidden states are read from models that are on one backend: leave --gpu-layers and --fallback out$' bmc-gen -q -m "$ROOT/models.d/grimm.bmc" -p a -ngl 2 --backend opencl --embed
    expect_error 1 '^bmc-gen: no layer is left to the device: backend opencl lacks latent attention: use --backend cpu$' "${gen[@]}" -m "$(converted deepseek-v2)" --fallback cpu
}

@test "the measurements of a GPU say that there is none, and run on any device" {
    run sh "$ROOT/tests/bench/opencl.sh"
    assert_success
    [[ $output == 'nothing to measure: the only OpenCL driver is that of a CPU (device of a CPU: '*'); ANY=1 measures it' || $output == 'device of a GPU'* ]]
    # in full each section runs, else the sections are listed as left out
    local few=(ANY=1 OUT="$PWD/out" SHAPE=opt-125m LAYERS=1 BLOCK=opt-125m BLOCK_BATCH=2 N=64 DEPTHS=64 ROUNDS=1 TYPES=bf16 BATCHES=1,2 RAM_OF_MODEL=850K PROMPT=240 TUNE='--megabytes 1 --evict 1')
    [ "$BMC_FULL" = 1 ] || few+=(SECONDS_IN_ALL=0)
    run env "${few[@]}" sh "$ROOT/tests/bench/opencl.sh"
    assert_success
    jq -e '(.sections | length) == 10 and ([.sections[].section] | index("BMC figure 15", "BMC table VIII", "BMC table IX", "HeadInfer tables 12 and 13, 64 tokens", "BASS, 2 sequences") != null)' out >/dev/null || fail "$(cat out)"
    [ "$BMC_FULL" = 1 ] || jq -e '.form and all(.sections[]; .rows == [] and (.left_out | startswith("left out")))' out >/dev/null || fail "$(cat out)"
    [ "$BMC_FULL" != 1 ] || jq -e 'all(.sections[] | select(.left_out == null); .rows | length > 0 and all(.[].samples[]; length > 0))' out >/dev/null || fail "$(cat out)"
}

@test "on OpenCL, embeddings and scores of rerankers are those of the CPU" {
    bmc-convert -q "$FIXTURES/rerankers/bert" -o bert.bmc
    echo '{"query": "x", "documents": ["one", "two", "a third"]}' >in
    for how in "--embed -p two" "--rerank -f in"; do
        # shellcheck disable=SC2086
        bmc-gen -q -m bert.bmc $how --precision f32 >cpu
        # shellcheck disable=SC2086
        quickly bmc-gen -q -m bert.bmc $how --backend opencl >device
        jq -se '[.[] | .embedding // [.results[].logit]] | (.[0] | length) == (.[1] | length) and ([transpose[] | .[0] - .[1] | fabs] | length > 0 and max < 1e-4)' cpu device >/dev/null || fail "$how: $(cat cpu device)"
    done
}

@test "on OpenCL, quantised weights have the ids of the CPU, and logits that do not depend on the chunk" {
    # Prompts of more rows than one work-group has of a product. BMC_FULL has a trained model; else random weights, in rows of 256.
    local types=(q4_k) prompt="The wolf came to the door of the house, and the king" from=(--synth ./shape)
    prompt="$prompt, ${prompt,}, ${prompt,}, ${prompt,} said"
    local gen=(bmc-gen --prompt-ids "$(seq -s ' ' 100 3 331)" -n 6)
    if [ "$BMC_FULL" = 1 ]; then
        types=(f32 f16 bf16 q8_0 q8_channel q4_0 q4_1 q4_k q5_0 q5_k q6_k q3_k q2_k iq4_nl iq4_xs mxfp4)
        from=("$ROOT/models.d/grimm.bmc")
        gen=(bmc-gen -p "$prompt" -n 6)
    fi
    printf '%s\n' 'family llama' 'layers 2' 'hidden 256' 'heads 4' 'kv_heads 2' 'ffn 512' 'vocab 512' 'context 512' 'eos 0' >shape
    for type in "${types[@]}"; do
        bmc-convert -q "${from[@]}" --type "$type" -o model.bmc
        ids=$(traced "${gen[@]}" -m model.bmc --precision f32 | head -n 1)
        whole=$(quickly traced "${gen[@]}" -m model.bmc --backend opencl)
        assert_equal "$(head -n 1 <<<"$whole")" "$ids"
        assert_equal "$(quickly traced "${gen[@]}" -m model.bmc --backend opencl --chunk 3 --kv iterative)" "$whole"
    done
}

@test "on OpenCL, weights of all types without a grid are dequantised as on the CPU" {
    # Some have all properties that kernels depend on (quant/quant_types.h).
    local types=(f32 f16 bf16 q8_channel q5_1 q4_k q6_k q3_k q2_k iq4_xs mxfp4 nvfp4 tq2_0 q1_0 q4_z32)
    [ "$BMC_FULL" != 1 ] || types=()
    run --separate-stderr quickly "$BMC_BUILD/tests/opencl_device" --types "${types[@]}"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ^([0-9]+)' checks, 0 failed'$ && ${BASH_REMATCH[1]} -ge $((${#types[@]} + 1)) ]] || fail "$output"
    [ "$BMC_FULL" != 1 ] || [ "${BASH_REMATCH[1]}" -ge 22 ]
}

@test "on OpenCL, the bits of products do not depend on the number of rows, whose kernels differ" {
    local types=(bf16 q4_k)
    [ "$BMC_FULL" != 1 ] || types=()
    run --separate-stderr quickly "$BMC_BUILD/tests/opencl_device" --products "${types[@]}"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ^([0-9]+)' checks, 0 failed'$ && ${BASH_REMATCH[1]} -ge 24 ]] || fail "$output"
}

@test "T is tuned on the OpenCL device, whose profile programs use there alone; bmc-prof measures policies and passes on it" {
    local model=$ROOT/models.d/grimm.bmc device
    device=$("$BMC_BUILD/tests/opencl_device" --info)
    device=${device#*: }
    export XDG_CONFIG_HOME=$PWD
    run bmc-tune -m "$model" --backend opencl -N 64 --state cold --no-sweep --no-batch-knee --seconds 1 --evict 1 --megabytes 1
    assert_success
    assert_line --partial 'attention opencl: '
    grep -qxF "cpu $device" bmc/profile-opencl
    [ ! -e bmc/profile ]
    bmc-gen -q -m "$model" -p a -n 2 -c 64 --temp 0 --backend opencl --stats stats >/dev/null
    assert_equal "$(jq -c '[.T_from, .roof_from, .decode_roof_kind, .decode_roof_share > 0, .roof_f32_gop_s, .device_peak_bytes > 1e7]' stats)" '["profile","profile","read",true,null,true]'
    bmc-gen -q -m "$model" -p a -n 2 -c 64 --temp 0 --stats stats >/dev/null
    assert_equal "$(jq -c '[.T_from, .device_peak_bytes]' stats)" '["default",0]'
    expect_error 1 '^bmc-gen: --profile: bmc/profile-opencl: made on "'"${device%%[(]*}" bmc-gen -q -m "$model" -p a -n 2 --profile bmc/profile-opencl
    bmc-prof policies -m "$model" --layers 2 -N 32 --kv iterative,bmc:T=4 -r 1 --backend opencl --format json >out
    # N growth events that copy 1, 2 .. N - 1 entries, and T that copy 8, 16 and 24: 1024 bytes each in two layers
    jq -e --arg device "$device" '[.rows[] | .kv_allocations, .kv_copied_bytes, .attn, .isa] == [32, 496 * 1024, "opencl", "opencl", 4, 48 * 1024, "opencl", "opencl"] and .rows[0].cpu == $device' out >/dev/null || fail "$(cat out)"
    bmc-prof bench -m "$model" -p 4 -n 2 -r 1 --warmup 0 --megabytes 1 --backend opencl --format json >out
    jq -e '[.rows[] | .precision, .roof_kind] == ["f32", "read", "f32", "read"] and all(.rows[]; .roof_share > 0 and .device_peak_bytes > 1e7)' out >/dev/null || fail "$(cat out)"
    expect_error 2 '^bmc-tune: --attn fused is attention of the CPU: leave --backend opencl out$' bmc-tune --backend opencl --attn fused --dry-run
    expect_error 2 '^bmc-prof: --backend goes with policies, sweep, latency and bench only' bmc-prof memory --backend opencl
    expect_error 2 '^bmc-prof: --backend opencl computes in f32: leave --precision bf16 out' bmc-prof bench --backend opencl --precision bf16
}

@test "what the backend opencl lacks is refused by name" {
    local gen=(bmc-gen -q -p a -n 1 --backend opencl)
    expect_error 1 '^bmc-gen: backend opencl lacks layers with recurrent state: use --backend cpu, or --fallback cpu$' "${gen[@]}" -m "$(converted lfm2)"
    expect_error 1 '^bmc-gen: backend opencl lacks latent attention: use --backend cpu, or --fallback cpu$' "${gen[@]}" -m "$(converted deepseek-v2)"
    gen+=(-m "$ROOT/models.d/grimm.bmc")
    expect_error 1 '^bmc-gen: backend opencl has KV caches of the types f32, bf16, f16, q8 and q8_channel, not of q4: use --backend cpu, or --fallback cpu$' "${gen[@]}" --cache-type q4
    expect_error 1 "^bmc-gen: dir=\. is for the CPU's cache: heads that are not in the device's memory are in that of the host, so leave it out$" "${gen[@]}" --kv headwise:dir=.
    expect_error 2 '^bmc-gen: --backend opencl computes in f32: leave --precision bf16 out$' "${gen[@]}" --precision bf16
    expect_error 2 "^bmc-gen: --kv-pressure is for the CPU's cache: leave --backend opencl out$" bmc-gen -q --backend opencl -m "$ROOT/models.d/grimm.bmc" --jsonl --kv-pressure q8 --memory 1G </dev/null
}

@test "on OpenCL, any call to the driver that fails ends the run with a sentence, and nothing is half-written; so does a lack of memory" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers' library is the first that is loaded"
    local calls=(any) most=2 tokens=3 gen=("$BMC_BIN/bmc-gen" -q -m "$ROOT/models.d/grimm.bmc" -n 2 -t 1 --temp 0 --backend opencl)
    if [ "$BMC_FULL" = 1 ]; then
        mapfile -t calls < <(sed -n 's/^ *X(\(cl[A-Za-z]*\),.*/\1/p' "$ROOT/tests/inject/fail_opencl.c")
        calls+=(clSVMAlloc lost) most=30 tokens=240 # so that heads are offloaded
        [ "${#calls[@]}" -eq 20 ]
    fi
    for call in "${calls[@]}"; do
        run "$BMC_BUILD/inject" -m "$most" -o "$RANDOM" "$BMC_BUILD/inject_opencl.so" "$call" "${gen[@]}" --prompt-ids "$(seq -s ' ' 100 $((tokens + 99)))" --kv headwise:ram=850K --chunk 60 --save-kv saved.kv --stats stats.json
        [ "$status" -eq 0 ] || fail "$output"
        [[ $output =~ ^$call:\ [1-9][0-9]*\ calls,\ [1-9] || $call =~ ^(clGetProgramInfo|clCreateProgramWithBinary|clEnqueueSVMMemFill)$ ]] || fail "nothing failed: $output"
    done
    export LD_PRELOAD=$BMC_BUILD/inject_opencl.so
    BMC_FAIL_CALL=clEnqueueNDRangeKernel BMC_FAIL_AT=100 expect_error 1 '^bmc-gen: OpenCL device .* failed with error -5: the device has no memory or other resource left, or was lost$' "${gen[@]}" -p "a king"
    BMC_FAIL_CALL=clSVMAlloc BMC_FAIL_AT=80 expect_error 1 '^bmc-gen: out of memory for 128 rows of KV cache' "${gen[@]}" -p "a king"
}

@test "requests to a server whose device is lost get status 500, and it ends" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers' library is the first that is loaded"
    [ -x "$BMC_BIN/bmc-serve" ] || skip "bmc-serve is not built: libmicrohttpd is missing"
    local server call
    for call in clEnqueueNDRangeKernel lost; do
        LD_PRELOAD="$BMC_BUILD/inject_opencl.so" BMC_FAIL_CALL=$call BMC_FAIL_AT=1 "$BMC_BIN/bmc-serve" -m "$ROOT/models.d/grimm.bmc" --backend opencl --socket socket 2>log &
        server=$!
        check_lost "$server"
    done
}

# Requests to a server whose device fails in the first.
check_lost() { # SERVER
    local ended=0
    rm -f codes
    wait_until curl -sf --unix-socket socket http://localhost/health -o /dev/null
    for _ in 1 2 3; do
        curl -sS --unix-socket socket http://localhost/v1/completions -d '{"prompt": "a", "max_tokens": 2}' -o answer -w '%{http_code}\n' >>codes
        jq -e '.error | .type == "server_error" and (.message | startswith("the run ended: OpenCL device"))' answer
    done
    wait "$1" || ended=$?
    assert_equal "$(sort -u codes), $ended" "500, 1"
}

@test "without a device or a driver, one sentence says so" {
    local gen=(bmc-gen -q -p a -n 1 --backend opencl -m "$ROOT/models.d/grimm.bmc")
    mkdir none
    export OCL_ICD_VENDORS=$PWD/none
    expect_error 1 '^bmc-gen: OpenCL has no device \(0 platforms\): install the driver of one' "${gen[@]}"
    for script in opencl opencl_matrix; do
        run sh "$ROOT/tests/bench/$script.sh"
        assert_success
        [[ $output =~ ^'nothing to '(measure|compare)': OpenCL has no device (0 platforms): install the driver of one' ]]
    done
}
