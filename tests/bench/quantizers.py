"""Compares the quantisers of bmc-convert and llama.cpp, type by type and mixture by mixture, with and without the same importance
matrix: perplexity relative to f32 weights on texts that the f32 model samples, and the root mean square change of the
log-probability of a token, which is less noisy.

    python quantizers.py FOLDER LLAMA_BIN WORK [TYPE..]

FOLDER is a Llama model (models.d/grimm), LLAMA_BIN has llama-quantize, WORK is a folder for files. The FFN is padded with zeros to
a multiple of 256, which K types need in GGUF; the model stays the same. Needs the packages gguf, numpy, safetensors and torch."""

import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import make_q4_0
import numpy as np
import torch
from safetensors.torch import load_file, save_file

TYPES = "Q6_K Q5_K Q5_1 Q5_0 Q4_K Q4_1 Q4_0 IQ4_NL IQ4_XS Q3_K Q2_K Q5_K_M Q4_K_M Q4_K_S Q3_K_L Q3_K_M Q3_K_S".split()
STORIES, CALIBRATION, TOKENS = 8, 4, 900
ROLES = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "out": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}


def bmc(program, *args):
    return subprocess.run([Path(__file__).parents[2] / "bin" / f"bmc-{program}", "-q", *args], capture_output=True, text=True, check=True).stdout


def pad(folder, to):
    to.mkdir(exist_ok=True)
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    more = -config["intermediate_size"] % 256
    config["intermediate_size"] += more
    (to / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    for name, x in tensors.items():
        if "gate_proj" in name or "up_proj" in name:
            tensors[name] = torch.nn.functional.pad(x, (0, 0, 0, more)).contiguous()
        if "down_proj" in name:
            tensors[name] = torch.nn.functional.pad(x, (0, more)).contiguous()
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})


def convert_imatrix(path, to):
    """Writes an importance matrix of bmc-gen as llama-quantize reads it."""
    data = path.read_bytes()
    n = struct.unpack_from("<I", data, 12)[0]
    numbers = np.frombuffer(data[128 + 80 * n:], np.float32)
    with open(to, "wb") as out:
        out.write(struct.pack("<i", n))
        for i in range(n):
            name, count, first = struct.unpack_from("<64sQQ", data, 128 + 80 * i)
            parts = name.rstrip(b"\0").decode().split(".")
            other = (f"blk.{parts[1]}.{ROLES[parts[2]]}.weight" if parts[0] == "layers" else "token_embd.weight").encode()
            out.write(struct.pack("<i", len(other)) + other + struct.pack("<ii", 1, count))
            out.write(numbers[first:first + count].astype("<f4").tobytes())


def logprobs(model, texts):
    lines = bmc("gen", "-m", model, "--precision", "f32", "--score", "--jsonl", "-f", texts).splitlines()
    return np.array([token["logprob"] for line in lines for token in json.loads(line)["logprobs"][1:]])


def main(folder, llama, work, types):
    pad(folder, work / "padded")
    make_q4_0.main(work / "padded", work / "f32.gguf", "F32")
    bmc("convert", work / "padded", "--type", "f32", "-o", work / "f32.bmc")
    stories = [bmc("gen", "-m", work / "f32.bmc", "--precision", "f32", "-p", "Once upon a time", "--echo", "-n", str(TOKENS), "--temp", "1",
                   "--top-k", "0", "--top-p", "1", "--min-p", "0", "--ignore-eos", "--seed", str(i + 1)) for i in range(STORIES + CALIBRATION)]
    (work / "texts").write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(stories[:STORIES])))
    (work / "calibration").write_text("".join(stories[STORIES:]))
    bmc("gen", "-m", work / "f32.bmc", "--score", "--summary", "-f", work / "calibration", "--save-imatrix", work / "imatrix")
    convert_imatrix(work / "imatrix", work / "imatrix.dat")
    source = logprobs(work / "f32.bmc", work / "texts")
    print("| type | imatrix | MB | perplexity, bmc | llama.cpp | change of log-probability, bmc | llama.cpp |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name in types or TYPES:
        for weighted in True, False:
            pure = [] if name.count("_") == 2 else ["--pure"]
            their = ["--imatrix", work / "imatrix.dat"] if weighted else []
            ours = ["--imatrix", work / "imatrix"] if weighted else []
            other = {"Q5_K": "Q5_K_S", "Q4_K": "Q4_K_S", "Q3_K": "Q3_K_S"}.get(name, name)
            subprocess.run([llama / "llama-quantize", *pure, *their, work / "f32.gguf", work / "llama.gguf", other], capture_output=True, check=True)
            bmc("convert", work / "llama.gguf", "-o", work / "llama.bmc")
            bmc("convert", work / "padded", "--type", name, *pure, *ours, "-o", work / "bmc.bmc")
            change = [logprobs(work / model, work / "texts") - source for model in ("bmc.bmc", "llama.bmc")]
            ratio = [f"{math.exp(-c.mean()):.4f}" for c in change]
            rms = [f"{math.sqrt((c**2).mean()):.4f}" for c in change]
            size = (work / "bmc.bmc").stat().st_size / 1e6
            print("|", " | ".join([name, "yes" if weighted else "no", f"{size:.2f}", *ratio, *rms]), "|", flush=True)


main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
