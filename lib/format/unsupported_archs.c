/* The table of unsupported architectures. */
#include "format/unsupported_archs.h"

#include <string.h>

#include "base/base.h"

/* Prefixes of architecture names in config.json and GGUF, each with a blank before it; the first
 * match wins. */
static const struct {
    const char *what, *begin;
} unsupported[] = {
    {"an encoder-only model, which does not generate text",
     " Bert Roberta XLMRoberta DistilBert Albert Electra Deberta MPNet ModernBert NomicBert T5Encoder"
     " bert modern-bert nomic-bert jina-bert roberta t5encoder"},
    {"an encoder-decoder model; only decoder-only models are supported",
     " T5 MT5 UMT5 Bart MBart Marian Pegasus M2M100 t5"},
    {"a recurrent model without attention, which is not supported",
     " Mamba FalconMamba Rwkv RWKV mamba rwkv"},
    {"a mixture of experts, which is not supported", " Phimoe PhiMoE GraniteMoeSWA Dbrx Jamba"
                                                     " phimoe dbrx jamba"},
    {"a model with sparse attention, which is not supported",
     " DeepseekV32 GlmMoeDsa deepseek32 glm-dsa"},
    {"an image or audio model, which is not supported", " Whisper CLIP Llava ViT clip wavtokenizer"},
};

const char *unsupported_arch(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(unsupported); i++)
        for (const char *at = unsupported[i].begin; *at; at += strcspn(at, " ")) {
            at++;
            if (strncmp(name, at, strcspn(at, " ")) == 0)
                return unsupported[i].what;
        }
    return NULL;
}
