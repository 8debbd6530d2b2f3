"""llama.cpp beside bmc in quality.sh: divergence of its KV cache types, and its quantiser, by the package llama-cpp-python.

    quality_peer.py caches MODEL.bmc MODEL.gguf TEXT [THREADS]
    quality_peer.py quantise MODEL.gguf OUT.gguf TYPE

caches prints a row of Markdown for each cache type: mean divergence from f32 arithmetic over the same weights, which bmc computes; from
llama.cpp's own f16 cache; and the share of equal top tokens. Its weights and activations are what its kernels make of them. Both run
chunk by chunk in turns, so that no logits are kept. Needs numpy, and PYTHONPATH=lib/python."""

import ctypes
import os
import sys

import llama_cpp as llama
import numpy as np

CHUNK = 64
CACHES = [("f16", llama.GGML_TYPE_F16), ("q8_0", llama.GGML_TYPE_Q8_0), ("q5_1", llama.GGML_TYPE_Q5_1), ("q4_0", llama.GGML_TYPE_Q4_0)]


class Peer:
    """A context of llama.cpp with one cache type, which is evaluated chunk by chunk."""

    def __init__(self, model, kind, tokens, threads):
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = tokens, CHUNK, CHUNK
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = kind
        params.flash_attn_type = 1  # its quantised V needs it
        self.context = llama.llama_init_from_model(model, params)
        self.vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        self.batch = llama.llama_batch_init(CHUNK, 0, 1)

    def logits(self, ids, at):
        b = self.batch
        b.n_tokens = len(ids)
        for i, token in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = token, at + i, 1, 0, 1
        if llama.llama_decode(self.context, b):
            sys.exit("llama_decode failed")
        shape = (len(ids), self.vocab)
        return np.ctypeslib.as_array(ctypes.cast(llama.llama_get_logits(self.context), ctypes.POINTER(ctypes.c_float)), shape).astype(np.float64)


def log_softmax(x):
    x -= x.max(1, keepdims=True)
    x -= np.log(np.exp(x).sum(1, keepdims=True))
    return x


def caches(bmc_file, gguf, text, threads):
    import bmc

    model = bmc.Model(bmc_file)
    ids = model.tokenize(open(text).read())[:-1]
    peer = llama.llama_model_load_from_file(gguf.encode(), llama.llama_model_default_params())
    peers = [Peer(peer, kind, len(ids) + CHUNK, threads) for _, kind in CACHES]
    kld, own, same = ([[] for _ in CACHES] for _ in range(3))
    with bmc.Session(model, context=len(ids) + 8, threads=threads, precision="f32") as session:
        for at in range(0, len(ids), CHUNK):
            chunk = ids[at:at + CHUNK]
            reference = np.array(session.eval(chunk, outputs=len(chunk)), dtype=np.float64).reshape(len(chunk), -1)
            reference = log_softmax(reference)
            f16 = None
            for i, one in enumerate(peers):
                q = log_softmax(one.logits(chunk, at))
                f16 = q if f16 is None else f16
                kld[i].extend((np.exp(reference) * (reference - q)).sum(1))
                own[i].extend((np.exp(f16) * (f16 - q)).sum(1))
                same[i].extend(f16.argmax(1) == q.argmax(1))
    for (name, _), *columns in zip(CACHES, kld, own, same):
        print("| llama.cpp, {} | {:.6f} | {:.6f} | {:.4f} |".format(name, *(np.mean(c) for c in columns)), flush=True)


def quantise(source, out, kind):
    params = llama.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{kind.upper()}"), True
    if llama.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)):
        sys.exit(f"llama.cpp does not quantise to {kind}")


llama.llama_backend_init()
silent = llama.llama_log_callback(lambda *_: None)
llama.llama_log_set(silent, None)
if sys.argv[1] == "caches":
    caches(*sys.argv[2:5], int(sys.argv[5]) if len(sys.argv) > 5 else os.cpu_count())
else:
    quantise(*sys.argv[2:5])
