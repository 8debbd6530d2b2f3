#!/usr/bin/env python3
"""Writes a GGUF file of TinyLlama-1.1B's shape with random weights, for peers.sh: what a step costs does not depend on them.

    python3 tests/bench/make_bench_gguf.py Q8_0|Q4_0|Q4_K_M FILE [LAYERS]

Needs numpy and gguf. Q8_0 and Q4_0 are weights N(0, 0.02) through gguf's quantiser. It cannot quantise to K types: their
blocks are random codes with scales that make such weights, so the file is good for times and for nothing else. Q4_K_M has
Q6_K for the head, and in every other layer for the values and the MLP's last matrix, as many as llama-quantize gives them.
The context is 8192 and the vocabulary is made up.
"""
import sys

import gguf
import numpy

HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, CONTEXT = 2048, 32, 4, 5632, 32000, 8192
KV = HIDDEN // HEADS * KV_HEADS
Type = gguf.GGMLQuantizationType
random = numpy.random.default_rng(1)


def halves(value, blocks):
    """The same f16 for all blocks, as bytes."""
    return numpy.full((blocks, 1), value, numpy.float16).view(numpy.uint8)


def q4_k(blocks):
    """d and dmin, 12 bytes of scales and minima, 128 of codes: 0 to 15, less 7.5 on average."""
    step = 0.02 / (32 * 5)
    return numpy.hstack([halves(step, blocks), halves(7.5 * step, blocks), random.integers(0, 256, (blocks, 140), numpy.uint8)])


def q6_k(blocks):
    """128 and 64 bytes of codes, 16 of scales with a sign, d."""
    return numpy.hstack([random.integers(0, 256, (blocks, 208), numpy.uint8), halves(0.02 / (74 * 18), blocks)])


def matrix(kind, rows, columns):
    if kind in (Type.Q4_K, Type.Q6_K):
        make = q4_k if kind == Type.Q4_K else q6_k
        return make(rows * columns // 256).reshape(rows, -1)
    weights = random.standard_normal((rows, columns), numpy.float32) * numpy.float32(0.02)
    return gguf.quants.quantize(weights, kind)


def vocabulary(writer):
    """Special tokens, bytes, and words of letters, as SentencePiece has them."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [a for a in letters] + [a + b for a in letters for b in letters] + [a + b + c for a in letters for b in letters for c in letters]
    words = ["\u2581"] + words + ["\u2581" + word for word in words]
    tokens += words[: VOCAB - len(tokens)]
    kinds += [1] * (VOCAB - len(kinds))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(VOCAB - 259)])
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)


def main():
    name, path = sys.argv[1:3]
    layers = int(sys.argv[3]) if len(sys.argv) > 3 else 22
    low = {"Q8_0": Type.Q8_0, "Q4_0": Type.Q4_0, "Q4_K_M": Type.Q4_K}[name]
    high = Type.Q6_K if name == "Q4_K_M" else low
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=True)
    writer.add_name(f"random {name}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type({"Q8_0": 7, "Q4_0": 2, "Q4_K_M": 15}[name])
    vocabulary(writer)

    def add(tensor, kind, rows, columns):
        writer.add_tensor(tensor, matrix(kind, rows, columns), raw_dtype=kind)

    def add_norm(tensor):
        writer.add_tensor(tensor, numpy.ones(HIDDEN, numpy.float32))

    add("token_embd.weight", low, VOCAB, HIDDEN)
    for i in range(layers):
        more = high if i % 2 else low
        add_norm(f"blk.{i}.attn_norm.weight")
        add(f"blk.{i}.attn_q.weight", low, HIDDEN, HIDDEN)
        add(f"blk.{i}.attn_k.weight", low, KV, HIDDEN)
        add(f"blk.{i}.attn_v.weight", more, KV, HIDDEN)
        add(f"blk.{i}.attn_output.weight", low, HIDDEN, HIDDEN)
        add_norm(f"blk.{i}.ffn_norm.weight")
        add(f"blk.{i}.ffn_gate.weight", low, FFN, HIDDEN)
        add(f"blk.{i}.ffn_up.weight", low, FFN, HIDDEN)
        add(f"blk.{i}.ffn_down.weight", more, HIDDEN, FFN)
    add_norm("output_norm.weight")
    add("output.weight", high, VOCAB, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
