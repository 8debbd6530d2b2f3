#!/bin/sh
# Runs every fuzz target, or those named, for FUZZ_SECONDS (60) each. Needs clang with its runtime
# (Debian: clang, libclang-rt-14-dev). Findings are left in the corpus folder's place under build/fuzz.
set -eu
cd "$(dirname "$0")/../../.."

seconds=${FUZZ_SECONDS:-60}
out=build/fuzz
mkdir -p "$out"
libedit=$(echo '#include <histedit.h>' | clang -E - >/dev/null 2>&1 && echo -ledit) || true
make -s CC=clang SANITIZE=fuzzer-no-link,address,undefined BUILD="$out" "$out/libcore.a" "$out/libcmd.a"

for target in ${*:-$(basename -as .c tests/fuzz/*/fuzz_*.c | sed 's/^fuzz_//' | sort)}; do
    clang -D_GNU_SOURCE -std=gnu11 -g -O1 -include lib/base/first.h -Ilib -I. -Icmd \
        -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
        -o "$out/$target" tests/fuzz/*/"fuzz_$target.c" "$out/libcmd.a" "$out/libcore.a" \
        -lsodium -ljansson -lpcre2-8 -lutf8proc -lzip -lprotobuf-c -luring $libedit -lm -pthread
    mkdir -p "$out/corpus_$target" "tests/corpus/$target"
    status=0
    "$out/$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=25 -print_final_stats=1 -close_fd_mask=3 \
        -artifact_prefix="$out/$target-" "$out/corpus_$target" "tests/corpus/$target" >"$out/$target.log" 2>&1 ||
        status=$?
    echo "$target: $(grep -oE 'number_of_executed_units: [0-9]+' "$out/$target.log" | tail -n 1)"
    if [ "$status" -ne 0 ]; then
        grep -E 'SUMMARY|ERROR|Test unit written' "$out/$target.log" >&2
        exit 1
    fi
done
