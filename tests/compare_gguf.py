"""Compare two GGUF files: keys, values, tensors and their bytes.

Usage: python compare_gguf.py A.gguf B.gguf [KEY..]

Prints what differs, apart from the named keys and those that every writer sets for itself; exit status 1 if anything does.
"""

import sys

import gguf

OWN = {"general.quantization_version", "general.alignment", "general.file_type", "GGUF.tensor_count", "GGUF.kv_count"}


def values(reader):
    return {name: field.contents() for name, field in reader.fields.items()}


def tensors(reader):
    return {t.name: (t.tensor_type.name, [int(n) for n in t.shape], t.data.tobytes()) for t in reader.tensors}


def main():
    a, b = (gguf.GGUFReader(path) for path in sys.argv[1:3])
    ignored, differs = OWN | set(sys.argv[3:]), False
    for what, left, right in (("key", values(a), values(b)), ("tensor", tensors(a), tensors(b))):
        for name in sorted(left.keys() | right.keys()):
            if name in ignored or left.get(name) == right.get(name):
                continue
            differs = True
            print(f"{what} {name}: {str(left.get(name))[:100]} | {str(right.get(name))[:100]}")
    return differs


if __name__ == "__main__":
    sys.exit(main())
