# Build, linking and lazy loading of libraries, and installation.
load ../helper

setup_file() {
    model grimm >/dev/null
    # A dlopen() without oneDNN, and without OpenBLAS or with the library FAKE_BLAS in its place.
    cat >"$BATS_FILE_TMPDIR/loader.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
void *dlopen(const char *file, int flags)
{
    void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    if (file && strstr(file, "dnnl"))
        return NULL;
    if (!file || !strstr(file, "openblas"))
        return real(file, flags);
    return getenv("FAKE_BLAS") ? real(getenv("FAKE_BLAS"), flags) : NULL;
}
END
    cat >"$BATS_FILE_TMPDIR/fake.c" <<'END'
void cblas_sgemm(void) {}
void cblas_sgemv(void) {}
int omp_get_max_threads(void) { return 1; }
void omp_set_num_threads(int n) { (void)n; }
int openblas_get_parallel(void) { return PARALLEL; }
const char *openblas_get_config(void) { return "OpenBLAS with threads of its own"; }
END
    (
        cd "$BATS_FILE_TMPDIR" || exit 1
        gcc -shared -fPIC -o loader.so loader.c && gcc -shared -fPIC -DPARALLEL=1 -o other.so fake.c
        gcc -shared -fPIC -o empty.so -x c /dev/null
    )
}

# ---- OpenBLAS and oneDNN ----

# with_blas FAKE COMMAND..: replaces OpenBLAS by that library; "": by none.
with_blas() {
    env LD_PRELOAD="$BATS_FILE_TMPDIR/loader.so" ${1:+FAKE_BLAS="$BATS_FILE_TMPDIR/$1"} "${@:2}"
}

# Command lines of every program that load OpenBLAS.
blas_commands() {
    printf '%s\n' "bmc-gen -p x -n 1 --isa blas" "bmc-gen -p x -n 1 --attn blas" "bmc-spec -p x -n 1 --attn blas" \
        "bmc-prof latency -m $(model grimm) --isa blas" \
        "bmc-tune -m $(model grimm) --attn blas --dry-run" "bmc-tune --isa blas --dry-run"
}

@test "OpenBLAS is loaded by --isa blas and --attn blas only" {
    loaded() { LD_DEBUG=files "$BMC_BIN/bmc-gen" -m "$(model grimm)" -p Once -n 1 "$@" 2>&1 | grep -c 'init:.*openblas'; }
    run loaded
    assert_output 0
    run loaded --attn blas
    assert_output 1
    run loaded --isa blas
    assert_output 1
}

@test "with little address space programs start, and OpenBLAS reports what it needs" {
    if sanitized; then skip "address space of a sanitizer"; fi
    ulimit -v 300000
    ok timeout 20 "$BMC_BIN/bmc-gen" --help
    run timeout 20 "$BMC_BIN/bmc-gen" -m "$(model grimm)" -p Once -n 2 -t 1
    assert_success
    expect_error 1 'OpenBLAS needs [0-9]+ MiB of address space for 1 threads: ' \
        timeout 20 "$BMC_BIN/bmc-gen" -m "$(model grimm)" -p Once -n 2 -t 1 --isa blas
}

@test "without OpenBLAS and oneDNN everything else works, and loading them is an error of one sentence" {
    if sanitized; then skip "its runtime wants to be loaded first"; fi
    ok with_blas '' "$BMC_BIN/bmc-gen" --version
    run with_blas '' "$BMC_BIN/bmc-gen" -m "$(model grimm)" -p Once -n 2
    assert_success
    while read -ra words; do
        run --separate-stderr with_blas '' "$BMC_BIN/${words[0]}" "${words[@]:1}"
        assert_failure 1
        assert_equal "$output" ''
        assert_regex "$stderr" "^${words[0]}: [^"$'\n'"]*OpenBLAS cannot be loaded \(.*\); install libopenblas0-openmp$"
    done < <(blas_commands)
    expect_error 1 'oneDNN cannot be loaded \(.*\); install libdnnl2' \
        with_blas '' "$BMC_BIN/bmc-gen" -m "$(model grimm)" -p x -n 1 --attn onednn
    assert_folder
}

@test "builds of OpenBLAS other than OpenMP are refused" {
    if sanitized; then skip "its runtime wants to be loaded first"; fi
    expect_error 1 '\(OpenBLAS with threads of its own\) is not the OpenMP build' \
        with_blas other.so "$BMC_BIN/bmc-gen" -p x -n 1 --isa blas
    expect_error 1 'OpenBLAS .* has no cblas_sgemm' with_blas empty.so "$BMC_BIN/bmc-gen" -p x -n 1 --attn blas
}

@test "--version names the OpenBLAS that would be loaded" {
    ok bmc-gen --version
    file=$(sed -n 's/^libraries: .*; for blas OpenBLAS, //p' <<<"$output")
    [[ $file == libopenblas.so.0 ]] || [ -f "$file" ]
}

@test "big-endian machines are refused at build time" {
    check() { gcc -fsyntax-only -std=gnu11 -D_GNU_SOURCE -I"$ROOT/lib" -include "$ROOT/lib/base/first.h" "$@" "$ROOT/lib/format/bmc/bmcfile.c" 2>&1; }
    check
    run check -Wno-builtin-macro-redefined -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__
    assert_failure
    assert_output --partial "little-endian only"
}

# ---- fuzzing corpus ----

@test "no name of ours is one of a library: programs can be linked statically, as with musl" {
    if sanitized; then skip "objects are elsewhere"; fi
    for name in jansson sodium pcre2-8 utf8proc protobuf-c z uring; do
        file=$(gcc -print-file-name=lib$name.a)
        [ ! -f "$file" ] || nm -g --defined-only "$file"
    done 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u >theirs
    find "$BMC_BUILD" -path '*/lib/*.o' -exec nm -g --defined-only {} + | awk 'NF == 3 { print $3 }' | sort -u >ours
    [ "$(wc -l <theirs)" -gt 300 ]
    grep -qx json_loads theirs
    grep -qx session_open ours
    assert_equal "$(comm -12 ours theirs)" ''
}

# musl has none of these; in #ifdef they are fine.
@test "functions that only glibc has are used only where they exist" {
    cd "$ROOT" || return 1
    run grep -nE '\<(mallinfo2?|execinfo|backtrace|program_invocation_(short_)?name|canonicalize_file_name|fopencookie|pthread_[a-z_]*_np|strerror(name|desc)_np|TEMP_FAILURE_RETRY|sys/cdefs\.h|error\.h|argp\.h)\>' -r lib cmd --include='*.[ch]'
    assert_output ''
    assert_equal "$(grep -rlE '\<(malloc_trim|mallopt|_SC_LEVEL[0-9])' lib cmd --include='*.c' | sort | paste -sd' ')" 'lib/base/cores.c lib/base/vm.c'
    [ "$(cat lib/base/vm.c lib/base/cores.c | grep -cE '^#ifdef (__GLIBC__|_SC_LEVEL3_CACHE_SIZE)')" -eq 2 ]
}

@test "every fuzz target accepts its corpus" {
    assert_equal "$(ls "$ROOT/tests/corpus")" "$(basename -as .c "$ROOT"/tests/fuzz/*/fuzz_*.c | sed 's/^fuzz_//' | sort)"
    for folder in "$ROOT"/tests/corpus/*; do
        run --separate-stderr "$BMC_BUILD/fuzz/$(basename "$folder")" "$folder"/*
        assert_success
        assert_output "$(ls "$folder" | wc -l) inputs"
    done
}

# ---- the tests ----

@test "a failing test reports its line without Bats' tracing" {
    cp "$ROOT/tests/quick.bash" .
    printf '%s\n' 'load quick' 'same() { assert_equal "$1" b; }' '@test "t" {' '    run false' '    same b' '    same a' '    true' '}' >t.bats
    run env -u BATS_RUN_TMPDIR bats t.bats
    assert_failure 1
    assert_line --partial "from function \`same' in file t.bats, line 2,"
    assert_line --partial 'in test file t.bats, line 6)'
}

# ---- installing ----

installing() { make -s -C "$ROOT" --no-print-directory "$@"; }

@test "a program built with the installed library by pkg-config generates text" {
    if sanitized; then skip "the library needs its sanitizer"; fi
    ok installing install PREFIX="$PWD/usr"
    export PKG_CONFIG_PATH=$PWD/usr/lib/pkgconfig
    export LD_LIBRARY_PATH=$PWD/usr/lib
    for static in '' --static; do
        libs=$(pkg-config --cflags --libs $static bmc)
        [ -z $static ] || libs=${libs/-lbmc/-l:libbmc.a}
        # shellcheck disable=SC2086 # words
        ok gcc -Wall -Werror "$ROOT/tests/example/continue.c" $libs -o continue
        assert_equal "$(readelf -d continue | grep -c 'NEEDED.*\[libbmc\.so\.0\]')" $([ $static ] && echo 0 || echo 1)
        ok ./continue usr/share/bmc/grimm.bmc "$(reference_text grimm 0 prompt)" 8
        assert_equal "$output" "$(usr/bin/bmc-gen -q --echo --temp 0 -p "$(reference_text grimm 0 prompt)" -n 8)"
    done
    run --separate-stderr ./continue none.bmc x 1
    assert_failure 1
    assert_equal "$output" ''
    assert_regex "$stderr" '^continue: none.bmc: .*No such file'
    run ./continue
    assert_failure 2
}

@test "the shared library exports what bmc.h declares, and has a soname" {
    if sanitized; then skip "the library needs its sanitizer"; fi
    so=$ROOT/lib/libbmc.so
    nm -D --defined-only "$so" | awk '{ print $3 }' | sort >exported
    grep -oE '\bbmc_[a-z_]+\(' "$ROOT/lib/bmc.h" | tr -d '(' | sort -u >declared
    [ "$(wc -l <declared)" -ge 15 ]
    run diff declared exported
    assert_success
    readelf -d "$so" | grep -q 'SONAME.*\[libbmc\.so\.0\]'
    [ "$ROOT/lib/libbmc.so.0" -ef "$so" ]
}

@test "uninstall removes exactly the installed files" {
    if sanitized; then skip "the plain build is what is installed"; fi
    ok installing install DESTDIR="$PWD/root" PREFIX=/opt/it
    [ "$(find root -type f | wc -l)" -ge 50 ]
    for file in bin/bmc-gen lib/libbmc.a lib/pkgconfig/bmc.pc include/bmc.h share/bmc/grimm.bmc share/man/man7/bmc.7; do
        [ -s "root/opt/it/$file" ] || fail "$file"
    done
    assert_equal "$(sed -n 's/^prefix=//p' root/opt/it/lib/pkgconfig/bmc.pc)" /opt/it
    [ -x root/opt/it/bin/bmc-gen ]
    [ ! -x root/opt/it/lib/libbmc.a ]
    [ -s root/opt/it/lib/libbmc.so ]
    assert_equal "$(readlink root/opt/it/lib/libbmc.so.0)" "libbmc.so.$(sed -n 's/^VERSION = //p' "$ROOT/Makefile")"
    echo theirs >root/opt/it/share/bmc/own.bmc
    ok installing uninstall DESTDIR="$PWD/root" PREFIX=/opt/it
    assert_equal "$(find root -type f)" root/opt/it/share/bmc/own.bmc
    assert_equal "$(find root -type d | sort | xargs)" 'root root/opt root/opt/it root/opt/it/share root/opt/it/share/bmc'
    assert_equal "$(find root -type l)" ''
    # Without that file nothing is left but folders that are the system's.
    rm root/opt/it/share/bmc/own.bmc
    ok installing uninstall DESTDIR="$PWD/root" PREFIX=/opt/it
    assert_equal "$(find root -type d | sort | xargs)" 'root root/opt'
    mkdir -p root/usr/local/{bin,lib,share/man/man1}
    ok installing uninstall DESTDIR="$PWD/root" PREFIX=/usr/local
    assert_equal "$(cd root/usr/local && find . -type d | sort | xargs)" '. ./bin ./lib ./share ./share/man'
}

@test "objects depend on their compiler flags" {
    mkdir lib
    cp -r "$ROOT"/lib/base lib
    made() { make -s -f "$ROOT/Makefile" BUILD=build "$@" build/lib/base/err.o V=1 >log && stat -c %y build/lib/base/err.o; }
    first=$(made)
    assert_equal "$(made)" "$first"
    second=$(made OPT=-O0)
    [ "$second" != "$first" ]
    assert_equal "$(made OPT=-O0)" "$second"
}

# ---- the commit ----

@test "--version of every program and the rows of bmc-prof name the same commit" {
    bmc-prof() { "$BMC_BIN/bmc-prof" "$@"; }
    bmc-gen --version | sed -n 's/^commit: *//p' >commit
    # Empty for a build outside git.
    if git -C "$ROOT" rev-parse HEAD >/dev/null 2>&1; then grep -qE '^[0-9A-Za-z._-]+$' commit || fail "$(bmc-gen --version)"; fi
    for program in bmc-convert bmc-spec bmc-prof bmc-tune; do $program --version | sed -n 's/^commit: *//p' | diff commit -; done
    bmc-prof roof -r 1 -t 1 --megabytes 1 --format jsonl | jq -r '.commit // empty' | diff commit -
}

# made: the commit by the Makefile of this folder.
made() {
    make -s BUILD=b b/commit.c
    sed -n 's/.*= "\(.*\)";$/\1/p' b/commit.c
}

@test "the commit follows git: new commits, changed files, empty outside git and inside another repository" {
    export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    export GIT_CEILING_DIRECTORIES=$PWD # not that of a folder above the tests
    mkdir tree
    cp "$ROOT/Makefile" tree
    cd tree
    assert_equal "$(made)" ""
    git init -q .
    echo b >.gitignore
    echo 1 >file
    git add .
    git commit -qm one
    one=$(git rev-parse --short=12 HEAD)
    assert_equal "$(made)" "$one"
    touch -d '1 hour ago' b/commit.c stamp
    assert_equal "$(made)" "$one"
    [ ! b/commit.c -nt stamp ] # not rewritten if unchanged, so nothing is rebuilt
    echo 2 >file
    assert_equal "$(made)" "$one-dirty"
    git commit -qam two
    assert_equal "$(made)" "$(git rev-parse --short=12 HEAD)"
    [ "$(made)" != "$one" ]
    mkdir below && cp Makefile below && cd below || return 1
    assert_equal "$(made)" ""
}

@test "a new commit recompiles one file" {
    [[ $BMC_BUILD == "$ROOT"/build/* ]] || skip "built elsewhere"
    cd "$ROOT" || return 1
    # make -n treats targets made "always" as changed; -o excludes the flags.
    make -n V=1 -o "${BMC_BUILD#"$ROOT"/}/flags" programs >"$BATS_TEST_TMPDIR/commands"
    assert_equal "$(grep -E ' -c -o ' "$BATS_TEST_TMPDIR/commands" | sed 's/.* //')" "${BMC_BUILD#"$ROOT"/}/commit.c"
    assert_equal "$(grep -cE ' -o [^ ]*bin/bmc-' "$BATS_TEST_TMPDIR/commands")" "$(pkg-config --exists libmicrohttpd && echo 6 || echo 5)"
}
