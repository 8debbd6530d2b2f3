#!/bin/sh
# The papers' experiments on a GPU, in small form, with the backend opencl, within ten minutes: figure 15 and tables VIII and IX
# of the BMC paper, tables 12 and 13 of the HeadInfer paper (14 is left out) and its bound on the device's memory, batched
# speculation of the BASS paper, rates by type of weights,
# and, where they are given, llama.cpp's own backend on the same GGUF file. Ends with status 0 and a sentence where no
# driver is that of a GPU; ANY=1 measures whatever device there is, whose times claim nothing then ("form": true).
#
#   OUT      JSON file that is written: the device, and for each section the command and its rows with raw samples
#            (build/opencl.json)
#   SHAPE    shape with random weights (tinyllama-1.1b), LAYERS of it (8), TYPES of its weights (bf16 q8_0 q4_0 q4_k q6_k)
#   BLOCK    shape of figure 15, attention of one layer (opt-13b), for BLOCK_BATCH sequences (32)
#   MODEL    model with a draft model for speculation (models.d/grimm.bmc), DRAFT (models.d/grimm-draft.bmc)
#   GGUF     GGUF file that both engines run, and LLAMA_BENCH, llama.cpp's program, built with its backend for the GPU
#   N        tokens decoded from an empty cache (1024)        DEPTHS   of HeadInfer's tables ("1024 8192 32768")
#   BATCHES  of table IX and BASS (1,8)                       ROUNDS   alternating rounds (3)
#   RAM      of headwise (16M); of MODEL, which is smaller, RAM_OF_MODEL (1M), behind PROMPT tokens (768)
#   TUNE     options of bmc-tune (--megabytes 256)
#   SECONDS_IN_ALL   what is left out then is said (540); a section has SECONDS_EACH (80)
#
# Needs jq, and build/gcc/tests/opencl_device (`make all tests`).
set -eu
export BMC_CONFIG=none
cd "$(dirname "$0")/../.."

out=${OUT:-build/opencl.json} shape=${SHAPE:-tinyllama-1.1b} layers=${LAYERS:-8} rounds=${ROUNDS:-3} n=${N:-1024}
model=${MODEL:-models.d/grimm.bmc} draft=${DRAFT:-models.d/grimm-draft.bmc} batches=${BATCHES:-1,8}
all=${SECONDS_IN_ALL:-540} each=${SECONDS_EACH:-80}
device=$("${BUILD:-build/gcc}/tests/opencl_device" --info) || {
    [ $? -eq 77 ] || exit 1 # not built
    echo "nothing to measure: ${device#skipped: }"
    exit 0
}
form=false
case $device in
'device of a CPU'*)
    if [ -z "${ANY:-}" ]; then
        echo "nothing to measure: the only OpenCL driver is that of a CPU ($device); ANY=1 measures it"
        exit 0
    fi
    form=true
    ;;
esac
began=$(date +%s)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
: >"$work/sections"

seconds() { echo $(($(date +%s) - began)); }

# The seconds that a section has: at most SECONDS_EACH, and no more than are left.
time_of_section() {
    left=$((all - $(seconds)))
    [ "$left" -lt "$each" ] || left=$each
    echo "$left"
}

# keep NAME COMMAND ROWS WHY: adds a section; rows are those of a file, WHY says what they lack.
keep() {
    jq -nc --arg name "$1" --arg command "$2" --slurpfile rows "$3" --arg why "$4" --argjson at "$(seconds)" \
        '{section: $name, command: $command, ended_s: $at, rows: $rows} + if $why == "" then {} else {left_out: $why} end' >>"$work/sections"
    [ -z "$4" ] || echo "$1: $4"
}

# section NAME COMMAND..: a command that prints rows, one line of JSON each, within the section's time.
section() {
    name=$1
    shift
    limit=$(time_of_section)
    if [ "$limit" -le 0 ]; then
        : >"$work/rows"
        keep "$name" "$*" "$work/rows" 'left out, as the time is over'
        return
    fi
    why=
    timeout "$limit" "$@" >"$work/rows" 2>"$work/error" || why="ended with status $? ($(tail -n 1 "$work/error" | cut -c1-200)) within $limit s"
    jq -c . "$work/rows" >"$work/whole" 2>/dev/null || [ -n "$why" ] || why='printed no rows'
    keep "$name" "$*" "$work/whole" "$why"
}

prof() {
    name=$1 job=$2
    shift 2
    section "$name" bin/bmc-prof "$job" --backend opencl --shape "$shape" --layers "$layers" -r "$rounds" --warmup 0 --format jsonl "$@"
}

# alternate NAME: runs the cases on standard input, "CASE: PROGRAM OPTION..", in alternating rounds, with the requests of
# $work/requests; samples are ms of prefill and decoding.
alternate() {
    name=$1
    limit=$(($(seconds) + $(time_of_section)))
    why=
    cat >"$work/cases"
    : >"$work/samples"
    for _ in $(seq "$rounds"); do
        while IFS= read -r line; do
            rest=$((limit - $(seconds)))
            if [ "$rest" -le 0 ]; then
                why='left out in part, as the time is over'
                break
            fi
            rm -f "$work/stats"
            # shellcheck disable=SC2086 # options
            # an interrupted run has statistics, too, of a part of its tokens
            timeout "$rest" bin/${line#*: } -m "$model" -q --temp 0 --ignore-eos --backend opencl --stats "$work/stats" <"$work/requests" >/dev/null 2>"$work/error" || {
                why="${line%%: *}: ended with status $? ($(tail -n 1 "$work/error" | cut -c1-200))"
                continue
            }
            jq -c --arg case "${line%%: *}" '{case: $case, ms: (.prefill_ms + .decode_ms), stats: .}' "$work/stats" >>"$work/samples"
        done <"$work/cases"
    done
    jq -sc 'group_by(.case)[] | {policy: .[0].case, samples: {total_ms: map(.ms)}, total_ms: (map(.ms) | sort | .[(length - 1) / 2 | floor]),
        device_peak_bytes: .[-1].stats.device_peak_bytes, logits_hash: .[-1].stats.logits_hash, stats: .[-1].stats}' "$work/samples" >"$work/rows"
    keep "$name" "alternating, -m $model: $(tr '\n' ';' <"$work/cases")" "$work/rows" "$why"
}

# requests B TOKENS: a batch of B prompts.
requests() { jq -nc --argjson b "$1" --argjson n "$2" 'range($b) | {prompt: "Once upon a time \(.)", n: $n}' >"$work/requests"; }

echo "$device; $(bin/bmc-gen --version | head -n 1); $shape, $layers layers, N = $n, $rounds rounds"
section 'BMC figure 15' bin/bmc-prof policies --backend opencl --shape "${BLOCK:-opt-13b}" --layers 1 -N "$n" -np "${BLOCK_BATCH:-32}" \
    --kv bmc:T=1,bmc:T=4,bmc:T=16,bmc:T=32,bmc:T=64,bmc:T=256 -r "$rounds" --warmup 0 --format jsonl
# shellcheck disable=SC2086 # options
section 'T by the cost model' bin/bmc-tune --backend opencl --shape "$shape" -N "$n" --state cold -r 3 --seconds 20 ${TUNE:---megabytes 256} --no-batch-knee --dry-run --format jsonl
prof 'BMC table IX' bench -p 0 -n "$((n / 4))" -np "$batches" --kv iterative,upfront,bmc,paged:16
: >"$work/requests"
for t in 1 4 16 64; do
    echo "T = $t: bmc-spec -p Once -c $n -n $((n / 4)) -md $draft --draft-max 8 --kv bmc:T=$t,grow=now"
done | alternate 'BMC table VIII'
for depth in ${DEPTHS:-1024 8192 32768}; do
    prof "HeadInfer tables 12 and 13, $depth tokens" bench -d "$depth" -p 128 -n 16 --kv "upfront,headwise:ram=${RAM:-16M}"
done
# The same logits, with less of the device's memory.
jq -nc --argjson n "${PROMPT:-768}" '{prompt_ids: [range($n) | . % 97 + 300], n: 8}' >"$work/requests"
for kv in upfront "headwise:ram=${RAM_OF_MODEL:-1M}"; do echo "$kv: bmc-gen -c $((${PROMPT:-768} + 64)) --jsonl --chunk 64 --kv $kv"; done |
    alternate 'HeadInfer, memory of the device'
# Streaming heads are evicted in the CPU's cache alone, and a device refuses the list.
: >"$work/rows"
keep 'HeadInfer table 14' 'bmc-gen --kv headwise --retrieval-heads LIST' "$work/rows" 'left out: a device has no streaming heads'
for b in $(echo "$batches" | tr , ' '); do
    requests "$b" "$((n / 8))"
    alternate "BASS, $b sequences" <<END
plain: bmc-gen -c $n --jsonl -np $b
speculation: bmc-spec -c $n --jsonl -np $b -md $draft
END
done
for type in ${TYPES:-bf16 q8_0 q4_0 q4_k q6_k}; do
    prof "weights of type $type" bench -p 512 -n 64 --type "$type"
done
if [ -n "${GGUF:-}" ]; then
    section 'GGUF file' bin/bmc-prof bench --backend opencl -m "$GGUF" -p 512 -n 64 -r "$rounds" --format jsonl
    [ -z "${LLAMA_BENCH:-}" ] || section 'GGUF file, llama.cpp' "$LLAMA_BENCH" -m "$GGUF" -p 512 -n 64 -r "$rounds" -ngl 99 -o jsonl
fi

jq -s --arg device "${device#*: }" --argjson form "$form" --arg date "$(date -u +%Y-%m-%d)" --arg version "$(bin/bmc-gen --version | head -n 1)" \
    '{device: $device, form: $form, date: $date, version: $version, sections: .}' "$work/sections" >"$work/out"
mkdir -p "$(dirname "$out")"
mv "$work/out" "$out"
# Of a row, what it is of, and its main figures with all samples.
jq -r '.sections[] | "\n\(.section)" + (if .left_out then " (\(.left_out))" else "" end), (.rows[] |
    "  " + ([.test, .policy, (if .batch then "batch \(.batch)" else empty end), (if .n_prompt then "\(.n_prompt) + \(.n_gen) tokens" else empty end), (if .T_pow2 then "T \(.T_pow2)" else empty end)] | map(select(. != null)) | join(", ")) +
    ": " + ([(.samples // (if .avg_ts then {"tok/s": [.avg_ts]} else {} end) | to_entries[] | "\(.key) \(.value | map(. * 100 | round / 100) | join(" "))"), (if .roof_share then "share of the copy rate \(.roof_share * 100 | round / 100)" else empty end),
            (if .device_peak_bytes then "\(.device_peak_bytes) bytes of the device" else empty end), .logits_hash // empty] | join("; ")))' "$out"
[ "$form" = false ] || echo 'form only: the device is a CPU'
echo "written to $out"
