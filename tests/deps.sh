#!/bin/sh
# Installs missing Debian packages for building and testing. Called by `make deps`.
#   deps.sh build   those for building only
#   deps.sh arm     those for an ARM build and its tests
#   deps.sh mpi     Open MPI, unless there is another MPI
#   deps.sh pip     pip, unless there is one
#   deps.sh real    those for building, and pip
set -eu

packages="gcc libc6-dev binutils libsodium-dev libjansson-dev libpcre2-dev libutf8proc-dev libzip-dev libprotobuf-c-dev liburing-dev
libedit-dev libmicrohttpd-dev pkgconf protobuf-c-compiler"
if [ -z "${1:-}" ]; then
    packages="$packages libopenblas0-openmp libdnnl2 ocl-icd-libopencl1 pocl-opencl-icd curl bats bats-support bats-assert clang clang-format gojq jq parallel procps
man-db python3"
fi
if [ "${1:-}" = arm ]; then
    packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user libopenblas0-openmp:arm64 libsodium-dev:arm64
libjansson-dev:arm64 libpcre2-dev:arm64 libutf8proc-dev:arm64 libzip-dev:arm64 libprotobuf-c-dev:arm64 liburing-dev:arm64 libedit-dev:arm64"
fi
if [ "${1:-}" = mpi ]; then
    packages="openmpi-bin libopenmpi-dev"
    ! { command -v mpicc && command -v mpirun; } >/dev/null || exit 0
fi
[ "${1:-}" != pip ] || packages=
case ${1:-} in pip | real) python3 -m pip --version >/dev/null 2>&1 || packages="$packages python3-pip" ;; esac

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "This is not a Debian system. Install the equivalents of these Debian packages:"
    echo "$packages"
    echo "OpenBLAS, loaded by --isa blas and --attn blas only, must be its OpenMP build; set its path with BLAS_FILE=."
    exit 0
fi

native=$(dpkg --print-architecture)
missing=
for package in $packages; do
    case $package in
    *:*) architecture=${package#*:} ;;
    *) architecture=$native ;;
    esac
    dpkg-query -W -f='${Architecture} ${Status}\n' "$package" 2>/dev/null |
        grep -qE "^(all|$architecture) install ok installed$" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "These packages are missing, and installing them needs root:$missing" >&2
        exit 1
    fi
    sudo=sudo
fi
echo "installing the missing packages:$missing"
export DEBIAN_FRONTEND=noninteractive
[ "${1:-}" != arm ] || $sudo dpkg --add-architecture arm64
$sudo apt-get update -qq
# shellcheck disable=SC2086 # words are meant to be split
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
