#!/bin/sh
# The parts of the documentation that come from the programs' option tables: the section between the lines
# BEGIN OPTIONS and END OPTIONS of each man page, and the completions.
#
#   sh tests/docs.sh update    writes them anew
#   sh tests/docs.sh check     names what differs, and fails when anything does
#
# BMC_BIN is the folder of the programs (default bin), DOCS_ROOT the tree with man/ and completions/.
set -eu

root=${DOCS_ROOT:-.}
bin=${BMC_BIN:-bin}
programs="bmc-gen bmc-convert bmc-prof bmc-spec bmc-tune"

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
        echo "$2 differs from what the program's option table says; run: make docs" >&2
        [ ! -e "$2" ] || diff "$2" "$1" >&2 || true
        status=1
    fi
}

# The man page with its OPTIONS replaced. The marker lines stay, and must be there once each.
renew_page() {
    awk -v options="$2" '
        /^\.\\" BEGIN OPTIONS$/ {
            print
            begun++
            while ((getline line < options) > 0)
                print line
            skipping = 1
        }
        /^\.\\" END OPTIONS$/ { ended++; skipping = 0 }
        !skipping { print }
        END { exit !(begun == 1 && ended == 1) }' "$1"
}

for program in $programs; do
    page=$root/man/$program.1
    "$bin/$program" --print-options man >"$scratch/options"
    if [ ! -e "$page" ]; then
        echo "$page does not exist" >&2
        status=1
    elif renew_page "$page" "$scratch/options" >"$scratch/page"; then
        compare_or_write "$scratch/page" "$page"
    else
        echo "$page needs one line '.\\\" BEGIN OPTIONS' and one '.\\\" END OPTIONS'" >&2
        status=1
    fi
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
