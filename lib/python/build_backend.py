"""Builds the wheel and the source distribution of bmc.py with libbmc.so inside, as PEP 517 asks, with no other package.

The Makefile compiles the library: that of the checkout around this folder, or of src/ in a source distribution. What it needs is
listed in tests/deps.sh; a wheel needs the libraries that libbmc.so is linked with.
"""

import base64
import gzip
import hashlib
import io
import re
import subprocess
import sysconfig
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

HERE = Path(__file__).resolve().parent
ROOT = HERE / "src" if (HERE / "src").is_dir() else HERE.parents[1]
DATA = ("models.d/families", "models.d/chat", "models.d/tools")  # what a model may need besides the library
TIME = 1577836800  # of all files, so that equal trees give equal archives: the first second of 2020


def version() -> str:
    found = re.search(r"^VERSION = (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if not found:
        raise SystemExit(f"{ROOT}/Makefile has no line VERSION = ..")
    return found[1]


def metadata() -> bytes:
    return "\n".join(("Metadata-Version: 2.1", "Name: bmc", f"Version: {version()}",
                      "Summary: Inference of language models on CPUs", "License: MIT", "Requires-Python: >=3.8",
                      "Classifier: Operating System :: POSIX :: Linux", "")).encode()


def licence() -> bytes:
    return (HERE / "LICENSE" if (HERE / "LICENSE").exists() else ROOT / "LICENSE").read_bytes()


def files_under(folder: str) -> Iterator[Tuple[str, bytes]]:
    """The files of a folder of ROOT, except what builds leave."""
    for path in sorted((ROOT / folder).rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        built = re.match(r"lib/(libbmc\.|bmc-mpi\.so|python/)|.*__pycache__", name)
        if path.is_file() and not built:
            yield name, path.read_bytes()


def compiled_library() -> bytes:
    subprocess.run(["make", "--no-print-directory", "-C", str(ROOT), "lib/libbmc.so"], check=True)
    return (ROOT / "lib" / "libbmc.so").read_bytes()


def entry(name: str) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name, time.gmtime(TIME)[:6])
    found.external_attr = 0o644 << 16
    return found


def write_wheel(path: Path, files: Mapping[str, bytes], record: str) -> None:
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            sha256 = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            lines.append(f"{name},sha256={sha256},{len(data)}\n")
            wheel.writestr(entry(name), data, zipfile.ZIP_DEFLATED)
        wheel.writestr(entry(record), "".join(lines) + f"{record},,\n")


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    info = f"bmc-{version()}.dist-info"
    files: Dict[str, bytes] = {"bmc/__init__.py": (HERE / "bmc.py").read_bytes(), "bmc/py.typed": b"",
                               "bmc/libbmc.so": compiled_library()}
    for folder in DATA:
        files.update((f"bmc/{name}", data) for name, data in files_under(folder))
    files[f"{info}/METADATA"] = metadata()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: bmc\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/LICENSE"] = licence()
    name = f"bmc-{version()}-{tag}.whl"
    write_wheel(Path(wheel_directory) / name, files, f"{info}/RECORD")
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    base = f"bmc-{version()}"
    files = {name: (HERE / name).read_bytes() for name in ("bmc.py", "build_backend.py", "pyproject.toml")}
    files["PKG-INFO"], files["LICENSE"] = metadata(), licence()
    files["src/Makefile"] = (ROOT / "Makefile").read_bytes()
    for folder in ("lib", *DATA):
        files.update((f"src/{name}", data) for name, data in files_under(folder))
    with open(Path(sdist_directory) / f"{base}.tar.gz", "wb") as out:
        with gzip.GzipFile("", "wb", fileobj=out, mtime=TIME) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(f"{base}/{name}")
                member.size, member.mtime, member.mode = len(data), TIME, 0o644
                archive.addfile(member, io.BytesIO(data))
    return f"{base}.tar.gz"
