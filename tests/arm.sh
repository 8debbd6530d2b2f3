#!/bin/sh
# Runs tests of the 64-bit ARM build under qemu-user, with all kernel sets. Called by `make check-arm`
# with the folder of that build, and optionally Bats files to run instead of those below.
set -eu
cd "$(dirname "$0")/.."

build=$1
shift
emulated=$build/emulated
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)

# Wrappers that look like the real programs to the tests. /proc/self/exe names the file that qemu runs.
rm -rf "$emulated"
mkdir -p "$emulated/bin" "$emulated/tests" "$emulated/fuzz"
for folder in bin tests fuzz; do
    for program in "$build/$folder"/*; do
        case $program in *.d) continue ;; esac
        name=$emulated/$folder/${program##*/}
        printf '#!/bin/sh\nexec %s -cpu max %s/%s "$@"\n' "$qemu" "$PWD" "$program" >"$name"
        chmod 755 "$name"
    done
done
ln -sfn "$PWD/models.d" "$emulated/models.d"

# BMC_EMULATED: figures of a process include those of qemu. The emulator's speed must not choose the kernel set.
export BMC_ISA="${BMC_ISA:-i8mm}"
export BMC_BIN="$PWD/$emulated/bin" BMC_BUILD="$PWD/$emulated" BMC_EMULATED=1
# shellcheck disable=SC2046 # names of files
exec bats --print-output-on-failure --jobs "$(nproc)" \
    $([ $# -gt 0 ] || printf 'tests/%s.bats ' repo/unit repo/fixtures kv/exact) "$@"
