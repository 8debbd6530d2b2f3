#!/bin/sh
# Other engines beside ours: the same weights, the same prompts of ids, greedy tokens compared, alternating rounds after a
# warm-up. A JSON file per cell with all samples; a cell that has its file is skipped, so a run that was stopped continues.
# At the end the page is written from the files. Nothing is downloaded or built here but the driver of llama.cpp:
#
#   PYTHON            an interpreter for our package and this script's own programs (python3)
#   TRANSFORMERS VLLM PACE OPENVINO DEEPSPEED
#                     interpreters with these packages
#   LLAMA, IK         "INCLUDES LIBRARIES" of a llama.cpp and of a fork with the interface of early 2025, each a list of
#                     folders separated by colons; LLAMA_VERSION, IK_VERSION: their commits
#   MODELS            folders in the format of Hugging Face, NAME-f32 or NAME-bf16 (engines/folder.py makes them), beside each
#                     FOLDER.bmc (made if it is missing), and for llama.cpp and OpenVINO FOLDER.gguf (engines/gguf_of.py);
#                     OpenVINO reads FOLDER.openvino.gguf if there is one: it takes f16 files, but none of f32 or bf16;
#                     or GGUF files NAME.gguf, for bmc, llama.cpp and its fork, with NAME.bmc beside each (made if missing)
#   CACHE             cache type for GGUF files, in our name: f16, q8 or q4 (f16)
#   CELLS             BATCHxPROMPT+NEW, u before it for uneven lengths, kBEAMS after it for beam search
#   ENGINES           of bmc, bmc-POLICY, transformers-dynamic, transformers-static, deepspeed, vllm, pace-bmc,
#                     pace-slab_pool, pace-paged, openvino, llama.cpp, ik_llama.cpp (all that are given)
#   ROUNDS, WARM      (5, 1)
#   OUT               folder of the JSON files (engines-out); PAGE: the page (OUT/engines.md)
#   BATCH, CONTEXT    the largest of the cells: llama.cpp's cache is made for them (8, 1280)
#   ENGINE_LOGS       folder for what the engines print
set -eu
OUT=$(realpath -m "${OUT:-engines-out}")
. "$(dirname "$0")/lib.sh"
here=tests/bench/engines PYTHON=${PYTHON:-python3}
BATCH=${BATCH:-8} CONTEXT=${CONTEXT:-1280}
[ -n "${MODELS:-}" ] || { echo "skipped: no models given (MODELS)"; exit 0; }
mkdir -p "$OUT"
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-engines.XXXXXX")
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2154 # of lib.sh
export THREADS="$threads"

# llama_driver NAME FLAGS "INCLUDES LIBRARIES": builds the driver of a llama.cpp.
llama_driver() {
    includes=$(echo "${3% *}" | sed 's/^/-I/; s/:/ -I/g') libraries=$(echo "${3#* }" | sed 's/:/ /g')
    links=$(for folder in $libraries; do printf ' -L%s -Wl,-rpath,%s' "$folder" "$folder"; done)
    # shellcheck disable=SC2086 # options
    ${CC:-cc} -O2 $2 $includes $here/run_llama.c -o "$work/$1" $links -lllama -lggml $4 -ljansson
}

# command_of ENGINE FOLDER TYPE: its driver's command, or nothing if the engine is not given.
command_of() {
    common="--type $3 --threads $threads --sequences $BATCH --context $CONTEXT"
    file=$2.gguf cache=f16
    case $3 in f32) cache=f32 ;; q8 | q4) cache=${3}_0 ;; esac
    case $1 in
    bmc) echo "$PYTHON $here/run_bmc.py $2.bmc $common" ;;
    bmc-*) echo "$PYTHON $here/run_bmc.py $2.bmc $common --kv ${1#bmc-}" ;;
    transformers-*) [ -z "${TRANSFORMERS:-}" ] || echo "$TRANSFORMERS $here/run_transformers.py $2 $common --cache ${1#*-}" ;;
    deepspeed) [ -z "${DEEPSPEED:-}" ] || echo "$DEEPSPEED $here/run_transformers.py $2 $common --engine deepspeed" ;;
    vllm) [ -z "${VLLM:-}" ] || echo "$VLLM $here/run_vllm.py $2 $common" ;;
    pace-*) [ -z "${PACE:-}" ] || echo "$PACE $here/run_pace.py $2 $common --cache ${1#*-}" ;;
    openvino)
        [ ! -f "$2.openvino.gguf" ] || file=$2.openvino.gguf
        [ -z "${OPENVINO:-}" ] || [ ! -f "$file" ] || echo "$OPENVINO $here/run_openvino.py $file $common"
        ;;
    llama.cpp) [ -z "${LLAMA:-}" ] || [ ! -f "$file" ] || echo "$work/llama $file $threads $BATCH $CONTEXT $cache ${LLAMA_VERSION:-unknown}" ;;
    ik_llama.cpp) [ -z "${IK:-}" ] || [ ! -f "$file" ] || echo "$work/ik $file $threads $BATCH $CONTEXT f16 ${IK_VERSION:-unknown}" ;;
    *) echo "engines.sh: $1: no such engine" >&2 && exit 2 ;;
    esac
}

[ -z "${LLAMA:-}" ] || llama_driver llama '' "$LLAMA" -lggml-base
[ -z "${IK:-}" ] || llama_driver ik -DOLD "$IK" ''
all='bmc transformers-dynamic transformers-static deepspeed vllm pace-bmc pace-slab_pool pace-paged openvino llama.cpp ik_llama.cpp'
for model in $MODELS; do
    kind=${model##*-} name=$(basename "${model%-*}") engines=$all source=$model
    case $model in
    *.gguf) model=${model%.gguf} kind=${CACHE:-f16} engines='bmc llama.cpp ik_llama.cpp' name=$(basename "$model") ;;
    esac
    [ -f "$model.bmc" ] || bin/bmc-convert -q "$source" -o "$model.bmc"
    for engine in ${ENGINES:-$engines}; do
        command=$(command_of "$engine" "$model" "$kind")
        [ -z "$command" ] || echo "$engine $command"
    done >"$work/engines"
    # shellcheck disable=SC2154 # of lib.sh
    "$PYTHON" $here/compare.py "$OUT" "$work/engines" "${CELLS:-1x128+32 8x128+32 8x1024+16 u8x1024+16 1x512+1 1x128+32k4}" "$rounds" "${WARM:-1}" \
        "$name" "$kind" "$(bin/bmc-convert --info "$model.bmc" | awk '$1 == "tokenizer_ids" { print $2 }')"
done
"$PYTHON" $here/page.py "$OUT" >"${PAGE:-$OUT/engines.md}"
