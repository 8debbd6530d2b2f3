/* The table of architectures that are known to be something else. */
#include "format/foreign_archs.h"

#include <string.h>

#include "base/base.h"

#define ENCODER "an encoder, which reads text and generates none"
#define BOTH    "an encoder with a decoder, of which only decoders alone are implemented"
#define STATE   "a recurrent model without attention, which is not implemented"
#define EXPERTS "a mixture of experts, which is not implemented"
#define LATENT  "a model with latent attention and experts, which is not implemented"
#define PICTURE "a model of pictures or sound, which is not implemented"

/* By the beginning of the name; the first that fits holds. */
static const struct {
    const char *begins, *what;
} foreign[] = {
    {"Bert", ENCODER},
    {"Roberta", ENCODER},
    {"XLMRoberta", ENCODER},
    {"DistilBert", ENCODER},
    {"Albert", ENCODER},
    {"Electra", ENCODER},
    {"Deberta", ENCODER},
    {"MPNet", ENCODER},
    {"ModernBert", ENCODER},
    {"NomicBert", ENCODER},
    {"T5Encoder", ENCODER},
    {"T5", BOTH},
    {"MT5", BOTH},
    {"UMT5", BOTH},
    {"Bart", BOTH},
    {"MBart", BOTH},
    {"Marian", BOTH},
    {"Pegasus", BOTH},
    {"M2M100", BOTH},
    {"Mamba", STATE},
    {"FalconMamba", STATE},
    {"Rwkv", STATE},
    {"RWKV", STATE},
    {"Mixtral", EXPERTS},
    {"Qwen2Moe", EXPERTS},
    {"Qwen3Moe", EXPERTS},
    {"Olmoe", EXPERTS},
    {"Phimoe", EXPERTS},
    {"PhiMoE", EXPERTS},
    {"GraniteMoe", EXPERTS},
    {"Dbrx", EXPERTS},
    {"Jamba", EXPERTS},
    {"GptOss", EXPERTS},
    {"DeepseekV2", LATENT},
    {"DeepseekV3", LATENT},
    {"Whisper", PICTURE},
    {"CLIP", PICTURE},
    {"Llava", PICTURE},
    {"ViT", PICTURE},
    {"bert", ENCODER},
    {"modern-bert", ENCODER},
    {"nomic-bert", ENCODER},
    {"jina-bert", ENCODER},
    {"roberta", ENCODER},
    {"t5encoder", ENCODER},
    {"t5", BOTH},
    {"mamba", STATE},
    {"rwkv", STATE},
    {"qwen2moe", EXPERTS},
    {"qwen3moe", EXPERTS},
    {"olmoe", EXPERTS},
    {"phimoe", EXPERTS},
    {"granitemoe", EXPERTS},
    {"dbrx", EXPERTS},
    {"jamba", EXPERTS},
    {"gpt-oss", EXPERTS},
    {"deepseek2", LATENT},
    {"clip", PICTURE},
    {"wavtokenizer", PICTURE},
};

const char *foreign_arch(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
        if (strncmp(name, foreign[i].begins, strlen(foreign[i].begins)) == 0)
            return foreign[i].what;
    return NULL;
}
