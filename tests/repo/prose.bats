# Text that users read is in the vocabulary of the field: private words are listed, with what replaces them, in tests/prose.pl.
#
# BMC_BIN is the folder of the programs (default ../bin).
bats_require_minimum_version 1.5.0
load ../quick

ROOT=${BATS_TEST_DIRNAME%/tests/*}
BMC_BIN=$(cd "${BMC_BIN:-$ROOT/bin}" && pwd)
PROGRAMS="bmc-gen bmc-spec bmc-convert bmc-prof bmc-tune"
[ ! -x "${BMC_BIN:-bin}/bmc-serve" ] || PROGRAMS="$PROGRAMS bmc-serve"

prose() { perl "$ROOT/tests/prose.pl" "$@"; }

# clean FILE..: none of them has a private word.
clean() {
    [ $# -gt 0 ] || fail "no files"
    run prose "$@"
    assert_output ""
    assert_success
}

@test "README, CONTRIBUTING, the pages of extensions and those of measurements have no private words" {
    # shellcheck disable=SC2046 # names without blanks
    clean "$ROOT"/README.md "$ROOT"/CONTRIBUTING.md "$ROOT"/tests/bench/*.md "$ROOT"/tests/README.md $(find "$ROOT"/lib "$ROOT"/cmd -name README.md)
}

@test "man pages have no private words" { clean "$ROOT"/man/*; }

@test "--help and completions have no private words" {
    cd "$BATS_TEST_TMPDIR" || return 1
    for program in $PROGRAMS; do "$BMC_BIN/$program" --help >"$program.help"; done
    clean ./*.help "$ROOT"/completions/*
}

@test "messages of library and programs have no private words" {
    cd "$ROOT" || return 1
    # shellcheck disable=SC2046 # names without blanks
    clean $(find lib cmd -name '*.[ch]' | sort)
}

# Long options of earlier versions that no program has any more, as the man pages list them under Aliases.
old_options() {
    sed -n '/^\.SS Aliases/,/END OPTIONS/p' "$ROOT"/man/*.1 | tr -d '\\%' | grep -oE -- '--[a-z-]+ \(--' | sed 's/ .*//' | sort -u >aliases
    for program in $PROGRAMS; do "$BMC_BIN/$program" --help; done | grep -oE '^ .{0,7}--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u >options
    comm -23 aliases options
}

@test "documentation and scripts use current names of options; aliases are listed only as such" {
    cd "$BATS_TEST_TMPDIR" || return 1
    old_options >old
    [ "$(wc -l <old)" -ge 10 ]
    mkdir docs
    for page in "$ROOT"/man/*; do
        sed -e '/^\.SS Aliases/,/END OPTIONS/d; /BEGIN FOREIGN/,/END FOREIGN/d' "$page" | sed 's/\\f[A-Z]//g' | tr -d '\\' >"docs/${page##*/}"
    done
    run grep -nE -- "($(paste -sd '|' old))([^a-z-]|$)" docs/* "$ROOT"/README.md "$ROOT"/CONTRIBUTING.md "$ROOT"/cmd/README.md "$ROOT"/lib/*/README.md "$ROOT"/lib/*/*/README.md "$ROOT"/tests/bench/*.md "$ROOT"/tests/bench/*.sh
    assert_output ""
    assert_failure 1
}

@test "the check finds private words in prose, roff and literals, and leaves code and ordinary words alone" {
    cd "$BATS_TEST_TMPDIR" || return 1
    printf '%s\n' 'Types of' 'few bits are `under way`.' '' '```sh' 'guesses' '```' >bad.md
    printf '%s\n' '.SH NAME' '.B start' 'token' '.EX' 'guesses' '.EE' >bad.1
    printf '%s\n' '/* guesses */ const char *s = "a start "' '    "token", *t = "yard" /* "house" */;' >bad.c
    run prose bad.md bad.1 bad.c
    assert_failure 1
    assert_output 'bad.md:1: found "few bits", use: quantised, low-bit
bad.1:1: found "start token", use: BOS
bad.c:1: found "start token", use: BOS'
    printf '%s\n' 'Question marks are printed as soon as orders of magnitude leave room; sequences start tokenized.' >good.md
    clean good.md
}
