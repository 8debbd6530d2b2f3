#!/bin/sh
# Cost of masks of constrained output: mask_cost.sh VOCABULARY.. , GGUF files or folders with tokenizers. Prints the
# figures for the first vocabulary alone (FIRST tokens of it, 32000), and for the union of all, filled up to TOKENS (150000); 60 schemas of
# constrained.py, SAMPLES (20) texts of each.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
make -s build/gcc/bench/mask_cost bin/bmc-convert
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf 'family llama\nlayers 1\nhidden 16\nheads 2\nkv_heads 2\nffn 16\nvocab 64\ncontext 128\nnorm_eps 1e-5\neos 2\n' >"$dir/tiny.shape"
n=0
for source; do
    n=$((n + 1))
    bin/bmc-convert --synth "$dir/tiny.shape" --tokenizer "$source" -o "$dir/$n.bmc"
done
python3 tests/bench/constrained.py --schemas >"$dir/schemas"
chrt -f 50 build/gcc/bench/mask_cost "${FIRST:-32000}" "${SAMPLES:-20}" "$dir/schemas" "$dir/1.bmc"
chrt -f 50 build/gcc/bench/mask_cost "${TOKENS:-150000}" "${SAMPLES:-20}" "$dir/schemas" "$dir"/[0-9].bmc
