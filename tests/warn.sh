#!/bin/sh
# Clang's warnings for many C files in one process, since its start takes longer than a file: `make warnings`.
#
#   tests/warn.sh FLAG.. -- FILE..
#
# The driver starts a compiler per file, so only its command line is used, as `clang -###` prints it: all but the file,
# -disable-free, since there are many files, and the colours that ccache asks for. Headers of the system take most of the
# time, so common ones are compiled once, with the header that all files include first. gcc reports files that lack one of
# them, when they are built.
set -eu

first=lib/base/first.h
common='stdio.h stdlib.h string.h stdint.h limits.h errno.h math.h pthread.h sys/mman.h sys/stat.h jansson.h sodium.h'

flags=
while [ "$1" != -- ]; do
    flags="$flags '$(printf %s "$1" | sed "s/'/'\\\\''/g")'"
    shift
done
shift
[ $# -gt 0 ] || exit 0
compiler=$(eval "clang -### -fsyntax-only $flags $1" 2>&1 | tail -n 1 | sed 's/ "-x" "c" "[^"]*"$//; s/ "-disable-free"//; s/ "-fcolor-diagnostics"//; s/ "-main-file-name" "[^"]*"//')
case $compiler in
*'"-cc1"'*'"-fsyntax-only"'*"\"-include\" \"$first\""*) ;;
*)
    echo "clang -### says nothing of a compiler that includes $first: $compiler" >&2
    exit 1
    ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
{
    echo "#include \"$first\""
    printf '#include <%s>\n' $common
    printf '#ifdef __AVX2__\n#include <immintrin.h>\n#endif\n'
} >"$folder/common.h"
eval "$(echo "$compiler" | sed 's/"-fsyntax-only"/"-emit-pch"/') -x c-header -o \"\$folder/common.pch\" \"\$folder/common.h\""
eval "$(echo "$compiler" | sed "s,\"-include\" \"$first\",\"-include-pch\" \"\$folder/common.pch\",") -x c \"\$@\""
