"""AMD-PACE: --cache bmc, slab_pool, paged or dynamic; its prefix cache is off."""

import os
from importlib.metadata import version

import driver

options = driver.options(("cache", "bmc"))
os.environ["PACE_PREFIX_CACHE"] = "0"
import torch  # noqa: E402 (reads the environment)
from pace.llm import KVCacheType, LLMBackendType, LLMModel, LLMOperatorType, OperatorConfig, SamplingConfig  # noqa: E402
from pace.llm.attention import AttentionBackendType  # noqa: E402

torch.set_num_threads(options.threads)
kind, op = LLMBackendType, LLMOperatorType
attention = {"slab_pool": AttentionBackendType.SLAB, "paged": AttentionBackendType.PAGED}.get(options.cache, AttentionBackendType.JIT)
product = kind.NATIVE if options.type == "f32" else kind.TPP
config = OperatorConfig(**{op.Norm: kind.NATIVE, op.Attention: attention,
                           **{one: product for one in (op.QKVProjection, op.OutProjection, op.MLP, op.LMHead)}})
model = LLMModel(options.model, dtype=torch.float32 if options.type == "f32" else torch.bfloat16, kv_cache_type=KVCacheType(options.cache),
                 opconfig=config, disable_tqdm=True)


class Streamer:
    def __init__(self, clock, sequences):
        self.clock, self.sequences, self.calls = clock, sequences, 0

    def put(self, _ids):
        self.calls += 1
        if self.calls == 2:  # the first call has the prompt
            self.clock.step(self.sequences)

    def end(self):
        pass


def generate(prompts, new, beams):
    if beams > 1:
        raise ValueError("no beam search")
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    if min(map(len, prompts)) < longest:
        from transformers import BatchEncoding

        ids = BatchEncoding({"input_ids": ids, "attention_mask": torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])})
    clock = driver.Clock()
    settings = SamplingConfig(max_new_tokens=new, min_new_tokens=new, do_sample=False, ignore_eos=True)
    rows = model.generate(ids, settings, Streamer(clock, len(prompts))).output_token_ids
    return clock.answer([list(map(int, row[longest:longest + new])) for row in rows])


driver.serve({"amd-pace": version("amd-pace"), "torch": torch.__version__}, generate)
