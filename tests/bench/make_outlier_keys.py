"""Copies a model's folder, with keys that have outlier channels as many published models do: the last rotary
pair of each KV head times FACTOR, a power of two, and of each query head divided by it. Results are the same
in f32, bit for bit.

    make_outlier_keys.py MODEL COPY FACTOR
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

model, copy, factor = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
shutil.rmtree(copy, ignore_errors=True)
shutil.copytree(model, copy)
config = json.loads((model / "config.json").read_text())
size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
for path in copy.glob("*.safetensors"):
    tensors = load_file(path)
    for name, tensor in tensors.items():
        for part, scale in (("k_proj", factor), ("q_proj", 1 / factor)):
            if part in name:
                rows = torch.ones(tensor.shape[0])
                rows[size // 2 - 1 :: size] = scale
                rows[size - 1 :: size] = scale
                shape = (-1,) + (1,) * (tensor.dim() - 1)
                tensors[name] = (tensor.float() * rows.reshape(shape)).to(tensor.dtype)
    save_file(tensors, path, metadata={"format": "pt"})
