/* The table of pre-tokenizers; regexes are those of the models' own tokenizer.json. */
#include "format/gguf/gguf_pre.h"

#include "base/text_util.h"

#define GPT2      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SHORTENED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3    SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" REST
#define QWEN2     SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" REST
#define UPPER     "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER     "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
/* Words, split where capitals follow small letters; `but`: what else letters must be. */
#define CASES_BUT(but, end)                                                                            \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER but "]*[" LOWER but "]+" end "|"                                   \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER but "]+[" LOWER but "]*" end
#define CASES(end) CASES_BUT("", end)
#define REST_SLASH " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define NO_HAN     "&&[^\\p{Han}]"
#define SENTENCES  " ?[^(\\s|.,!?…。，、।۔،)]+"
#define HAN        "[一-龥ࠀ-一가-퟿]+"
/* clang-format off */
/* Cased letters, as listed by DeepSeek's tokenizer. */
#define LETTERS \
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ" \
    "Ⴀ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄ" \
    "ῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮ" \
    "ⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"

#define SIGNS_OR_WORDS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define DEEPSEEK_V3 "\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", SIGNS_OR_WORDS

static const struct gguf_pre pres[] = {
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, 0},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 lfm2 pixtral midm-2.0 jina-v5-nano", {LLAMA3}, PRE_IGNORE_MERGES | PRE_ADD_BOS},
    {"dbrx smaug-bpe chatglm-bpe", {LLAMA3}, 0},
    {"glm4 glm5", {LLAMA3}, PRE_IGNORE_MERGES},
    {"minicpm5", {"\\p{N}{1,3}", SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+|" REST}, PRE_IGNORE_MERGES},
    {"jais-2", {SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|"
                "\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s"}, 0},
    {"qwen2 megrez f2llmv2", {QWEN2}, PRE_NFC},
    {"qwen35", {SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, PRE_NFC},
    {"deepseek-r1-qwen stablelm2 hunyuan solar-open grok-2 kormo", {QWEN2}, 0},
    {"laguna", {"[^\\n]+|\\n+", QWEN2}, 0},
    {"ufakzeka", {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" REST}, 0},
    {"bailingmoe bailingmoe2 llada-moe", {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}, 0},
    {"exaone-moe", {SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}, 0},
    {"deepseek-llm", {"[\\r\\n]", "\\s?" LETTERS, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", HAN, "\\p{N}+"}, 0},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN, "\\p{N}"}, 0},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", {DEEPSEEK_V3 "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, 0},
    {"spark2_5", {DEEPSEEK_V3 "|[\\r\\n]|\\s+(?!\\S)|\\s+", "\\p{N}"}, 0},
    /* digits in threes from the right */
    {"afmoe", {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
               SIGNS_OR_WORDS "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, 0},
    {"superbpe", {"\\p{N}+", "(?=(?:\\d{3})+(?!\\d))"}, 0},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, 0},
    {"gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code gigachat roberta-bpe jais exaone4 a.x-4.0 mellum trillion granite-docling", {GPT2}, 0},
    {"mpt olmo modern-bert", {GPT2}, PRE_NFC},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", {"\\p{N}", GPT2}, 0},
    {"seed-coder", {SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, 0},
    {"bloom poro-chat gpt3-finnish", {SENTENCES}, 0},
    {"viking", {SENTENCES, "\\p{N}"}, 0},
    {"tekken", {CASES("") "|\\p{N}|" REST_SLASH}, PRE_IGNORE_MERGES | PRE_ADD_BOS},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {CASES(SHORTENED "?") "|\\p{N}{1,3}|" REST_SLASH}, 0},
    {"youtu", {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", CASES(SHORTENED "?") "|\\p{N}|" REST_SLASH}, PRE_IGNORE_MERGES},
    {"tiny_aya cohere2moe", {"\\d{1,3}(?=(?:\\d{3})*\\b)", CASES(SHORTENED "?") "|\\p{N}{1,3}|" REST_SLASH}, 0},
    {"kimi-k2", {"\\p{Han}+|" CASES_BUT(NO_HAN, SHORTENED "?") "|\\p{N}{1,3}|" REST}, PRE_IGNORE_MERGES | PRE_MERGES_BY_ID},
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

const struct gguf_pre *gguf_pre_nth(size_t nth) { return nth < ARRAY_LEN(pres) ? &pres[nth] : NULL; }
