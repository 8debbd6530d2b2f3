#!/bin/sh
# Clang's warnings for many C files in one process, since its start takes longer than a file: `make warnings`.
#
#   tests/warn.sh FLAG.. -- FILE..
#
# The driver starts a compiler per file, so only its command line is used, as `clang -###` prints it: all but the file,
# and -disable-free, since there are many files.
set -eu

flags=
while [ "$1" != -- ]; do
    flags="$flags '$(printf %s "$1" | sed "s/'/'\\\\''/g")'"
    shift
done
shift
[ $# -gt 0 ] || exit 0
compiler=$(eval "clang -### -fsyntax-only $flags $1" 2>&1 | tail -n 1 | sed 's/ "-x" "c" "[^"]*"$//; s/ "-disable-free"//; s/ "-main-file-name" "[^"]*"//')
case $compiler in
*'"-cc1"'*'"-fsyntax-only"'*) ;;
*)
    echo "clang -### says nothing of a compiler: $compiler" >&2
    exit 1
    ;;
esac
eval "$compiler -x c \"\$@\""
