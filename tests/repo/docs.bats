# Documentation agrees with the programs: options, statistics, and the output of every example.
#
# BMC_BIN is the folder of the programs (default ../bin).

bats_require_minimum_version 1.5.0
load ../quick

ROOT=${BATS_TEST_DIRNAME%/tests/*}
BMC_BIN=$(cd "${BMC_BIN:-$ROOT/bin}" && pwd)
export BMC_BIN
PROGRAMS="bmc-gen bmc-convert bmc-prof bmc-spec bmc-tune"
[ ! -x "$BMC_BIN/bmc-serve" ] || PROGRAMS="$PROGRAMS bmc-serve"
export LC_ALL=C.UTF-8
unset BMC_ISA OMP_NUM_THREADS OPENBLAS_NUM_THREADS
export BMC_CONFIG=none XDG_CONFIG_HOME=/nowhere # no configuration and no tuned profile of this account

# A small tree as the examples expect it: bin/ with the programs, models.d/ with the default model.
setup_file() {
    local tree=$BATS_FILE_TMPDIR/tree
    mkdir -p "$tree/bin" "$tree/models.d"
    for program in $PROGRAMS; do cp "$BMC_BIN/$program" "$tree/bin"; done
    for name in families shapes chat grimm grimm-draft grimm-pard grimm-eagle grimm-eagle3 grimm-mtp; do
        ln -s "$ROOT/models.d/$name" "$tree/models.d/$name"
    done
    for name in grimm grimm-draft grimm-pard grimm-eagle grimm-eagle3 grimm-mtp; do
        "$tree/bin/bmc-convert" "$tree/models.d/$name" -o "$tree/models.d/$name.bmc"
    done
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    TREE=$BATS_FILE_TMPDIR/tree
}

# ---- generated parts ----

@test "OPTIONS of man pages and completions agree with the option tables" {
    DOCS_ROOT=$ROOT run sh "$ROOT/tests/docs.sh" check
    assert_success
    assert_output ""
}

@test "docs.sh check names a page and a completion that differ, and update regenerates them" {
    mkdir copy
    cp -r "$ROOT/man" "$ROOT/completions" copy
    sed -i '/BEGIN OPTIONS/,/END OPTIONS/s/seed/sead/' copy/man/bmc-gen.1
    sed -i '$d' copy/completions/bmc-convert.fish
    rm copy/completions/_bmc-gen
    export DOCS_ROOT=copy
    run sh "$ROOT/tests/docs.sh" check
    assert_failure 1
    assert_line --partial "copy/man/bmc-gen.1 differs"
    assert_line --partial "copy/completions/bmc-convert.fish differs"
    assert_line --partial "copy/completions/_bmc-gen differs"
    refute_line --partial "bmc-convert.1 differs"
    run sh "$ROOT/tests/docs.sh" update
    assert_success
    run sh "$ROOT/tests/docs.sh" check
    assert_success
    run diff -r copy/man "$ROOT/man"
    assert_success
}

@test "docs.sh check fails for a page without its marker lines" {
    mkdir copy
    cp -r "$ROOT/man" "$ROOT/completions" copy
    sed -i '/END OPTIONS/d' copy/man/bmc-convert.1
    DOCS_ROOT=copy run sh "$ROOT/tests/docs.sh" check
    assert_failure 1
    assert_output --partial "END OPTIONS"
}

# Long options in --help, the man page and each completion, one per line, sorted.
options_in_help() { "$BMC_BIN/$1" --help | grep -oE '^ .{0,7}--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort; }
options_in_man() {
    sed -n '/BEGIN OPTIONS/,/END OPTIONS/s/^\\fB.*\\-\\-\([a-z\\-]*\)\\fR.*/--\1/p' "$ROOT/man/$1.1" | tr -d '\\' | sort
}
options_in_bash() { grep -oE -- '--[a-z-]+' "$ROOT/completions/$1.bash" | sort -u | grep -vx -e -- -e --print-options; }
options_in_zsh() { grep -oE "^    '[*]?--[a-z-]+" "$ROOT/completions/_$1" | grep -oE -- '--[a-z-]+' | sort; }
options_in_fish() { sed -n 's/.* -l \([a-z-]*\) .*/--\1/p' "$ROOT/completions/$1.fish" | sort; }

@test "--help, man page and completions list the same options" {
    for program in $PROGRAMS; do
        options_in_help "$program" >help
        [ "$(wc -l <help)" -ge 13 ]
        for where in man bash zsh fish; do
            "options_in_$where" "$program" >"$where"
            run diff help "$where"
            assert_success
        done
    done
}

@test "help texts have the values of defaults, not the names of their macros" {
    for program in $PROGRAMS; do
        "$BMC_BIN/$program" --help
    done | grep -oE '\b[A-Z]+_[A-Z_]+\b' | sort -u >names
    printf '%s\n' BMC_ISA BMC_MODEL XDG_CONFIG_HOME | diff - names
}

# The pages for those who change the code: what to build and where to extend.
pages() { cd "$ROOT" && find CONTRIBUTING.md lib cmd tests/README.md -name '*.md' | sort; }

@test "options named in README, CONTRIBUTING and the pages of extensions exist" {
    for program in $PROGRAMS; do options_in_help "$program"; done | sort -u >known
    # shellcheck disable=SC2046 # names without blanks
    # Except those of pkg-config.
    sed 's/\$(pkg-config[^)]*)//' "$ROOT/README.md" $(pages | sed "s|^|$ROOT/|") |
        grep -ohE -- '--[a-z]+[a-z-]*' | sort -u >named
    [ "$(wc -l <named)" -ge 10 ]
    printf '%s\n' --cflags --libs --static | sort >others # pkg-config's
    run comm -13 <(sort -u known others) named
    assert_success
    assert_output ""
}

@test "completions are valid for their shells" {
    for program in $PROGRAMS; do
        bash -n "$ROOT/completions/$program.bash"
        if command -v zsh; then zsh -n "$ROOT/completions/_$program"; fi
        if command -v fish; then XDG_CONFIG_HOME=$PWD fish -n "$ROOT/completions/$program.fish"; fi
    done
}

@test "bash completes options and choices" {
    run bash -c 'source "$1"; COMP_WORDS=(bmc-gen --cache-t); COMP_CWORD=1; _bmc_gen; echo "${COMPREPLY[@]}"
        COMP_WORDS=(bmc-gen --cache-type b); COMP_CWORD=2; _bmc_gen; echo "${COMPREPLY[@]}"' \
        - "$ROOT/completions/bmc-gen.bash"
    assert_success
    assert_output $'--cache-type\nbf16'
}

@test "man pages are well-formed" {
    # Tables may cross page boundaries of paper.
    for page in "$ROOT"/man/*; do
        MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null |
            grep -v 'will not fit on one page' >>warnings || true
    done
    run cat warnings
    assert_output ""
    if command -v mandoc >/dev/null; then
        run mandoc -Tlint -Wwarning "$ROOT"/man/*
        assert_output ""
    fi
}

# ---- references ----

@test "every page's SEE ALSO names bmc-spec and bmc(7), and bmc(7) names every page" {
    for page in "$ROOT"/man/*; do
        sed -n '/^\.SH SEE ALSO/,$s/^\.BR \([a-z_.\\-]*\) (\([0-9]\)),*$/\1.\2/p' "$page" | tr -d '\\' >"see-$(basename "$page")"
        for name in bmc-spec.1 bmc.7; do
            [ "$(basename "$page")" = "$name" ] || grep -qx "$name" "see-$(basename "$page")" || fail "$page: $name"
        done
    done
    run diff <(sort see-bmc.7) <(basename -a "$ROOT"/man/* | grep -vx bmc.7 | sort)
    assert_success
}

@test "links between Markdown pages lead to existing files" {
    for page in README.md tests/bench/tune.md tests/bench/papers.md tests/bench/policies.md $(pages); do
        grep -oE '\]\([^)]*\)' "$ROOT/$page" | grep -vE '://|\(#' | tr -d '()]' | sed 's/#.*//' | sed "s|^|$(dirname "$page")/|" >>links
    done
    [ "$(wc -l <links)" -ge 10 ]
    while read -r link; do
        [ -e "$ROOT/$link" ] || fail "$link"
    done <links
}

@test "files named by CONTRIBUTING and the pages of extensions exist; every module with a page is in CONTRIBUTING" {
    git -C "$ROOT" ls-files 2>/dev/null >files || (cd "$ROOT" && find lib cmd tests man -type f) >files
    for page in $(pages); do
        # NAME, ISA and PAPER stand for names.
        grep -oE '`[A-Za-z_0-9./-]+\.(c|h|py|bats|sh|pl|list|[1-7])`' "$ROOT/$page" | tr -d '`' | grep -vE 'NAME|ISA|PAPER' | sed "s|^|$page |" >>named || true
        [ "$page" = CONTRIBUTING.md ] || grep -qF "($page)" "$ROOT/CONTRIBUTING.md" || fail "CONTRIBUTING.md does not name $page"
    done
    [ "$(wc -l <named)" -ge 60 ]
    while read -r page name; do
        [ -e "$ROOT/$name" ] || [ -e "$ROOT/$(dirname "$page")/$name" ] || grep -q "/$name\$" files || echo "$page: $name"
    done <named >missing
    run cat missing
    assert_output ""
}

@test "paths in man pages, Markdown pages and comments lead to existing files" {
    cd "$ROOT" || return 1
    git ls-files >"$BATS_TEST_TMPDIR/files" 2>/dev/null || find . -type f -printf '%P\n' >"$BATS_TEST_TMPDIR/files"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/files")" -ge 500 ]
    run perl tests/paths.pl <"$BATS_TEST_TMPDIR/files"
    assert_success
    assert_output ""
}

@test "missing paths are found: in comments by their names, in pages by their folders" {
    mkdir -p lib/x man
    printf '%s\n' '/* See' ' * x/one.h, two.c and one.c. */' 'int a = three.c;' '#include "x/four.h"' >lib/x/one.c
    printf '%s\n' 'lib/x/one.c, `lib/x/five.c` and lib/x/, tests/NAME.c, lib/libbmc.a' >page.md
    printf '%s\n' '.I lib/x/six\-seven.c' >man/page.1
    run perl "$ROOT/tests/paths.pl" <<<$'lib/x/one.c\npage.md\nman/page.1'
    assert_success
    assert_output 'lib/x/one.c:2: x/one.h
lib/x/one.c:2: two.c
page.md:1: lib/x/five.c
man/page.1:1: lib/x/six-seven.c'
}

@test "papers are cited by the short names of bmc(7)" {
    run grep -rnE '(bmc|bass|segment-kv-cache|headinfer|htp-kv-cache)\.txt' "$ROOT"/{lib,cmd,tests,man,README.md,CONTRIBUTING.md} \
        --exclude=docs.bats
    assert_failure 1
    for name in 'BMC paper' 'BASS paper' 'segment paper' 'HeadInfer paper' 'HTP note'; do
        grep -qx "\.B $name" "$ROOT/man/bmc.7" || fail "bmc(7): $name"
        grep -q "^| $name | .*\*" "$ROOT/tests/bench/papers.md" || fail "papers.md: $name"
    done
}

# ---- statistics ----

@test "bmc-gen(1) lists exactly the fields of --stats" {
    "$TREE/bin/bmc-gen" -p "Once" -n 2 -q --stats - | tail -n 1 | command jq -r 'keys_unsorted[]' >written
    sed -n '/^\.SH STATISTICS/,/^\.SH KERNELS/p' "$ROOT/man/bmc-gen.1" | sed -n '/^\.TP$/{n;s/^\.B //p}' | sed 's/\\fR, \\fB/\n/g' >listed
    [ "$(wc -l <written)" -ge 25 ]
    run diff <(sort written) <(sort listed)
    assert_success
}

@test "bmc-spec(1) lists exactly the fields of --stats beyond those of bmc-gen(1)" {
    "$TREE/bin/bmc-spec" -p "Once" -n 3 -q --stats - | tail -n 1 | command jq -r 'keys_unsorted[]' | sort >written
    sed -n '/^\.SH STATISTICS/,/^\.SH ENV/p' "$ROOT/man/bmc-spec.1" | sed -n '/^\.TP$/{n;s/^\.B //p}' | sed 's/\\fR, \\fB/\n/g' | sort >listed
    sed -n '/^\.SH STATISTICS/,/^\.SH KERNELS/p' "$ROOT/man/bmc-gen.1" | sed -n '/^\.TP$/{n;s/^\.B //p}' | sed 's/\\fR, \\fB/\n/g' | sort >gen
    [ "$(wc -l <listed)" -ge 8 ]
    run diff written <(sort listed gen)
    assert_success
}

# Names of the fields in a section of bmc-prof.1, sorted.
fields_of_section() {
    awk -v title="$1" '
        /^\.S[SH] / { gsub(/\\/, ""); inside = substr($0, 5) == title }
        inside && names { if (sub(/^\.B /, "")) { gsub(/\\fR, \\fB/, "\n"); print }; names = 0 }
        inside && /^\.TP$/ { names = 1 }' "$ROOT/man/bmc-prof.1" | sort
}

@test "bmc-prof(1) lists exactly the fields of every subcommand" {
    fields_of_section "Fields of every row" >common
    [ "$(wc -l <common)" -ge 14 ]
    for job in 'policies -N 4 -r 1' 'bench -p 2 -n 2 -r 1 --warmup 0 --megabytes 1' 'memory -p 2 -n 2' 'roof -r 1 --megabytes 1' \
        'latency -N 4 --kv bmc' "heads -N 64 --recent 4 -f $ROOT/README.md" "cache-scales -N 64 -f $ROOT/README.md" "cache-types -N 4 -o t -f $ROOT/README.md" "quality -f $ROOT/LICENSE" 'ranks -p 2 -n 2 -r 1 --warmup 0'; do
        section=${job%% *}
        # shellcheck disable=SC2086 # words
        "$TREE/bin/bmc-prof" $job -t 1 --format jsonl 2>stderr |
            head -n 1 | command jq -r 'keys_unsorted[]' | sort >written
        grep -vx -e bmc_ms -e bmc_p95_ms -e bmc_max_ms written >"$section.written" # named after the policies: POLICY_ms
        fields_of_section "$section" >"$section.listed"
        [ "$(wc -l <"$section.listed")" -ge 2 ]
        run comm -23 "$section.written" <(sort -u "$section.listed" common)
        assert_success
        assert_output "" # written, not documented
        run comm -13 "$section.written" "$section.listed"
        assert_success
        assert_output "" # documented, not written
    done
    run comm -13 policies.written common
    assert_output ""
    run diff latency.listed <(printf 'batch\nn\n')
    assert_success
}

# ---- examples ----

# Extracts the EXAMPLES of a man page to files block-NN in the current folder.
blocks_of_page() {
    awk '
        /^\.SH / { examples = / EXAMPLES$/ }
        examples && /^\.EX$/ { file = sprintf("block-%02d", ++n); inside = 1; next }
        /^\.EE$/ { inside = 0 }
        inside { print >file }' "$1"
    sed -i -e 's/\\-/-/g; s/\\(dq/"/g; s/\\(aq/'"'"'/g; s/\\(ha/^/g; s/\\&//g; s/\\e/\\/g' block-*
}

# The same for the blocks marked sh of a Markdown page.
blocks_of_markdown() {
    awk '/^```sh$/ { file = sprintf("block-%02d", ++n); inside = 1; next }
        /^```/ { inside = 0 }
        inside { print >file }' "$1"
}

# same_output EXPECTED FOUND: equal words line by line; the last digits of decimal fractions may differ, since OpenBLAS sums in
# another order on another CPU.
same_output() {
    awk '
        function close_to(a, b) { return (a - b) ^ 2 <= (0.001 * (1 + (a < 0 ? -a : a))) ^ 2 }
        NR == FNR { want[NR] = $0; lines = NR; next }
        {
            n = split(want[FNR], w)
            if (FNR > lines || n != NF)
                exit bad = 1
            for (i = 1; i <= n; i++)
                if (w[i] != $i && !(w[i] ~ /^-?[0-9]+\.[0-9]+$/ && $i ~ /^-?[0-9]+\.[0-9]+$/ && close_to(w[i], $i)))
                    exit bad = 1
        }
        END { exit bad || FNR != lines && NR != lines }' "$1" "$2" || return 1
    [ "$(wc -l <"$1")" -eq "$(wc -l <"$2")" ]
}

# Runs one command of a block in the current folder.
run_command() { # COMMAND EXPECTED-FILE COMPARE PLACE
    bash -eu -c "$1" >.found 2>.stderr || fail "$4: status $?: $1
$(cat .stderr)" || return 1
    [ "$3" = no ] || same_output "$2" .found || fail "$4: $1
expected:
$(cat "$2")
found:
$(cat .found)"
}

# Runs a block: lines with "$ " are commands ("> " continues them), followed by their output; a block without such
# lines is a script whose output is not compared.
run_block() { # BLOCK PLACE
    local line command='' seen=''
    if ! grep -q '^\$ ' "$1"; then
        run_command "$(cat "$1")" /dev/null no "$2"
        return $?
    fi
    : >.expected
    while IFS= read -r line; do
        case $line in
        '$ '*)
            [ -z "$seen" ] || run_command "$command" .expected yes "$2" || return 1
            command=${line#??} seen=1
            : >.expected
            ;;
        '> '*) command+=$'\n'${line#??} ;;
        *) printf '%s\n' "$line" >>.expected ;;
        esac
    done <"$1"
    run_command "$command" .expected yes "$2"
}

# Folder for one example, with models and programs.
example_folder() {
    mkdir "$1"
    ln -s "$TREE/models.d" "$1/models.d"
    ln -s "$TREE/bin" "$1/bin"
}

# Runs every block in a new folder with grimm.bmc and models.d.
run_page() {
    local block
    mkdir blocks
    cd blocks || return 1
    blocks_of_page "$ROOT/man/$1"
    export PATH=$TREE/bin:$PATH
    for block in block-*; do
        example_folder "../in-$block"
        cp "$TREE/models.d/grimm.bmc" "../in-$block"
        (cd "../in-$block" && run_block "../blocks/$block" "$1, $block")
    done
}

@test "examples of bmc-gen(1) run" { run_page bmc-gen.1; }
@test "examples of bmc-convert(1) run" { run_page bmc-convert.1; }
@test "examples of bmc-prof(1) run" { run_page bmc-prof.1; }
@test "examples of bmc-tune(1) run" { run_page bmc-tune.1; }
@test "examples of bmc-spec(1) run" { run_page bmc-spec.1; }
@test "examples of bmc-serve(1) run" {
    [ -x "$BMC_BIN/bmc-serve" ] || skip "bmc-serve is not built: libmicrohttpd is missing"
    run_page bmc-serve.1;
}
@test "examples of bmc(7) run" { run_page bmc.7; }
@test "examples of bmc-model(5) run" { run_page bmc-model.5; }
@test "examples of bmc-kv(5) run" { run_page bmc-kv.5; }
@test "examples of bmc-family(5) run" { run_page bmc-family.5; }
@test "examples of bmc-chat(5) run" { run_page bmc-chat.5; }
@test "examples of bmc-tools(5) run" { run_page bmc-tools.5; }
@test "examples of bmc-jsonl(5) run" { run_page bmc-jsonl.5; }
@test "examples of bmc-config(5) run" { run_page bmc-config.5; }
@test "examples of bmc-llama.cpp(7) run" { run_page bmc-llama.cpp.7; }

# Installs the library into ./usr and lets programs find it.
installed_library() {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the library needs its sanitizer"
    make -s -C "$ROOT" --no-print-directory install PREFIX="$PWD/usr"
    export PKG_CONFIG_PATH=$PWD/usr/lib/pkgconfig LD_LIBRARY_PATH=$PWD/usr/lib
}

@test "examples of libbmc(3) run" {
    installed_library
    run_page libbmc.3;
}

@test "examples of the pages of functions run" {
    installed_library
    for page in bmc_model_open bmc_context_open bmc_eval bmc_generate bmc_sampler_open bmc_score bmc_save; do
        mkdir "$page"
        (cd "$page" && run_page "$page.3";) || fail "$page"
    done
    for name in bmc_fork bmc_text_add bmc_eval; do
        [ -s "usr/share/man/man3/$name.3" ] || fail "man $name"
    done
}

@test "each function of bmc.h has one page in section 3, with its declaration and the members of its structures" {
    code=$(perl -0pe 's{/\*.*?\*/}{}gs' "$ROOT/lib/bmc.h")
    grep -oE '\bbmc_[a-z_]+\(' <<<"$code" | tr -d '(' | sort -u >declared
    [ "$(wc -l <declared)" -ge 36 ]
    sed -n '/^\.SH SYNOPSIS/,/^\.SH [DE][^X]/s/^\.BI* "*[a-z_0-9* ]*\b\(bmc_[a-z_]*\)(.*/\1/p' "$ROOT"/man/*.3 >listed
    sed -n '/^\.SH FUNCTIONS/,$s/^\.B "const char \*\(bmc_[a-z_]*\)(.*/\1/p' "$ROOT/man/libbmc.3" >>listed
    sort listed | diff declared -
    for page in "$ROOT"/man/bmc_*.3; do
        sed -n '/^\.SH NAME/,/^\.SH SYNOPSIS/p' "$page" | grep -oE '\bbmc_[a-z_]+' | diff - <(sed -n '/^\.SH SYNOPSIS/,/^\.SH [DE][^X]/s/^\.BI* "*[a-z_0-9* ]*\b\(bmc_[a-z_]*\)(.*/\1/p' "$page")
    done
    for member in $(perl -0ne 'print "$1\n" while /struct bmc_(?:options|input|request|result|callbacks|stats) \{(.*?)\n\};/gs' <<<"$code" |
        perl -ne 'print "$1\n" if /\(\*(\w+)\)\(/; if (!/\(/) { print "$1\n" while /(\w+)(?:\[\d+\])?[;,]/g }'); do
        grep -qE "^\.(I|IR|B|BR) (.*[ \"])?$member( |$)" "$ROOT"/man/bmc_*.3 || fail "no page has the member $member"
    done
}

@test "every man page has examples and a test above" {
    for page in "$ROOT"/man/*; do
        grep -qE "run_page $(basename "$page");|for page in .*$(basename "$page" .3)[ ;]" "$BATS_TEST_FILENAME" || fail "$page"
        grep -q '^\.SH EXAMPLES' "$page" || fail "$page has no examples"
    done
}

@test "examples of the README run" {
    blocks_of_markdown "$ROOT/README.md"
    [ "$(ls block-* | wc -l)" -ge 6 ]
    example_folder here
    for block in block-*; do
        (cd here && run_block "../$block" "README.md, $block")
    done
}

@test "the example runner fails if a command fails or prints other output" {
    printf '$ echo a 0.5\na 0.5001\n$ echo b\nb\n' >good
    printf '$ echo a\nb\n' >wrong
    printf '$ true\nmore\n' >missing
    printf '$ echo a; echo b\na\n' >surplus
    printf 'true\nfalse\ntrue\n' >failing
    printf '$ echo 0.5\n0.51\n' >far
    run_block good good
    for block in wrong missing surplus failing far; do
        run run_block "$block" "$block"
        assert_failure
        assert_output --partial "$block: "
    done
}

@test "bmc-convert(1) names every model family" {
    families=$(grep '^Supported architectures: ' "$ROOT/man/bmc-convert.1" | sed 's/.*: //' | tr -dc '[:alnum:],' | tr '[:upper:]' '[:lower:]')
    n=0
    for file in "$ROOT"/models.d/families/*.family; do
        name=$(basename "$file" .family)
        if ! grep -q '^architecture ' "$file"; then continue; fi # of MTP layers
        [[ ,${families/and/,}, == *,${name//-/},* ]] || fail "$name is not among $families"
        n=$((n + 1))
    done
    [ "$n" -ge 10 ]
}
