"""Operations of a decoder layer of Llama in Hugging Face transformers, as dispatched by torch in a decode step (segment paper,
section 3.1: hundreds, nine after fusion): those of a model of three layers less those of one of two.

Usage: python hf_operations.py. Operations that change neither data nor its layout (views) are counted apart.
"""

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

VIEWS = {"view", "_unsafe_view", "expand", "transpose", "t", "unsqueeze", "slice", "select", "detach", "alias", "permute", "reshape", "split"}


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.views = self.others = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        view = func.overloadpacket.__name__ in VIEWS
        self.views += view
        self.others += not view
        return func(*args, **(kwargs or {}))


def operations(layers):
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=layers, num_attention_heads=4)
    model, cache = transformers.LlamaForCausalLM(config).eval(), transformers.DynamicCache()
    with torch.inference_mode():
        model(torch.tensor([[1, 2, 3]]), past_key_values=cache)
        with Count() as count:
            model(torch.tensor([[4]]), past_key_values=cache)
    return count.views, count.others


(views, others), (more_views, more_others) = operations(2), operations(3)
print(f"transformers {transformers.__version__}: {more_others - others} operations per layer and {more_views - views} views")
