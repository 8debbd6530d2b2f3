"""OpenVINO GenAI on a GGUF file, with its continuous batching; prefix caching off, the cache in the type of the arithmetic."""

import driver

options = driver.options(("space", "4"))
import numpy  # noqa: E402
import openvino  # noqa: E402
import openvino_genai as genai  # noqa: E402

scheduler = genai.SchedulerConfig()
scheduler.cache_size, scheduler.max_num_seqs, scheduler.enable_prefix_caching = int(options.space), options.sequences, False
hint = {"f32": openvino.Type.f32, "bf16": openvino.Type.bf16}[options.type]
model = genai.ContinuousBatchingPipeline(options.model, scheduler, "CPU", {
    "INFERENCE_NUM_THREADS": options.threads, "INFERENCE_PRECISION_HINT": hint, "KV_CACHE_PRECISION": hint, "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0})


def generate(prompts, new, beams):
    config = genai.GenerationConfig(max_new_tokens=new, min_new_tokens=new, ignore_eos=True, do_sample=False)
    if beams > 1:
        config.num_beams, config.num_return_sequences = beams, 1
    clock = driver.Clock()
    handles = [model.add_request(i, openvino.Tensor(numpy.array([p], dtype=numpy.int64)), config) for i, p in enumerate(prompts)]
    tokens = [[] for _ in prompts]
    while model.has_non_finished_requests():
        model.step()
        for handle, row in zip(handles, tokens if beams == 1 else []):
            while handle.can_read():
                row += next(iter(handle.read().values())).generated_ids
        if all(tokens):
            clock.step(sum(map(len, tokens)))
    if beams > 1:
        tokens = [list(handle.read_all()[0].generated_ids) for handle in handles]
    return clock.answer(tokens)


driver.serve({"openvino-genai": genai.get_version(), "openvino": openvino.get_version()}, generate)
