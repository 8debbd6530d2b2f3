# The structure of the code: modules, files, what the library may call.
load ../helper

setup() { cd "$ROOT" || return 1; }

# From the bottom up.
modules='base quant report ranks format text kernel backend kv attn cpu opencl model decode serve tune prof api'

# Prints what it finds wrong, and fails then.
assert_none() { # WHAT LINES
    [ -z "$2" ] || fail "$1:"$'\n'"$2"
}

# changed STAMP PATH..: those of these paths that have changed since the last call of passed() for the same stamp, all with BMC_FULL=1.
changed() {
    touch "$BMC_BUILD/$1.begun"
    if [ "$BMC_FULL" = 1 ] || [ ! -e "$BMC_BUILD/$1" ]; then printf '%s\n' "${@:2}"; else find "${@:2}" -maxdepth 0 -cnewer "$BMC_BUILD/$1"; fi
}
passed() { mv "$BMC_BUILD/$1.begun" "$BMC_BUILD/$1"; } # STAMP

# The C files of the given kinds, ours only.
sources() { find lib cmd tests \( -name "*.c" -o -name "*.h" \) -not -path "tests/fixtures/*" | sort; }

@test "modules include only modules to their left" {
    allowed= seen=0
    for module in $modules; do
        allowed+=${allowed:+|}$module
        [ -d "lib/$module" ] || continue
        seen=$((seen + 1))
        assert_none "lib/$module includes from its right" \
            "$(grep -rnE "^ *# *include *(\"|<(${modules// /|})/)" "lib/$module" --include='*.[ch]' | grep -vE "\"($allowed)/[a-z0-9_/]+\.h\"" || true)"
    done
    [ "$seen" -ge 8 ]
    for module in lib/*/; do
        [[ " $modules python " == *" $(basename "$module") "* ]] || fail "$module is not in the list of modules"
    done
    headers=$(find cmd -name '*.h' -printf '%P\n' | paste -sd '|')
    [[ $headers == *'|opt/opt.h'* ]]
    assert_none "lib includes from cmd" "$(grep -lE "# *include *[\"<]($headers)[\">]" -r lib || true)"
}

@test "no struct, enum or union tag is defined twice" {
    tags() { # FILE..
        sed -nE 's/^ *((typedef|static|const) )*(struct|enum|union) ([a-z_0-9]+) \{.*/\4/p' "$@" | sort
    }
    # shellcheck disable=SC2046
    defined=$(tags $(find lib cmd -name '*.[ch]'))
    [ "$(wc -l <<<"$defined")" -ge 300 ]
    assert_none "tags defined twice" "$(uniq -d <<<"$defined")"
    for test in tests/unit/*/*.c tests/example/*.c; do
        assert_none "$test defines tags of the library" "$(tags "$test" | comm -12 - <(uniq <<<"$defined"))"
    done
}

@test "no files use each other in a circle, in no module; headers neither" {
    sources=(cmd/*.c cmd/*/*.c) # not *.o: objects of removed files may be left from an earlier build
    sources=("${sources[@]/#/$BMC_BUILD/}")
    objects=$(nm -A "$BMC_BUILD/libcore.a" "${sources[@]/%.c/.o}")
    [ "$(grep -c ' T ' <<<"$objects")" -ge 500 ]
    assert_none "functions of each other" "$(perl tests/circles.pl <<<"$objects")"
    includes=$(find lib cmd -name '*.h' -exec grep -H '^ *# *include *"' {} +)
    [ "$(wc -l <<<"$includes")" -ge 150 ]
    assert_none "headers include each other" "$(perl tests/circles.pl <<<"$includes")"
}

@test "the search for circles finds them, and no others" {
    run perl tests/circles.pl <<'END'
x/lib.a:a.o:0000000000000010 T a_one
x/lib.a:a.o:                 U b_table
x/lib.a:b.o:0000000000000000 D b_table
x/lib.a:b.o:                 U c_one
x/lib.a:b.o:                 U malloc
x/lib.a:b.o:0000000000000000 t d_one
x/c.o:0000000000000000 T c_one
x/c.o:                 U a_one
x/c.o:                 U d_one
x/d.o:0000000000000000 T d_one
x/d.o:                 U e_one
x/e.o:0000000000000000 T e_one
END
    assert_success
    assert_output "a b c: a uses b_table of b, b uses c_one of c, c uses a_one of a"
    run perl tests/circles.pl <<'END'
lib/x/one.h:#include "x/two.h"
lib/x/two.h:#  include "y/three.h"
lib/y/three.h:#include "x/two.h"
cmd/four.h:#include "x/two.h"
END
    assert_success
    assert_output "three two: three uses two.h, two uses three.h"
}

@test "the library never prints, exits or reads the environment" {
    memory='(aligned_alloc|calloc|free|malloc|mallopt|malloc_trim|realloc|mmap|mremap|mprotect|munmap|madvise|mlock|mem(chr|rchr|cmp|cpy|mem|move|set))'
    strings='(fnmatch|snprintf|vsnprintf|qsort|qsort_r|bsearch|str(chr|rchr|str|cmp|casecmp|ncmp|cpy|cspn|spn|pbrk|dup|ndup|error|len|nlen|sep|tod|tod_l|toll|toull)|(new|free)locale|__isoc23_strto(ll|ull))'
    files='(open|close|fopen|fclose|fgets|__isoc99_sscanf|__isoc23_sscanf|sscanf|dup|fchmod|fchown|fcntl|fstat|lstat|poll|readlink|realpath|stat|fsync|write|pwrite|read|pread|rename|unlink|scandir|alphasort|closedir|opendir|fdopendir|readdir|mkdir|flock|futimens|fstatvfs|(open|unlink|rename|faccess|fstat|utimens)at)'
    system='(clock_gettime|getrandom|getrusage|syscall|getpid|geteuid|nanosleep|sched_([gs]etaffinity|yield)|__sched_cpucount|sysconf|__errno_location|__ctype_b_loc|pthread_mutex_(init|destroy|lock|unlock)|pthread_mutexattr_(init|destroy|settype)|pthread_cond_(init|destroy|signal|wait)|pthread_attr_(init|destroy|setstacksize)|pthread_(create|join|once|key_create|setspecific|sigmask|setaffinity_np)|sig(fill|del)set|_setjmp|(__)?longjmp(_chk)?|strftime|time|gmtime_r)'
    math='(acos|erf|erfc|exp|exp2|expm1|frexp|ldexp|log|log1p|log2|pow|sin|cos|sincos|sqrt|tanh|fma|fmax|fmin|fmod|floor|ceil|lround|nearbyint)f?'
    libraries='(dl(open|sym|error)|json_.*|pcre2_.*|crypto_(generichash|onetimeauth|sign)(_.*)?|sodium_.*|utf8proc_.*|protobuf_c_.*|(__)?io_uring_.*)'
    compiler='(_GLOBAL_OFFSET_TABLE_|__tls_get_addr|__assert_fail|__stack_chk_fail|__(mem|str|v?sn)[a-z]*_chk|__(asan|ubsan|tsan|sanitizer|gcov|gcc|cpu)_.*)'
    run nm "$BMC_BUILD/libcore.a"
    assert_success
    undefined=$(awk '$1 == "U" { print $2 }' <<<"$output" | sort -u)
    defined=$(awk 'NF == 3 { print $3 }' <<<"$output" | sort -u)
    grep -qx dlopen <<<"$undefined" # the list is what it should be
    assert_none "not on the list of what lib/ may call" \
        "$(comm -23 <(echo "$undefined") <(echo "$defined") |
            grep -vxE "$memory|$strings|$files|$system|$math|$libraries|$compiler" || true)"
}

@test "every file opens with a comment that says its job" {
    [ "$(sources | wc -l)" -ge 100 ]
    for file in $(sources); do
        IFS= read -r -N 3 start <"$file"
        [ "$start" = "/* " ] || fail "$file"
    done
    for file in tests/*/*.bats tests/*.bash; do
        IFS= read -r first <"$file"
        [[ $first =~ ^#\ [A-Za-z] ]] || fail "$file"
    done
}

@test "no file beyond 1200 lines, no function beyond 80, no main beyond 60" {
    # shellcheck disable=SC2046
    wc -l $(sources) | sed '$d' >"$BATS_TEST_TMPDIR/lines"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/lines")" -ge 100 ]
    assert_none "files that are too long" "$(awk '$1 > 1200' "$BATS_TEST_TMPDIR/lines")"
    assert_none "pages that are too long" "$(find README.md CONTRIBUTING.md lib cmd tests -name '*.md' -exec wc -l {} + | awk '$1 > 800 && $2 != "total"')"
    assert_none "functions that are too long" "$(
        find lib cmd -name '*.c' -exec awk '
            FNR == 1 { start = 0 }
            /^[a-z].*\(/ { name = $0 }
            /^\{$/ { start = FNR }
            /^\}$/ { if (start && FNR - start - 1 > (name ~ /^int main\(/ ? 60 : 80)) print FILENAME ": " name; start = 0 }
        ' {} +
    )"
}

@test "no statement of a test fails unseen" {
    assert_none "the left side of && fails unseen (tests/swallowed.pl says where it may stand)" "$(perl tests/swallowed.pl tests/*/*.bats tests/*.bash)"
}

@test "the search for statements that fail unseen finds them, and no others" {
    cat >"$BATS_TEST_TMPDIR/some.bats" <<'END'
[[ $a == 'b && c' ]] && [ x ] # 1
{ a && b; } >c # 2
! grep x # 3
if a && b; then c && d; fi # 4
[ a ] && # 5
    [ b ]
x <<<"a b" && y # 7
for i in 1; do a && b; done # 8
f() { a && b; }
x && y || fail "z"
"$(a && b "c")"
cat <<'TEXT'
p && q
TEXT
(cd x && y)
while a && b; do x; done
cmd && return
! grep x || fail
# a && b
END
    run perl tests/swallowed.pl "$BATS_TEST_TMPDIR/some.bats"
    assert_success
    assert_equal "$(cut -d : -f 2 <<<"$output" | paste -sd ' ')" '1 2 3 4 5 7 8'
}

@test "the interface of cache policies has at most thirteen operations" {
    # Tables of operations count, too; struct kv_growth, which parses a parameter of --kv, is none.
    slots=$(awk '/^struct kv_(policy|[a-z_]*ops) \{/ { inside = 1 } inside && /\(\*/ { n++ } /^\};/ { inside = 0 } END { print n }' lib/kv/*.h lib/kv/*/*.h)
    [ "$slots" -ge 5 ]
    [ "$slots" -le 13 ]
}

@test "few lines outside of its folder know of OpenCL, and that backend is small" {
    known=$(grep -rni opencl lib cmd --include='*.[ch]' --include='*.list' | grep -vc '^lib/opencl/')
    [ "$known" -ge 3 ]
    [ "$known" -lt 50 ]
    [ "$(cat lib/opencl/*.[ch] lib/opencl/*.cl | wc -l)" -le 6000 ]
    # INLINE has the reason
    # shellcheck disable=SC2016
    outlined='print "$ARGV: $1\n" while /^(static [^;{]*\blocal\b[^;{]*)\{/mg'
    assert_none "functions that get local arrays and may be called" "$(perl -0777 -ne "$outlined" lib/opencl/*.cl)"
    [ -n "$(perl -0777 -ne "$outlined" <<<$'static float f(uint n,\n local float *x)\n{')" ]
}

@test "nothing searches the sentence of an error, which has a code; only err_no_memory() says out of memory" {
    # shellcheck disable=SC2016
    search='print "$ARGV: $&\n" while /\b(str(n?cmp|n?casecmp|casestr|str|chr|rchr|spn|cspn|pbrk)|mem(mem|cmp|chr))\([^;{}()]*\b(err|error|why|failure)[a-z_]*(\.|->)text\b/g'
    assert_none "searches of sentences" "$(find lib cmd -name '*.[ch]' -print0 | xargs -0 perl -0777 -ne "$search")"
    [ "$(perl -0777 -ne "$search" <<<'if (strstr(job->why.text, "x"))' | wc -l)" -eq 1 ]
    assert_none "out of memory, without its code" "$(grep -rnE '"[^"]*out of memory' lib cmd --include='*.c' |
        grep -vE '^lib/base/err\.c|ERR_NO_MEMORY|json_error_out_of_memory|NULL: |\[NO_MEMORY\]' || true)"
}

@test "no loose ends: to-do marks, code switched off" {
    marks='TO''DO|FIX''ME|\bXX''X\b|#if[ ]0'
    assert_none "loose ends" "$(grep -rnE "$marks" lib cmd tests/*/*.bats tests/*.sh tests/*.bash tests/unit tests/fuzz Makefile || true)"
    assert_none "folders of old code" "$(find lib cmd tests -type d \( -name old -o -name other -o -name attic \))"
}

@test "file names are unique" {
    assert_none "names used twice" "$(find lib cmd man completions tests/unit tests/fuzz tests/*/*.bats tests/*.* -type f -not -name README.md -printf '%f\n' | sort | uniq -d)"
}

# A header that some file includes before anything else compiles alone where that file does, which clang does with -Werror;
# the others are compiled here.
@test "every header compiles alone" {
    flags=$(make -s --no-print-directory --eval='print-flags: ; @echo $(CPPFLAGS) $(CMD_CPPFLAGS)' print-flags)
    [[ $flags == *-Ilib* ]]
    awk 'FNR == 1 { seen = 0 }
        /^ *# *include/ && !seen++ && $2 ~ /"/ { gsub("\"", "", $2); print (FILENAME ~ /^lib/ ? "lib/" : "cmd/") $2 }' \
        $(find lib cmd -name '*.c') | sort -u >"$BATS_TEST_TMPDIR/first"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/first")" -ge 30 ]
    others=arm
    [ "$(uname -m)" = x86_64 ] || others=x86
    headers=$(find lib cmd -name '*.h' -not -path "lib/kernel/$others/*")
    [ "$(wc -l <<<"$headers")" -ge 30 ]
    # A change of any header may concern all others, that of a folder may be a file removed.
    # shellcheck disable=SC2046,SC2086
    [ -n "$(changed headers_alone $headers $(find lib cmd -type d) "$BMC_BUILD/flags" "$(readlink -f "$(command -v "${CC:-gcc}")")" "$BATS_TEST_FILENAME")" ] || return 0
    # shellcheck disable=SC2016
    grep -vxFf "$BATS_TEST_TMPDIR/first" <<<"$headers" | xargs -P 2 -I {} sh -c "printf '#include \"%s\"\n' {} |
        ${CC:-gcc} $flags -I. -Icmd -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -x c - || exit 255"
    passed headers_alone
}

@test "clang-format has nothing to change" {
    # shellcheck disable=SC2046
    files=$(changed formatted $(sources) .clang-format "$(readlink -f "$(command -v clang-format)")" "$BATS_TEST_FILENAME")
    [ -n "$files" ] || return 0
    ! grep -qv '\.[ch]$' <<<"$files" || files=$(sources)
    # shellcheck disable=SC2086
    run clang-format --dry-run --Werror $files
    assert_success
    passed formatted
}

@test "programs are linked with what they always need: OpenBLAS, OpenMP and libzip are not among it" {
    for program in "$BMC_BIN"/bmc-*; do
        run readelf -d "$program"
        assert_output --partial '[libsodium.so'
        # libzip brings libcrypto, which takes a millisecond to load.
        refute_output --regexp 'openblas|gomp|libzip|PATH'
    done
}

# Prints the files that use the memory of tensors.
use_tensors() { # FILE..
    grep -lE 'device_address|cpu_memory\.h|\bcpu_(at|addr)\(|kernels->[a-z_0-9]+\(|\b(gemm_run|mat_fetch)\(' "$@" || true
}

# But for the converter that reads another model's file, for which no backend is opened (model_source.c).
@test "only kernels, quantisation, attention and the CPU's backend use the memory of tensors" {
    local files
    mapfile -t files < <(find lib cmd -name '*.[ch]' ! -path 'lib/kernel/*' ! -path 'lib/quant/*' ! -path 'lib/attn/*' ! -path 'lib/cpu/*' ! -path 'lib/opencl/*' ! -path lib/backend/memory.h ! -path lib/model/convert/model_source.c)
    [ "${#files[@]}" -ge 400 ]
    assert_none "they use the memory of tensors" "$(use_tensors "${files[@]}")"
    # Each of these files uses it.
    for file in lib/attn/attn_rows.h lib/cpu/cpu_{linear,rows,recur,memory}.c; do assert_equal "$(use_tensors "$file")" "$file"; done
    for line in '*(float *)x.device_address' '#include "cpu/cpu_memory.h"' 'float *x = cpu_at(b->x);' 'f->kernels->rmsnorm(x, x, n, gain, eps);'; do
        echo "$line" >"$BATS_TEST_TMPDIR/above.c"
        assert_equal "$(use_tensors "$BATS_TEST_TMPDIR/above.c")" "$BATS_TEST_TMPDIR/above.c"
    done
}

# Prints where pointers to weights become others that can be read, as "FILE: LINE". Clang follows them: in a copy of the
# headers that have them, they are noderef.
uses_of_weights() { # FILE..
    local copy=$BATS_TEST_TMPDIR/copy
    mkdir -p "$copy"/{quant,model,format/bmc}
    sed -E '/^struct mat \{/,/^\};/s/^( +const void) \*/\1 __attribute__((noderef)) */' lib/quant/dtype.h >"$copy/quant/dtype.h"
    # all but the tables of draft heads, which no operation reads
    sed -E '/\*(mask_feature|draft_offset);/!s/^( +const float) \*/\1 __attribute__((noderef)) */' lib/model/weights.h >"$copy/model/weights.h"
    # what gives addresses to a backend
    sed -E 's/const void \*weights/const void __attribute__((noderef)) *weights/' lib/model/adopted.h >"$copy/model/adopted.h"
    sed -E 's/const float \*vector/const float __attribute__((noderef)) *vector/' lib/model/op_list.h >"$copy/model/op_list.h"
    sed -E '/^struct bmc_file \{/,/^\};/s/^( +const [a-z ]+) \*data;/\1 __attribute__((noderef)) *data;/' lib/format/bmc/bmcfile.h >"$copy/format/bmc/bmcfile.h"
    [ "$(grep -rc noderef "$copy" | cut -d : -f 2 | sort -n | paste -sd ' ')" = '1 1 1 1 10' ] || fail "other members: $(grep -r noderef "$copy")"
    sh tests/warn.sh -I"$copy" -D_GNU_SOURCE '-DBMC_RELEASE=""' '-DCOMPILER=""' '-DBMC_FLAGS=""' -Ilib -Icmd -I. -include lib/base/first.h -std=gnu11 \
        -Wno-everything -Wnoderef -- "$@" >"$BATS_TEST_TMPDIR/found" 2>&1 || fail "$(cat "$BATS_TEST_TMPDIR/found")"
    sed -nE '/warning: .*\[-Wnoderef\]$/{s/:[0-9]+:[0-9]+: .*/: /;N;s/\n *//;p}' "$BATS_TEST_TMPDIR/found"
    # casts, which pass there
    grep -oHE '\([a-z_0-9 ]+ \*+\) ?([a-z_>.-]*\b(mat|weight|all|own|[abw])(->|\.)data|[a-z_>.-]+(->|\.)(gain|bias|sinks|conv|conv_bias|decay|step|skip|state_norm|select_bias|moe_bias|shared_router|router_gain|stream_scale))\b.*' "$@" |
        sed 's/:/: /' || true
}

@test "nothing above the backend reads weights: clang follows the pointers" {
    local files
    mapfile -t files < <(find lib/kv lib/model lib/decode lib/serve lib/tune lib/prof lib/api -name '*.c' ! -path lib/model/convert/model_source.c)
    [ "${#files[@]}" -ge 100 ]
    # shellcheck disable=SC2046
    [ -n "$(changed weights_unread "${files[@]}" $(find lib -name '*.h') "$BATS_TEST_FILENAME")" ] || return 0
    # Addresses are computed with, compared, and given to a backend. Gains are read when a model is opened, before any backend has it.
    sort >"$BATS_TEST_TMPDIR/want" <<'END'
lib/model/experts/expert_store.c: (const unsigned char *)mat->data - model->file.map.data);
lib/model/key_scales.c: const float *q = layer->q_norm.gain, *k = layer->k_norm.gain;
lib/model/model.c: if (mlock(model->file.data, model->file.size) < 0)
lib/model/weights.c: const void *data = file->data + tensor->offset;
lib/model/op_list.c: (const char *)mat->data + own.first * stride;
lib/model/stream_ops.c: (const char *)mat->data +
lib/model/parallel/shard_weights.c: (const char *)all->data + i * stride;
lib/model/parallel/shard_weights.c: (const char *)own->data - (const char *)all->data);
lib/model/parallel/shard_weights.c: (const char *)w->data + i * stride, bytes) < 0)
lib/model/parallel/shard_weights.c: (const char *)w->data + own.first / PACK_OUT * pack_block_bytes(w->dtype, w->in_padded);
lib/model/parallel/shard_weights.c: const char *data = w->data;
lib/model/parallel/shard_weights.c: const char *from = all->data, *mine = own->data,
END
    uses_of_weights "${files[@]}" | sort -u >"$BATS_TEST_TMPDIR/got"
    assert_none "other uses of weights" "$(diff "$BATS_TEST_TMPDIR/want" "$BATS_TEST_TMPDIR/got" || true)"
    # Each of these functions does.
    cat >"$BATS_TEST_TMPDIR/use.c" <<'END'
#include "model/weights.h"
float a(const struct layer *l) { return l->attn_norm.gain[0]; }
float b(const struct layer *l) { const float *kept = l->conv_bias; return kept[1]; }
void c(const struct layer *l, float *x) { memcpy(x, l->q.weight.data, 4); }
float d(const struct layer *l) { return ((const float *)l->q.weight.data)[0]; }
float e(const struct layer *l) { return *(l->q.bias + l->q.weight.out) + l->sinks[2]; }
float f(const struct bmc_file *file) { const void *x = file->data + file->tensor[0].offset; return *(const float *)x; }
END
    assert_equal "$(uses_of_weights "$BATS_TEST_TMPDIR/use.c" | sort -u | wc -l)" 6
    passed weights_unread
}

@test "only the reader of configurations knows in which way a text says what layers are" {
    ask_keys() { # FILE.. -> those that read struct config_keys
        grep -lE '"model/config/config_keys\.h"|(config|\bc)(\.|->)keys\b' "$@" | grep -vE '^lib/model/config(/|\.[ch]$)' || true
    }
    # shellcheck disable=SC2046
    assert_none "files that read keys of the text instead of the plan" "$(ask_keys $(find lib cmd -name '*.[ch]'))"
    for line in '#include "model/config/config_keys.h"' 'if (model->config.keys->window_every)' 'c->keys->kv_shared'; do
        echo "$line" >"$BATS_TEST_TMPDIR/other.c"
        assert_equal "$(ask_keys "$BATS_TEST_TMPDIR/other.c")" "$BATS_TEST_TMPDIR/other.c"
    done
    # Members of a configuration: what differs by layer, and what one module reads, is in the plan and its tables.
    members=$(sed -n '/^struct config {/,/^};/p' lib/model/config.h | sed 's|/\*.*\*/||; s|/\*.*||; s|^ *\*.*||' | tr -d '\n' | sed 's/^struct config {//; s/};.*//; s/;/,/g' | tr , '\n' | grep -c '[a-z]')
    [ "$members" -ge 40 ]
    [ "$members" -le 60 ]
}

@test "what an option does is said once, however many programs have it" {
    texts=$(grep -ohE '"[^"]{40,}"' cmd/*/bmc-*.c cmd/*/*_options.c cmd/gen/gen_opts.h cmd/opt/opt_rows.h)
    [ "$(wc -l <<<"$texts")" -ge 80 ]
    assert_none "rows that belong into cmd/opt/opt_rows.h" "$(sort <<<"$texts" | uniq -d)"
}

@test "what several files need stands in one of them" {
    # Each pattern is of code, and found in exactly one file.
    for once in '"XDG_CONFIG_HOME"' '\{0\.5, 0\.6, 0\.7, 0\.8, 0\.9\}' '"cache-scales"' 'mallopt\(' 'not a list of at most %zu whole' \
        'not valid JSON at column' 'failed: their results say why' '^struct draft \{'; do
        found=$(grep -rlE "$once" lib cmd --include='*.[ch]' || true)
        [ "$(wc -w <<<"$found")" -eq 1 ] || fail "$once: in ${found:-no file}"
    done
}

@test "functions that one file uses alone are static" {
    # Of the public interface, programs; of protobuf's generated code, nobody: those may be used by no other object.
    local defined='NF >= 2 && $3 ~ /^[TDBR]$/ { home[$2] = $1 } $3 == "U" { used[$2] }
        END { for (name in home) if (!(name in used)) print name, home[name] }'
    alone=$(nm -A -P "$BMC_BUILD"/libcore.a "$BMC_BUILD"/libcmd.a $(find "$BMC_BUILD"/{cmd,tests,bench,lib/prof} -name '*.o') |
        awk "$defined" | grep 'lib[a-z]*\.a\|/lib/prof/' | grep -v '^bmc_\|^spm__' | cut -d ' ' -f 1)
    found=
    for name in $alone; do
        # Test programs are linked without an object of their own.
        grep -rqw "$name" tests --include='*.[ch]' || found+=" $name"
    done
    assert_none "used by no other file" "$found"
}

@test "options that the library renames in sentences are still in sentences of its modules" {
    local options option
    mapfile -t options < <(sed -nE 's/^    \{"(-[a-z-]+)", .*/\1/p' "$ROOT/lib/api/api_names.c")
    [ "${#options[@]}" -gt 10 ]
    for option in "${options[@]}"; do
        grep -rqE --include='*.[ch]' --exclude=api_names.c -e "\"([^\"]*[ (])?$option([] ,;:.)\"\\]|\$)" "$ROOT/lib" || fail "no sentence has $option"
    done
}
