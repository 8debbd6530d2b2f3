#!/bin/sh
# Documentation generated from the programs' option tables: the sections between the lines BEGIN OPTIONS and END OPTIONS of
# the man page of each program and between BEGIN FOREIGN and END FOREIGN of bmc-llama.cpp(7), and the completions.
#
#   sh tests/docs.sh update    regenerates them
#   sh tests/docs.sh check     names those that differ, and fails if any do
#
# BMC_BIN is the folder of the programs (default bin), DOCS_ROOT the tree with man/ and completions/.
set -eu

root=${DOCS_ROOT:-.}
bin=${BMC_BIN:-bin}
programs="bmc-gen bmc-convert bmc-prof bmc-spec bmc-tune"
# bmc-serve is not built everywhere.
[ ! -x "$bin/bmc-serve" ] || programs="$programs bmc-serve"

usage() {
    echo "usage: sh tests/docs.sh update | check" >&2
    exit 2
}

[ $# -eq 1 ] || usage
case $1 in
update | check) job=$1 ;;
*) usage ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
status=0

# compare_or_write FRESH FILE
compare_or_write() {
    if cmp -s "$1" "$2"; then
        return
    fi
    if [ "$job" = update ]; then
        cp "$1" "$2"
        echo "updated $2"
    else
        echo "$2 differs from the program's option table; run: make docs" >&2
        [ ! -e "$2" ] || diff "$2" "$1" >&2 || true
        status=1
    fi
}

# renew_page PAGE MARK FRESH: the page with the text between its marker lines replaced. Each marker must occur once.
renew_page() {
    awk -v fresh="$3" -v mark="$2" '
        $0 == ".\\\" BEGIN " mark {
            print
            begun++
            while ((getline line < fresh) > 0)
                print line
            skipping = 1
        }
        $0 == ".\\\" END " mark { ended++; skipping = 0 }
        !skipping { print }
        END { exit !(begun == 1 && ended == 1) }' "$1"
}

# renew PAGE MARK PROGRAM KIND: replaces a section of a man page by the program's output for KIND.
renew() {
    page=$root/man/$1
    "$bin/$3" --print-options "$4" >"$scratch/fresh"
    if [ ! -e "$page" ]; then
        echo "$page does not exist" >&2
        status=1
    elif renew_page "$page" "$2" "$scratch/fresh" >"$scratch/page"; then
        compare_or_write "$scratch/page" "$page"
    else
        echo "$page needs one line '.\\\" BEGIN $2' and one '.\\\" END $2'" >&2
        status=1
    fi
}

renew bmc-llama.cpp.7 FOREIGN bmc-gen foreign
for program in $programs; do
    renew "$program.1" OPTIONS "$program" man
    for shell in bash zsh fish; do
        case $shell in
        bash) file=$program.bash ;;
        zsh) file=_$program ;;
        fish) file=$program.fish ;;
        esac
        "$bin/$program" --print-options "$shell" >"$scratch/completion"
        compare_or_write "$scratch/completion" "$root/completions/$file"
    done
done
exit "$status"
