"""A Hugging Face folder of weights that every engine reads.

Usage: python folder.py SOURCE OUT f32|bf16

SOURCE is a GGUF file, whose weights are dequantised, or a shape of models.d/shapes (family llama), whose weights are random.
Needs transformers, and for GGUF files accelerate and gguf.
"""

import os
import sys

import torch
import transformers


def from_gguf(path, dtype):
    folder, name = os.path.split(os.path.abspath(path))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    config = loaded.config
    for key in ("quantization_config", "_pre_quantization_dtype"):  # such a model is not saved
        if hasattr(config, key):
            delattr(config, key)
    config.dtype, config.rms_norm_eps = dtype, float(f"{config.rms_norm_eps:.6g}")  # GGUF files have it in float32
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
    model.load_state_dict(loaded.state_dict())
    return model, transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)


def from_shape(path, dtype):
    lines = [line.split(None, 1) for line in open(path) if line.strip() and not line.startswith("#")]
    shape = {key: value.strip() for key, value in lines}
    if shape["family"] != "llama":
        sys.exit(f"folder: {shape['family']}: only shapes of family llama are made")
    heads = int(shape["heads"])
    config = transformers.LlamaConfig(
        vocab_size=int(shape["vocab"]), hidden_size=int(shape["hidden"]), intermediate_size=int(shape["ffn"]), num_hidden_layers=int(shape["layers"]),
        num_attention_heads=heads, num_key_value_heads=int(shape.get("kv_heads", heads)), max_position_embeddings=int(shape["context"]),
        rope_theta=float(shape.get("rope_theta", 10000)), tie_word_embeddings=False, dtype=dtype)
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).to(dtype), byte_tokenizer(config.vocab_size)


def byte_tokenizer(vocab):
    """A token for each of the first bytes, names for the others: only ids are exchanged."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = {name: i for i, name in enumerate(letters + [f"<{i}>" for i in range(len(letters), vocab)])}
    tokenizer = Tokenizer(models.BPE(vocab=names, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<1>" if vocab < 258 else "<256>", eos_token="<257>")


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in ("f32", "bf16"):
        sys.exit(__doc__)
    source, out, name = sys.argv[1:]
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[name]
    transformers.logging.disable_progress_bar()
    model, tokenizer = (from_gguf if source.endswith(".gguf") else from_shape)(source, dtype)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


main()
