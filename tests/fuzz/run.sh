#!/bin/sh
# Runs every fuzz target, or those named, for FUZZ_SECONDS (60) each. Needs clang with its runtime
# (Debian: clang, libclang-rt-14-dev). Findings are left in the corpus folder's place under build/fuzz.
set -eu
cd "$(dirname "$0")/../.."

seconds=${FUZZ_SECONDS:-60}
out=build/fuzz
mkdir -p "$out"
sources="$(ls lib/text/*.c lib/format/*.c) lib/base/err.c lib/base/mem.c lib/base/file.c lib/base/hash.c lib/base/hash_pieces.c
lib/base/json.c lib/base/conf.c lib/base/pack.c lib/base/threads.c lib/model/config.c lib/model/family.c
lib/model/roles.c lib/model/weights.c lib/tune/profile.c lib/tune/profile_write.c lib/tune/curve.c lib/tune/costmodel.c
lib/tune/freerows.c"

for target in ${*:-$(cd tests/fuzz && ls fuzz_*.c | sed 's/fuzz_\(.*\)\.c/\1/')}; do
    # shellcheck disable=SC2086 # sources are words
    clang -D_GNU_SOURCE -std=gnu11 -g -O1 -Ilib \
        -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
        -o "$out/$target" "tests/fuzz/fuzz_$target.c" $sources \
        -lsodium -ljansson -lpcre2-8 -lutf8proc -lm -pthread
    mkdir -p "$out/corpus_$target" "tests/corpus/$target"
    status=0
    "$out/$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=25 -print_final_stats=1 \
        -artifact_prefix="$out/$target-" "$out/corpus_$target" "tests/corpus/$target" >"$out/$target.log" 2>&1 ||
        status=$?
    echo "$target: $(grep -oE 'number_of_executed_units: [0-9]+' "$out/$target.log" | tail -n 1)"
    if [ "$status" -ne 0 ]; then
        grep -E 'SUMMARY|ERROR|Test unit written' "$out/$target.log" >&2
        exit 1
    fi
done
