#!/bin/sh
# Instructions of the inner loops of ARM's int8 kernels, and the cycles that they take in the port models of llvm-mca:
# no ARM machine is needed. Needs Debian's cross compiler (`make check-arm` installs it) and llvm-mca.
#
#   sh tests/bench/arm_instructions.sh
#
# Prints, for the longest loop with products in each function: instructions, those that multiply, bytes multiplied per
# instruction that multiplies, instructions per 64 multiply-adds, and cycles per 64 multiply-adds by processor.
set -eu
cd "$(dirname "$0")/../.."

build=build/aarch64-linux-gnu-gcc
cpus=${CPUS:-neoverse-n2 apple-m1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# loop FUNCTION MULTIPLY: the longest loop of a disassembled function that has products.
loop() {
    awk -v multiply="$2" '
        /^ *[0-9a-f]+:\t/ {
            split($0, part, "\t")
            sub(/^ +/, "", part[1]); sub(/:$/, "", part[1])
            at[part[1]] = ++n
            text[n] = part[3] " " part[4]
            sub(/ +\/\/.*/, "", text[n])
            if (part[3] ~ /^(b\.|cbn?z|b$)/ && match(part[4], /[0-9a-f]+ </)) {
                target = substr(part[4], RSTART, RLENGTH - 2)
                if (target in at) {
                    products = 0
                    for (i = at[target]; i <= n; i++) products += text[i] ~ multiply
                    if (products > most) { most = products; first = at[target]; last = n }
                }
            }
        }
        END { for (i = first; i < last; i++) print text[i] }' "$1"
}

echo "| set | kernel | instructions | products | multiply-adds each | per 64 multiply-adds |$(printf ' cycles, %s |' $cpus)"
echo "| --- | --- | --- | --- | --- | --- |$(printf ' --- |%.0s' $cpus)"
while read -r set object function multiply each; do
    make -s CROSS=aarch64-linux-gnu- OPT='-O2 -g' "$build/lib/kernel/arm/$object.o"
    aarch64-linux-gnu-objdump -d --no-show-raw-insn "--disassemble=$function" "$build/lib/kernel/arm/$object.o" >"$work/function"
    awk -F '\t' 'BEGIN { OFS = FS } NF > 1 { $3 = $2 FS $3; $2 = "" } { print }' "$work/function" >"$work/fields"
    loop "$work/fields" "^$multiply" >"$work/loop"
    products=$(grep -c "^$multiply" "$work/loop")
    awk -v set="$set" -v function_="$function" -v n="$(($(wc -l <"$work/loop") + 1))" -v products="$products" -v each="$each" \
        'BEGIN { printf "| %s | %s | %d | %d | %d | %.2f |", set, function_, n, products, each, n * 64 / (products * each) }'
    for cpu in $cpus; do
        llvm-mca -mtriple=aarch64 -mcpu="$cpu" -mattr=+i8mm,+dotprod -iterations=100 "$work/loop" 2>/dev/null |
            awk -v work="$((products * each))" '/^Total Cycles/ { printf " %.2f |", $3 / 100 * 64 / work }'
    done
    echo
done <<LIST
neon kernels_int8_neon int8_tile_Q8_CHANNEL smull 8
neon kernels_int8_neon int8_tile_Q8_0 smull 8
dotprod kernels_dotprod int8_tile_Q8_CHANNEL sdot 16
dotprod kernels_dotprod int8_tile_Q8_0 sdot 16
dotprod kernels_dotprod smallm_Q8_0_ROW sdot 16
dotprod kernels_dotprod smallm_Q4_0_ROW sdot 16
i8mm kernels_i8mm int8_tile_Q8_CHANNEL usmmla 32
i8mm kernels_i8mm int8_tile_Q8_0 usmmla 32
LIST
