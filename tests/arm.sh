#!/bin/sh
# Runs tests of the build for ARM (64 bits) under qemu-user: plain C, and what OpenBLAS has. Called by `make check-arm`
# with the folder of that build, and names of Bats files to run in place of those below.
set -eu
cd "$(dirname "$0")/.."

build=$1
shift
emulated=$build/emulated
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)

# Programs that look like the real ones: the tests need not know. What a program is told by the kernel about itself
# names the file that qemu runs.
rm -rf "$emulated"
mkdir -p "$emulated/bin" "$emulated/tests" "$emulated/replay"
for folder in bin tests replay; do
    for program in "$build/$folder"/*; do
        case $program in *.d) continue ;; esac
        name=$emulated/$folder/${program##*/}
        printf '#!/bin/sh\nexec %s %s/%s "$@"\n' "$qemu" "$PWD" "$program" >"$name"
        chmod 755 "$name"
    done
done
ln -sfn "$PWD/models.d" "$emulated/models.d"

# BMC_EMULATED: what the system says of a process is said of qemu, too.
export BMC_BIN="$PWD/$emulated/bin" BMC_BUILD="$PWD/$emulated" BMC_EMULATED=1
# shellcheck disable=SC2046 # names of files
exec bats --print-output-on-failure --jobs "$(nproc)" --no-parallelize-within-files \
    $([ $# -gt 0 ] || printf 'tests/%s.bats ' unit fixtures exact) "$@"
