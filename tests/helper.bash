# Shared by the program tests. Each test runs in a folder of its own.
#
#   BMC_BIN    folder of the programs (default ../bin)
#   BMC_BUILD  folder of the library and the C tests (default ../build/gcc); converted models are kept in it
#   BMC_FULL   1: full products instead of covering subsets
#   BMC_SEED   repeats a random subset; printed by each run
#   BMC_WRAP   prefix of the programs' command lines, as 'valgrind -q'
#
# Standard error must be empty unless a test expects otherwise: `ok` and `expect_error` check it.

bats_require_minimum_version 1.5.0
load ../quick

ROOT=${BATS_TEST_DIRNAME%/tests/*}
FIXTURES=$ROOT/tests/fixtures
BMC_BIN=${BMC_BIN:-$ROOT/bin}
BMC_BUILD=${BMC_BUILD:-$ROOT/build/gcc}
export LC_ALL=C.UTF-8
unset BMC_ISA BMC_MODEL BMC_CACHE_SIZE OMP_NUM_THREADS OPENBLAS_NUM_THREADS
export BMC_CONFIG=none XDG_CONFIG_HOME=/nowhere # no configuration and no tuned profile of this account
export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME-}/.cache}/ccache}
export XDG_CACHE_HOME=/proc/nowhere XDG_STATE_HOME=/proc/nowhere

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
}

# ---- programs ----

bmc-gen() { $BMC_WRAP "$BMC_BIN/bmc-gen" "$@"; }
bmc-spec() { $BMC_WRAP "$BMC_BIN/bmc-spec" "$@"; }
bmc-convert() { $BMC_WRAP "$BMC_BIN/bmc-convert" "$@"; }
bmc-tune() { $BMC_WRAP "$BMC_BIN/bmc-tune" "$@"; }

# `run --separate-stderr`, but faster: sets status, output, lines, stderr; what bmc-convert says of the file that it wrote,
# the last line, is `written` instead.
run_plain() {
    status=0
    output=$(set +eET && "$@" 2>"$BATS_TEST_TMPDIR/stderr") || status=$?
    stderr=$(<"$BATS_TEST_TMPDIR/stderr")
    written=
    if [[ $stderr =~ (^|$'\n')(bmc-convert: [^$'\n']+\ bits\ per\ weight\;\ tensors:\ [^$'\n']+)$ ]]; then
        written=${BASH_REMATCH[2]} stderr=${stderr%"${BASH_REMATCH[0]}"}
    fi
    mapfile -t lines <<<"$output"
    mapfile -t stderr_lines <<<"$stderr"
}

# Runs a command that must succeed with empty standard error.
ok() {
    run_plain "$@"
    [ "$status" -eq 0 ] && [ -z "$stderr" ] && return
    fail "$* -> status $status, stderr: $stderr, stdout: ${output:0:300}"
}

# The same, for a run whose context may be full at the end.
ok_cut() {
    run_plain "$@"
    [ "$status" -eq 0 ] && [[ -z $stderr || $stderr != *$'\n'* && $stderr =~ ^bmc-(gen|spec):\ the\ text\ was\ cut:\  ]] && return
    fail "$* -> status $status, stderr: $stderr, stdout: ${output:0:300}"
}

# expect_error CODE REGEX COMMAND..: that exit code, empty standard output, and on standard error one matching line that
# begins with the program's name.
expect_error() {
    local code=$1 pattern=$2
    shift 2
    run_plain "$@"
    [ "$status" -eq "$code" ] && [ -z "$output" ] && [[ $stderr != *$'\n'* ]] && [[ $stderr =~ ^bmc-(gen|convert|spec|tune|prof|serve):\  ]] &&
        [[ $stderr =~ $pattern ]] && [[ $stderr != *[[:cntrl:]]* ]] && return
    fail "$* -> status $status ($code wanted), stdout: ${output:0:300}, stderr ($pattern wanted): $stderr"
}

# some_fail N M COMMAND..: a batch writes all results, and reports that N of M requests failed.
some_fail() {
    run --separate-stderr "${@:3}"
    [ "$status" -eq 1 ] && [[ $stderr =~ ^bmc-(gen|spec):\ "$1 of $2 requests failed: their results say why"$ ]] && return
    fail "${*:3} -> status $status, stderr: $stderr, stdout: ${output:0:300}"
}

# The test's folder holds exactly these names.
assert_folder() {
    assert_equal "$(ls -A)" "$(printf '%s\n' "$@" | sort)"
}

equal_files() {
    cmp "$1" "$2" || fail "$1 and $2 differ"
}

# Repeats a command until it succeeds, for a minute.
wait_until() {
    local i
    for ((i = 0; i < 6000; i++)); do
        if "$@" 2>/dev/null; then return; fi
        sleep 0.01
    done
    fail "waited in vain: $*"
}

# CPU time of a process in hundredths of a second. What it has done by then depends on no other process.
cpu_time() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
has_computed() { [ "$(cpu_time "$1")" -ge "$2" ]; } # PID HUNDREDTHS

# bmc-gen with these options answers each line of a pipe before the next one is written.
answers_as_lines_come() { # ARGS..
    mkfifo in
    "$BMC_BIN/bmc-gen" -q -m "$(model grimm)" -f in "$@" >out 2>err &
    pid=$!
    exec 5>in
    for n in 1 2 3; do
        echo '{"ids":[5,6]}' >&5
        answered() { [ "$(wc -l <out)" -eq $n ]; }
        wait_until answered
    done
    exec 5>&-
    wait $pid
    assert_equal "$(wc -l <out)" 3
    [ ! -s err ]
}

# True for programs built with AddressSanitizer, for which some memory limits cannot be set.
sanitized() { readelf -d "$BMC_BIN/bmc-gen" | grep -q libasan; }

# Skips a test if `script` cannot open a terminal.
needs_terminal() {
    script -qec true /dev/null >/dev/null 2>&1 </dev/null || skip "no pseudo-terminal can be opened here"
}

# For tests that start ranks: Open MPI leaks memory at exit.
forgive_mpi() { export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0; }

# Standard input, or NAME if it is empty: a loop over an empty list would test nothing, and succeed.
or_fail_as() { # NAME
    local list
    list=$(cat)
    echo "${list:-$1}"
}

# The cache policies, as the program lists them.
kv_policies() { bmc-gen -p x --kv '?' 2>&1 >/dev/null </dev/null | sed -n 's/.*there are: //; s/ (see .*//; s/,//gp' | or_fail_as no-policy-listed; }

# The usable instruction sets, as the program lists them.
isas() { bmc-gen --version | sed -n 's/^isa: .*; usable: //p' | tr -d , | or_fail_as no-set-listed; }

# The attention backends, with a library only if it is installed.
attns() {
    echo fused
    for attn in blas onednn; do
        ! bmc-gen -q -m "$(model grimm)" -p x -n 0 --attn $attn >/dev/null 2>&1 || echo $attn
    done
}

# Writes FOLDER/bmc/profile with rates by which ISA is the default: sets after it are ten times slower.
prefer_isa() { # ISA FOLDER
    local isa rate=100
    mkdir -p "$2/bmc"
    {
        printf 'bmc_profile 2\ncpu %s\n' "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
        printf 'cores %s\nthreads 1\nisa ref\npage_size %s\nalloc pool\n' "$(nproc)" "$(getconf PAGESIZE)"
        for isa in $(isas); do
            echo "rate $isa $rate $rate $rate"
            [ "$isa" != "$1" ] || rate=10
        done
    } >"$2/bmc/profile"
}

# ---- models ----

# A model's folder.
folder() {
    if [ -d "$FIXTURES/models/$1" ]; then echo "$FIXTURES/models/$1"; else echo "$ROOT/models.d/$1"; fi
}

# All models with reference results.
all_models() { basename -s .json "$FIXTURES"/reference/*.json | sort; }

reference() { echo "$FIXTURES/reference/$1.json"; }

# A converted model. It is made once: call this from setup_file() first.
model() {
    local file=$BMC_BUILD/models/$1.bmc
    if [ ! "$file" -nt "$BMC_BIN/bmc-convert" ]; then
        mkdir -p "$BMC_BUILD/models" && bmc-convert -q "$(folder "$1")" -o "$file" || return 1
    fi
    echo "$file"
}

# Programs find families relative to their own folder, which sanitizer builds have elsewhere.
[ -e "$BMC_BIN/../models.d" ] || ln -sfn "$ROOT/models.d" "$BMC_BIN/../models.d"

# The cases of a model's reference results as case["NUMBER MEMBER"], extracted once for all tests.
load_cases() { # MODEL
    local file=$BATS_RUN_TMPDIR/cases.$1 new=$BATS_RUN_TMPDIR/cases.$1.$BASHPID
    if [ ! -e "$file" ]; then
        jq -r '.cases | keys[] as $i | .[$i] | {prompt, greedy_text, prompt_ids, greedy_ids} | to_entries[] |
            "case[\"\($i) \(.key)\"]=\(.value | if type == "array" then map(tostring) | join(" ") else . end | @sh)"' \
            "$(reference "$1")" >"$new" && mv "$new" "$file" || return 1
    fi
    declare -gA case=()
    source "$file"
}

# A member of a case, without a newline, or a text that equals no output if there is none.
case_member() { # MODEL CASE MEMBER
    load_cases "$1"
    printf '%s' "${case[$2 $3]-case $2 of $1 has no $3}"
}

# Greedy ids of a case, the first N of them.
greedy_ids() { # MODEL CASE N
    local ids
    read -ra ids <<<"$(case_member "$1" "$2" greedy_ids)"
    echo "${ids[*]:0:$3}"
}

# A text of a case, without a newline: prompt or greedy_text.
reference_text() { case_member "$@"; } # MODEL CASE MEMBER

# A shape of a few thousand weights.
tiny_shape() { # FILE [KEY VALUE]...
    local file=$1
    shift
    printf 'family llama\nlayers 2\nhidden 64\nheads 4\nkv_heads 2\nffn 96\nvocab 300\ncontext 128\nnorm_eps 1e-5\neos 0\n' >"$file"
    while [ $# -gt 1 ]; do
        sed -i "/^$1 /d" "$file"
        echo "$1 $2" >>"$file"
        shift 2
    done
}

# ---- samples ----

# True for one call in N, selected by BMC_SEED, which setup_file sets; with BMC_FULL=1 for all.
sampled() { # N
    [ "$BMC_FULL" = 1 ] || [ $(((sampled_calls++ + BMC_SEED) % $1)) -eq 0 ]
}

# pick VARIABLE VALUE..: sets it to one of the values. (RANDOM in $() or a pipeline does not follow from the seed.)
pick() { printf -v "$1" %s "${@:2+RANDOM%($#-1):1}"; }

# ---- memory ----

# Peak memory of a conversion that has read all of SOURCE once, in KiB: with a pipe as output, the first byte follows that.
convert_peak() { # SOURCE
    local pid
    mkfifo pipe
    "$BMC_BIN/bmc-convert" "$1" -o pipe 3>&- 2>/dev/null &
    pid=$!
    exec 5<pipe
    head -c 1 <&5 >/dev/null
    awk '$1 == "VmHWM:" { print $2 }' /proc/$pid/status
    exec 5<&-
    wait $pid || true # the rest is not read
    rm pipe
}

# ---- bytes ----

# Bytes of a number, little-endian: bytes_le COUNT NUMBER
bytes_le() {
    local i byte text=
    for ((i = 0; i < $1; i++)); do
        printf -v byte '\\x%02x' $(($2 >> 8 * i & 255))
        text+=$byte
    done
    printf '%b' "$text"
}

number_at() { # FILE OFFSET BYTES
    local number
    read -r number < <(od -An -v -tu"$3" -j "$2" -N "$3" "$1")
    echo "$number"
}

# patch FILE OFFSET: overwrites bytes with standard input.
patch() { dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

# Updates the hash of a snapshot whose header or tables were patched.
reseal_kv() {
    local hash
    head -c 32 /dev/zero | patch "$1" 64
    hash=$({ head -c 4096 "$1" && tail -c "$(number_at "$1" 32 8)" "$1"; } | b2sum -l 256)
    printf '%b' "$(sed 's/ .*//; s/../\\x&/g' <<<"$hash")" | patch "$1" 64
}

flip() { # FILE OFFSET
    bytes_le 1 $(($(number_at "$1" "$2" 1) ^ 1)) | patch "$1" "$2"
}

# edit_safetensors FILE JQ-PROGRAM: edits the header and keeps the data.
edit_safetensors() {
    local size header
    size=$(number_at "$1" 0 8)
    header=$(tail -c +9 "$1" | head -c "$size" | jq -c "$2") || return 1
    {
        bytes_le 8 ${#header}
        printf '%s' "$header"
        tail -c +$((9 + size)) "$1"
    } >"$1.edited"
    mv "$1.edited" "$1"
}

# Offset of a tensor's bytes in a safetensors file.
safetensors_at() { # FILE NAME
    local size
    size=$(number_at "$1" 0 8)
    echo $((8 + size + $(tail -c +9 "$1" | head -c "$size" | jq ".[\"$2\"].data_offsets[0]")))
}

# Updates the header hash of a patched .bmc file (bmc-model(5)).
reseal() {
    local size hash
    size=$(number_at "$1" 16 8)
    head -c 32 /dev/zero | patch "$1" 32
    hash=$(head -c "$size" "$1" | b2sum -l 256)
    printf '%b' "$(sed 's/ .*//; s/../\\x&/g' <<<"$hash")" | patch "$1" 32
}
