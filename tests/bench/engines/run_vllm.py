"""vLLM for CPUs, one process, prefix caching off."""

import os
from importlib.metadata import version

import driver

options = driver.options(("space", "4"))
os.environ.update(VLLM_CPU_KVCACHE_SPACE=options.space, VLLM_CPU_OMP_THREADS_BIND=f"0-{options.threads - 1}", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                  VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")


def main():
    import torch
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import BeamSearchParams

    model = LLM(options.model, dtype="float32" if options.type == "f32" else "bfloat16", max_model_len=options.context, max_num_seqs=options.sequences,
                enable_prefix_caching=False, skip_tokenizer_init=False)

    def generate(prompts, new, beams):
        given, clock = [{"prompt_token_ids": p} for p in prompts], driver.Clock()
        if beams > 1:
            found = model.beam_search(given, BeamSearchParams(beam_width=beams, max_tokens=new, ignore_eos=True))
            return clock.answer([one.sequences[0].tokens[len(p):] for one, p in zip(found, prompts)])
        params = SamplingParams(temperature=0, max_tokens=new, min_tokens=new, ignore_eos=True, detokenize=False)
        for i, prompt in enumerate(given):
            model.llm_engine.add_request(str(i), prompt, params)
        tokens = {}
        while model.llm_engine.has_unfinished_requests():
            for one in model.llm_engine.step():
                tokens[int(one.request_id.split("-")[0])] = list(one.outputs[0].token_ids)
            if len(tokens) == len(prompts):
                clock.step(sum(map(len, tokens.values())))
        return clock.answer([tokens[i] for i in range(len(prompts))])

    driver.serve({"vllm": version("vllm-cpu"), "torch": torch.__version__}, generate)


if __name__ == "__main__":
    main()
