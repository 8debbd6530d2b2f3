/* Sentences of the internal modules name options of the command line; programs set members of structures. */
#include "api/api.h"

static const struct {
    const char *option, *instead;
} names[] = {
    {"--beams", "`beams`"},
    {"--cache-kld", "`cache_kld`"},
    {"--cache-type", "`cache_type`"},
    {"--chat", "\"messages\""},
    {"--chat-template", "`chat_template`"},
    {"--chunk", "`chunk`"},
    {"--experts", "`experts`"},
    {"--hugepages", "`hugepages`"},
    {"--kv", "`kv`"},
    {"--lenient", "`lenient`"},
    {"--lookup", "`drafter` lookup"},
    {"--lora", "`lora`"},
    {"--numa", "`numa`"},
    {"--suffix", "`drafter` suffix"},
    {"-c", "`context`"},
    {"-d", "`draft`"},
    {"-n", "\"n\""},
    {"-np", "`sequences`"},
    {"-p", "the prompt"},
};

/* What stands for the option at the beginning of `text`, `len` bytes long; NULL: nothing. */
static const char *find_name(const char *text, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strlen(names[i].option) == len && memcmp(names[i].option, text, len) == 0)
            return names[i].instead;
    return NULL;
}

/* True if the word before `at` is a program's name: the option is that program's. */
static bool follows_program(const char *text, const char *at)
{
    const char *word = at;
    while (word > text && word[-1] == ' ')
        word--;
    while (word > text && word[-1] != ' ')
        word--;
    return strncmp(word, "bmc-", 4) == 0;
}

void api_name_members(const char *from, char *to, size_t size)
{
    size_t len = 0;
    bool quoted = false;
    for (const char *at = from; *at && len < size - 1;) {
        const bool begins = at == from || at[-1] == ' ' || at[-1] == '(';
        const size_t word = *at == '-' && begins ? strcspn(at, " ,;:.)") : 0;
        const char *instead = word && !quoted ? find_name(at, word) : NULL;
        quoted ^= *at == '"';
        if (instead && !follows_program(from, at)) {
            len += (size_t)snprintf(to + len, size - len, "%s", instead);
            at += word;
        } else {
            to[len++] = *at++;
        }
    }
    to[size_min(len, size - 1)] = 0;
}
