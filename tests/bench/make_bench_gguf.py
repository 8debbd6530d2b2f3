#!/usr/bin/env python3
"""Writes a GGUF file of TinyLlama-1.1B's shape with random weights, for engines.sh: what a step costs does not depend on them.

    python3 tests/bench/make_bench_gguf.py Q8_0|Q6_K|Q5_K_M|Q4_K_M|Q4_0|IQ4_XS|Q3_K_M|Q2_K|IQ3_S|IQ3_XXS|IQ2_S|IQ2_XS|IQ2_XXS|IQ1_S|IQ1_M|TQ2_0|TQ1_0 FILE [LAYERS [experts|qwen3moe]]

With `qwen3moe` it is a file of Qwen3-30B-A3B's shape but for the vocabulary; with `experts` the same matrices in Mixtral's
architecture, which older peers read, too. All experts of a layer are the same. Embeddings are large, so that hidden states
differ from token to token and all experts are used.

Needs numpy and gguf. Q8_0 and Q4_0 are weights N(0, 0.02) through gguf's quantiser. It cannot quantise to K types: their
blocks are random codes with scales that make such weights, so the file is good for times and for nothing else. The
types of single matrices are about those that llama-quantize gives them. The context is 8192 and the vocabulary is made up.
"""
import sys

import gguf
import numpy

HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, CONTEXT = 2048, 32, 4, 5632, 32000, 8192
Type = gguf.GGMLQuantizationType
random = numpy.random.default_rng(1)


# Bytes of a block of 256, and the f16 numbers in it (offset: value) that give random codes a deviation of about 0.02: scales
# are 32 of 63 on average, or 74 of 127 with a sign; minima make up for the mean of codes without one.
RANDOM = {
    Type.Q2_K: (84, {80: 0.02 / (7.5 * 1.1), 82: 1.5 * 0.02 / (7.5 * 1.1)}),
    Type.Q3_K: (110, {108: 0.02 / (18 * 2.3)}),
    Type.Q4_K: (144, {0: 0.02 / (32 * 5), 2: 7.5 * 0.02 / (32 * 5)}),
    Type.Q5_K: (176, {0: 0.02 / (32 * 10), 2: 15.5 * 0.02 / (32 * 10)}),
    Type.Q6_K: (210, {208: 0.02 / (74 * 18)}),
    Type.IQ4_XS: (136, {0: 0.02 / (18 * 71)}),
    Type.IQ3_S: (110, {0: 0.02 / (16 * 7.5)}),
    Type.IQ3_XXS: (98, {0: 0.02 / (4 * 27)}),
    Type.IQ2_S: (82, {0: 0.02 / (2 * 25)}),
    Type.IQ2_XS: (74, {0: 0.02 / (2 * 25)}),
    Type.IQ2_XXS: (66, {0: 0.02 / (2 * 25)}),
    Type.IQ1_S: (50, {0: 0.02 / (8 * 0.8)}),
    Type.IQ1_M: (56, {}),
    Type.TQ2_0: (66, {64: 0.02}),
    Type.TQ1_0: (54, {52: 0.025}),
}
# Types of matrices, about those that llama-quantize chooses. None: that of the other matrices.
FILES = {  # name: file type; types of all matrices, attn_v, attn_output, ffn_down, attn_v and ffn_down of odd layers, output
    "Q8_0": (7, Type.Q8_0, None, None, None, None, None),
    "Q4_0": (2, Type.Q4_0, None, None, None, None, None),
    "Q4_K_M": (15, Type.Q4_K, None, None, None, Type.Q6_K, Type.Q6_K),
    "Q5_K_M": (17, Type.Q5_K, None, None, None, Type.Q6_K, Type.Q6_K),
    "Q6_K": (18, Type.Q6_K, None, None, None, None, None),
    "Q3_K_M": (12, Type.Q3_K, Type.Q5_K, Type.Q4_K, Type.Q4_K, None, Type.Q6_K),
    "Q2_K": (10, Type.Q2_K, Type.Q4_K, Type.Q3_K, Type.Q3_K, None, Type.Q6_K),
    "IQ4_XS": (30, Type.IQ4_XS, Type.Q5_K, None, None, None, Type.Q6_K),
    "IQ3_S": (26, Type.IQ3_S, None, None, None, None, Type.Q6_K),
    "IQ3_XXS": (23, Type.IQ3_XXS, None, None, None, None, Type.Q6_K),
    "IQ2_S": (28, Type.IQ2_S, None, None, None, None, Type.Q6_K),
    "IQ2_XS": (20, Type.IQ2_XS, None, None, None, None, Type.Q6_K),
    "IQ2_XXS": (19, Type.IQ2_XXS, None, None, None, None, Type.Q6_K),
    "IQ1_S": (24, Type.IQ1_S, None, None, None, None, Type.Q6_K),
    "IQ1_M": (31, Type.IQ1_M, None, None, None, None, Type.Q6_K),
    "TQ2_0": (37, Type.TQ2_0, None, None, None, None, Type.Q6_K),
    "TQ1_0": (36, Type.TQ1_0, None, None, None, None, Type.Q6_K),
}


def matrix(kind, rows, columns, factor=1):
    if kind in RANDOM:
        size, halves = RANDOM[kind]
        blocks = random.integers(0, 256, (rows * columns // 256, size), numpy.uint8)
        for at, value in halves.items():
            blocks[:, at : at + 2] = numpy.array([value * factor], numpy.float16).view(numpy.uint8)
        if kind == Type.IQ1_M:  # d is in the upper halves of four words
            d = int(numpy.float16(0.0034 * factor).view(numpy.uint16))
            blocks[:, 49::2] = blocks[:, 49::2] & 15 | numpy.array([(d >> at & 15) << 4 for at in (0, 4, 8, 12)], numpy.uint8)
        return blocks.reshape(rows, -1)
    weights = random.standard_normal((rows, columns), numpy.float32) * numpy.float32(0.02 * factor)
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


EXPERTS, USED, EXPERT_FFN, HEAD_DIM = 128, 8, 768, 128


def main():
    name, path = sys.argv[1:3]
    layers = int(sys.argv[3]) if len(sys.argv) > 3 else 22
    qwen = sys.argv[4:] == ["qwen3moe"]
    experts = qwen or sys.argv[4:] == ["experts"]
    head_dim = HEAD_DIM if experts else HIDDEN // HEADS
    number, low, v, out, down, high, head = FILES[name]
    writer = gguf.GGUFWriter(path, "qwen3moe" if qwen else "llama", use_temp_file=not experts)
    writer.add_name(f"random {name}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(EXPERT_FFN if experts else FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head_dim)
    if experts:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(USED)
        writer.add_expert_feed_forward_length(EXPERT_FFN)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(number)
    vocabulary(writer)

    def add(tensor, kind, rows, columns):
        writer.add_tensor(tensor, matrix(kind, rows, columns), raw_dtype=kind)

    def add_norm(tensor, size=HIDDEN):
        writer.add_tensor(tensor, numpy.ones(size, numpy.float32))

    def add_experts(tensor, kind, rows, columns):
        one = matrix(kind, rows, columns)
        writer.add_tensor(tensor, numpy.broadcast_to(one, (EXPERTS, *one.shape)), raw_dtype=kind)

    writer.add_tensor("token_embd.weight", matrix(low, VOCAB, HIDDEN, 100 if experts else 1), raw_dtype=low)
    for i in range(layers):
        more = high if i % 2 else None
        add_norm(f"blk.{i}.attn_norm.weight")
        add(f"blk.{i}.attn_q.weight", low, HEADS * head_dim, HIDDEN)
        add(f"blk.{i}.attn_k.weight", low, KV_HEADS * head_dim, HIDDEN)
        add(f"blk.{i}.attn_v.weight", more or v or low, KV_HEADS * head_dim, HIDDEN)
        add(f"blk.{i}.attn_output.weight", out or low, HIDDEN, HEADS * head_dim)
        add_norm(f"blk.{i}.ffn_norm.weight")
        if qwen:
            add_norm(f"blk.{i}.attn_q_norm.weight", head_dim)
            add_norm(f"blk.{i}.attn_k_norm.weight", head_dim)
        if experts:
            router = random.standard_normal((EXPERTS, HIDDEN), numpy.float32) * numpy.float32(0.02)
            writer.add_tensor(f"blk.{i}.ffn_gate_inp.weight", router)
            add_experts(f"blk.{i}.ffn_gate_exps.weight", low, EXPERT_FFN, HIDDEN)
            add_experts(f"blk.{i}.ffn_up_exps.weight", low, EXPERT_FFN, HIDDEN)
            add_experts(f"blk.{i}.ffn_down_exps.weight", more or down or low, HIDDEN, EXPERT_FFN)
            continue
        add(f"blk.{i}.ffn_gate.weight", low, FFN, HIDDEN)
        add(f"blk.{i}.ffn_up.weight", low, FFN, HIDDEN)
        add(f"blk.{i}.ffn_down.weight", more or down or low, HIDDEN, FFN)
    add_norm("output_norm.weight")
    add("output.weight", head or low, VOCAB, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
