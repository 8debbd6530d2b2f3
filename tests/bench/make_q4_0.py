"""Make a GGUF file of a Llama folder with all matrices as Q4_0, or another type, by the package gguf: python make_q4_0.py FOLDER OUT [TYPE]"""

import json
import sys
from pathlib import Path

import gguf
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in NAMES:
        return NAMES[stem] + ".weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def turned(rows, heads):
    """Rows of Q and K so that those that turn together are neighbours."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def add_tokenizer(out, folder):
    tokens = json.loads((folder / "tokenizer.json").read_text())
    vocab = sorted(tokens["model"]["vocab"], key=tokens["model"]["vocab"].get)
    special = {t["id"] for t in tokens["added_tokens"] if t["special"]}
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(vocab)
    out.add_token_types([3 if i in special else 1 for i in range(len(vocab))])
    out.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokens["model"]["merges"]])
    out.add_add_bos_token(False)


def main(folder, path, kind="Q4_0"):
    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(config.get("rope_theta", 10000.0))
    out.add_vocab_size(config["vocab_size"])
    add_tokenizer(out, folder)
    for name, tensor in load_file(folder / "model.safetensors").items():
        values = tensor.float().numpy()
        if "q_proj" in name or "k_proj" in name:
            values = turned(values, heads if "q_proj" in name else kv_heads)
        if values.ndim == 2:
            out.add_tensor(gguf_name(name), gguf.quants.quantize(values, Type[kind]), raw_dtype=Type[kind])
        else:
            out.add_tensor(gguf_name(name), values)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
