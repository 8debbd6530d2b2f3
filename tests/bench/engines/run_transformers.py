"""transformers: --cache dynamic or static, --engine deepspeed for DeepSpeed's module of the same model."""

import driver

options = driver.options(("cache", "dynamic"), ("engine", "transformers"))
import torch  # noqa: E402 (reads the environment)
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(options.threads)
dtype = torch.float32 if options.type == "f32" else torch.bfloat16
model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype).eval()
model.generation_config = transformers.GenerationConfig(pad_token_id=0)
versions = {"transformers": transformers.__version__, "torch": torch.__version__}
if options.engine == "deepspeed":
    import deepspeed

    model, versions["deepspeed"] = deepspeed.init_inference(model, dtype=dtype, replace_with_kernel_inject=False).module, deepspeed.__version__


def generate(prompts, new, beams):
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    clock = driver.Clock()

    def step(_ids, scores):
        if beams == 1 and _ids.shape[1] > longest:
            clock.step(len(prompts) * (_ids.shape[1] - longest))
        return scores

    with torch.inference_mode():
        rows = model.generate(ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False, num_beams=beams,
                              cache_implementation="static" if options.cache == "static" else None, disable_compile=True, logits_processor=[step])
    return clock.answer([row[longest:longest + new].tolist() for row in rows])


driver.serve(versions, generate)
