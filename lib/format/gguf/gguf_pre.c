/* The table of pre-tokenizers; regexes are those of the models' own tokenizer.json. */
#include "format/gguf/gguf_pre.h"

#include <string.h>

#include "base/text_util.h"

#define GPT2      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SHORTENED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3    SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" REST
#define QWEN2     SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" REST
#define UPPER     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASES(end)                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define REST_SLASH " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SENTENCES  " ?[^(\\s|.,!?…。，、।۔،)]+"
#define HAN        "[一-龥ࠀ-一가-퟿]+"
/* clang-format off */
/* Cased letters, as listed by DeepSeek's tokenizer. */
#define LETTERS \
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ" \
    "Ⴀ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄ" \
    "ῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮ" \
    "ⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"

static const struct gguf_pre pres[] = {
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false, false},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 lfm2", {LLAMA3}, false, true, true},
    {"dbrx smaug-bpe chatglm-bpe glm4", {LLAMA3}, false, false, false},
    {"qwen2 megrez", {QWEN2}, true, false, false},
    {"qwen35", {SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, true, false, false},
    {"deepseek-r1-qwen stablelm2 hunyuan", {QWEN2}, false, false, false},
    {"deepseek-llm", {"[\\r\\n]", "\\s?" LETTERS, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", HAN, "\\p{N}+"}, false, false, false},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN, "\\p{N}"}, false, false, false},
    {"deepseek-v3 hunyuan-dense", {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
                     " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, false, false, false},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, false, false, false},
    {"gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code gigachat roberta-bpe jais exaone4", {GPT2}, false, false, false},
    {"mpt olmo", {GPT2}, true, false, false},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b", {"\\p{N}", GPT2}, false, false, false},
    {"seed-coder", {SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, false, false, false},
    {"bloom poro-chat gpt3-finnish", {SENTENCES}, false, false, false},
    {"viking", {SENTENCES, "\\p{N}"}, false, false, false},
    {"tekken", {CASES("") "|\\p{N}|" REST_SLASH}, false, true, true},
    {"gpt-4o llama4", {CASES(SHORTENED "?") "|\\p{N}{1,3}|" REST_SLASH}, false, false, false},
};
/* clang-format on */

int gguf_pre_find(const struct gguf_pre **pre, const char *name, size_t len, const char *path,
                  struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(pres); i++)
        if (text_lists(pres[i].names, name, len)) {
            *pre = &pres[i];
            return 0;
        }
    return err_set(err,
                   "%s: unknown pre-tokenizer \"%s\" (tokenizer.ggml.pre); convert the Hugging Face "
                   "folder of the model instead",
                   path, excerpt_of(name, len).text);
}
