#!/bin/sh
# Several instances against one process (BMC paper, VIII: figure 14 and table VII in form):
# bmc-prof instances over models of random bf16 weights. Iterative is equivalent to Hugging Face
# transformers, paged to vLLM. Needs `make mpi`; PROF_OPTIONS are more options, as '--launcher
# "mpirun --oversubscribe"' on a busy machine.
#
#   SHAPES   (opt-350m opt-1.3b)    BATCHES  (32,128)
#   LAYERS   layers of the shape (2)
#   PROMPT   (64) and ANSWER (64): tokens of a request
set -eu
shapes=${SHAPES:-opt-350m opt-1.3b} SHAPE=${SHAPES:-opt-350m opt-1.3b}
. "$(dirname "$0")/lib.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-instances.XXXXXX")
trap 'rm -rf "$work"' EXIT

for name in $shapes; do
    sed "s/^layers .*/layers ${LAYERS:-2}/" "models.d/shapes/$name.shape" >"$work/$name.shape"
    bin/bmc-convert --synth "$work/$name.shape" --type bf16 -o "$work/$name.bmc"
    echo
    eval "bin/bmc-prof instances -m \"$work/$name.bmc\" -np ${BATCHES:-32,128} -p ${PROMPT:-64} -n ${ANSWER:-64} -t $threads -r $rounds --format md ${PROF_OPTIONS:-}"
    rm "$work/$name.bmc"
done
