/* Members that other servers' requests have, and this one's do not. */
#include "serve/foreign_members.h"

#include "base/text_util.h"

/* Which values have no effect on the answer. */
enum harmless { ALL, NO_VALUE, IF_FALSE, IF_EMPTY, IF_TEXT, IF_STREAM_OPTIONS, IF_LEFT_TO_MODEL };

static const struct other_server {
    const char *name;
    enum harmless harmless;
    const char *why;     /* why it has no effect, or what to do instead */
    const char *instead; /* what to do instead of other values; NULL: as `why` */
    bool openai;         /* of chat completions or completions */
} members[] = {
    {"model", ALL, "the model of the run answers", NULL, true},
    {"user", ALL, "nothing is kept of users", NULL, true},
    {"safety_identifier", ALL, "nothing is kept of users", NULL, true},
    {"metadata", ALL, "nothing is stored", NULL, true},
    {"store", ALL, "nothing is stored", NULL, true},
    {"service_tier", ALL, "there is one tier", NULL, true},
    {"stream_options", IF_STREAM_OPTIONS, "results have all ids", NULL, true},
    {"best_of", ALL, "all choices are returned", NULL, true},
    {"prediction", ALL, "bmc-spec --lookup drafts from the prompt", NULL, true},
    {"prompt_cache_key", ALL, "prefixes are always reused", NULL, true},
    {"prompt_cache_retention", ALL, "prefixes are always reused", NULL, true},
    {"prompt_cache_options", ALL, "prefixes are always reused", NULL, true},
    {"cache_prompt", ALL, "prefixes are always reused", NULL, false},
    {"id_slot", ALL, "slots are assigned", NULL, false},
    {"timings_per_token", ALL, "--stats has times", NULL, false},
    {"return_tokens", ALL, "results have all ids", NULL, false},
    {"spaces_between_special_tokens", ALL, "texts are those of the tokenizer", NULL, false},
    {"modalities", IF_TEXT, "text is the only one", NULL, true},
    {"audio", NO_VALUE, "text is the only modality", NULL, true},
    {"echo", IF_FALSE, "the text begins after the prompt", NULL, true},
    {"suffix", IF_EMPTY, "write the fill-in-the-middle tokens into the prompt", NULL, true},
    {"functions", NO_VALUE, "give tools instead", NULL, true},
    {"function_call", IF_LEFT_TO_MODEL, "the model decides", "give tools instead", true},
    {"reasoning_effort", NO_VALUE,
     "some chat templates have a variable of that name: give it in chat_template_kwargs", NULL, true},
    {"verbosity", NO_VALUE, "say in a message how long the answer should be", NULL, true},
    {"web_search_options", NO_VALUE, "there is no web search", NULL, true},
    {"moderation", NO_VALUE, "there is no model for moderation", NULL, true},
    {"min_tokens", NO_VALUE, "ignore_eos continues past EOS", NULL, false},
    {"stop_token_ids", NO_VALUE, "stop takes texts, also those of special tokens", NULL, false},
    {"include_stop_str_in_output", IF_FALSE, "the ids of the result have the stop string's", NULL,
     false},
    {"guided_json", NO_VALUE, "give json_schema", NULL, false},
    {"guided_regex", NO_VALUE, "give regex", NULL, false},
    {"guided_choice", NO_VALUE, "give choice", NULL, false},
    {"guided_grammar", NO_VALUE, "give grammar", NULL, false},
    {"structured_outputs", NO_VALUE, "give json_schema, regex, choice or grammar", NULL, false},
};

_Static_assert(ARRAY_LEN(members) <= 8 * sizeof(foreign_members), "a bit each");

static bool is_one_of(const json_t *value, const char *words)
{
    return json_is_string(value) &&
           text_lists(words, json_string_value(value), json_string_length(value));
}

int check_known(const char *where, const json_t *object, const char *known, struct err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!json_is_null(value) && !text_lists(known, name, strlen(name)))
            return err_set(err, "%s has the unknown member \"%s\"; known are: %s", where,
                           excerpt_of(name, strlen(name)).text, known);
    }
    return 0;
}

/* Whether a value has no effect; `err` is set if its own members have an error. */
static int is_harmless(const struct other_server *member, const json_t *value, struct err *err)
{
    switch (member->harmless) {
    case ALL: return 1;
    case NO_VALUE: break;
    case IF_FALSE: return json_is_false(value);
    case IF_EMPTY: return json_is_string(value) && !json_string_length(value);
    case IF_TEXT: return json_array_size(value) == 1 && is_one_of(json_array_get(value, 0), "text");
    case IF_LEFT_TO_MODEL: return is_one_of(value, "auto none");
    case IF_STREAM_OPTIONS:
        if (!json_is_object(value))
            return err_set(err, "\"%s\" is %s, an object is expected", member->name,
                           json_type_name(value));
        return check_known("\"stream_options\"", value, "include_usage include_obfuscation", err) < 0
                   ? -1
                   : 1;
    }
    return 0;
}

int foreign_member(const char *name, const json_t *value, foreign_members *ignored, bool *openai,
                   struct err *err)
{
    size_t i = 0;
    while (i < ARRAY_LEN(members) && strcmp(members[i].name, name) != 0)
        i++;
    if (i == ARRAY_LEN(members))
        return 0;
    const struct other_server *member = &members[i];
    *openai = *openai || member->openai;
    if (json_is_null(value))
        return 1;
    const int harmless = is_harmless(member, value, err);
    if (harmless == 0)
        return err_set(err, "\"%s\" is not supported: %s (--lenient ignores it)", name,
                       member->instead ? member->instead : member->why);
    if (harmless > 0)
        *ignored |= (foreign_members)1 << i;
    return harmless;
}

int foreign_note(foreign_members ignored, struct buf *note, struct err *err)
{
    const char *before = "members of requests without effect: ";
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(members) && rc == 0; i++) {
        if (!(ignored >> i & 1))
            continue;
        rc = buf_addf(note, err, "%s%s (%s)", before, members[i].name, members[i].why);
        before = ", ";
    }
    return rc;
}
