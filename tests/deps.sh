#!/bin/sh
# Installs the Debian packages that building and testing need and that are missing. Called by `make deps`.
set -eu

packages="gcc libc6-dev binutils libopenblas0-openmp libsodium-dev libjansson-dev libpcre2-dev libutf8proc-dev
bats bats-support bats-assert clang clang-format jq pkgconf procps man-db"

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "This is no Debian system. Install what these Debian packages hold, then go on:"
    echo "$packages"
    echo "OpenBLAS, which only --isa blas and --attn blas load, must be its OpenMP build; name it with BLAS_FILE=."
    exit 0
fi

missing=
for package in $packages; do
    case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true) in
    "install ok installed") ;;
    *) missing="$missing $package" ;;
    esac
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
$sudo apt-get update -qq
# shellcheck disable=SC2086 # words are meant to be split
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
