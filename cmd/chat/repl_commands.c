/* The commands of a conversation: lines that begin with a slash. */
#include <dirent.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "base/text_util.h"
#include "chat/repl.h"
#include "decode/session.h"
#include "format/detect.h"
#include "opt/opt.h"
#include "text/utf8.h"

/* ---- files: /save, /load and /file ---- */

enum { MOST_BYTES = 64 << 20 };

static int map_text(struct file_map *map, const char *path, struct err *err)
{
    if (file_map(map, path, err) < 0)
        return -1;
    if (map->size <= MOST_BYTES)
        return 0;
    file_unmap(map);
    return err_set(err, "%s: is longer than %d MiB", path, MOST_BYTES >> 20);
}

json_t *repl_read_messages(const char *path, struct err *err)
{
    struct file_map map;
    json_t *root = NULL;
    if (map_text(&map, path, err) < 0)
        return NULL;
    int rc = json_parse(map.data ? (const char *)map.data : "", map.size, path, &root, err);
    file_unmap(&map);
    if (rc == 0 && !json_is_object(root))
        rc = err_set(err, "%s: is no saved conversation, an object {\"messages\": [..]}", path);
    if (rc == 0 && dialogue_check(json_object_get(root, "messages"), err) < 0)
        rc = err_prefix(err, "%s", path);
    if (rc == 0)
        return root;
    json_decref(root);
    return NULL;
}

/* Fails if a file would be replaced that is not of the kind of the new one. */
static int check_replaced(const char *path, bool is_snapshot, struct err *err)
{
    struct err why;
    if (!file_exists(path))
        return 0;
    if (is_snapshot && file_detect(path) == KIND_SNAPSHOT)
        return 0;
    AUTO(json_auto) json_t *old = is_snapshot ? NULL : repl_read_messages(path, &why);
    const bool fits = old != NULL;
    return fits ? 0
                : err_set(err, "%s: exists and is no %s: choose another name", path,
                          is_snapshot ? "snapshot" : "saved conversation");
}

/* Takes what a command has removed from the conversation out of the KV cache. */
static int settle_cache(struct repl *repl, struct err *err)
{
    struct dialogue *d = &repl->dialogue;
    struct session *session = repl->gen->session;
    if (!repl->changed)
        return 0;
    /* the next prompt tells how far the answers that are left agree with the cache */
    if (dialogue_say(d, "user", "?", 1, err) < 0)
        return -1;
    const int rc = dialogue_prompt(d, err);
    dialogue_drop_answer(d, true);
    if (rc == 0 && !d->n_ends)
        return err_set(err,
                       "the KV cache still holds the conversation before the last command, and none of "
                       "its answers stands in this one: save it after the next answer, or the messages "
                       "under a name that does not end in .kv");
    if (rc < 0)
        return -1;
    d->ids.len = d->end[d->n_ends - 1].ids;
    if (session_length(session, 0) > d->ids.len && !kv_is_untrimmed(session_kv(session), 0))
        return err_set(err, "the KV cache has moved on, and cannot go back to be saved");
    session_truncate(session, 0, size_min(session_length(session, 0), d->ids.len));
    return 0;
}

int repl_save_kv(struct repl *repl, const char *path, size_t seq, struct err *err)
{
    struct gen *gen = repl->gen;
    const struct ids *ids = &repl->dialogue.ids;
    const struct saved_seq saved = {
        .token = ids->id,
        .n_tokens = ids->len,
        .n_prompt = ids->len,
        .seed = gen->seed,
        .stream = repl->request.stream,
        .sampling = &gen->serve.options.sampling,
    };
    const double start = clock_ms();
    if (settle_cache(repl, err) < 0)
        return -1;
    if (!session_length(gen->session, seq))
        return err_set(err, "the KV cache holds nothing to save");
    const int rc = snapshot_save(path, gen->session, seq, &saved, err);
    gen->save_ms += clock_ms() - start;
    return rc;
}

/* Saves the conversation as a JSON object {"messages": [..]}, or its KV cache if the name ends in .kv. */
static int save_conversation(struct repl *repl, const char *path, struct err *err)
{
    const bool is_snapshot = text_ends(path, ".kv");
    AUTO(buf_release) struct buf text = {0};
    if (check_replaced(path, is_snapshot, err) < 0)
        return -1;
    if (is_snapshot)
        return repl_save_kv(repl, path, 0, err);
    if (repl->dialogue.base.len)
        return err_set(err,
                       "the conversation began with a snapshot, whose messages are unknown: save it "
                       "as a snapshot, with a name in .kv");
    if (!dialogue_questions(&repl->dialogue))
        return err_set(err, "there is no message to save");
    AUTO(json_auto) json_t *object = json_object();
    return json_put(object, "messages", json_incref(repl->dialogue.messages), err) < 0 ||
                   json_append(object, 0, &text, err) < 0 || buf_add(&text, "\n", 1, err) < 0
               ? -1
               : outfile_save_private(path, text.data, text.len, err);
}

static int load_snapshot(struct repl *repl, const char *path, struct err *err)
{
    struct snapshot *snapshot;
    if (snapshot_open(&snapshot, path, repl->gen->model, err) < 0)
        return -1;
    if (repl_continue(repl, snapshot, true, err) == 0)
        return 0;
    if (repl->snapshot != snapshot)
        snapshot_close(snapshot);
    return -1;
}

static int load_conversation(struct repl *repl, const char *path, struct err *err)
{
    if (file_detect(path) == KIND_SNAPSHOT)
        return load_snapshot(repl, path, err);
    json_t *root = repl_read_messages(path, err);
    if (!root || repl_reset(repl, err) < 0) {
        json_decref(root);
        return -1;
    }
    dialogue_set_messages(&repl->dialogue, json_object_get(root, "messages"));
    json_decref(root);
    return 0;
}

static int attach_file(struct repl *repl, const char *path, struct err *err)
{
    struct file_map map;
    if (map_text(&map, path, err) < 0)
        return -1;
    const char *text = map.data ? (const char *)map.data : "";
    const size_t valid = utf8_valid(text, map.size);
    int rc = 0;
    if (valid < map.size)
        rc = err_set(err, "%s: is not UTF-8 text, byte %zu is invalid", path, valid);
    else if (memchr(text, 0, map.size))
        rc = err_set(err, "%s: is no text, it holds zero bytes", path);
    else
        rc = buf_add(&repl->attached, text, map.size, err);
    if (rc == 0 && map.size && text[map.size - 1] != '\n')
        rc = buf_add(&repl->attached, "\n", 1, err);
    file_unmap(&map);
    return rc;
}

/* ---- settings: /set ---- */

#define FIELD(field) offsetof(struct gen_options, field)

/* True for an option that can be set during a conversation: those of sampling, and the length of answers. */
static bool is_setting(const struct opt *opt)
{
    static const size_t more[] = {FIELD(mirostat), FIELD(samplers), FIELD(seed), FIELD(request.n)};
    bool found = opt->kind != OPT_HEADING && opt->at >= FIELD(sampling) &&
                 opt->at < FIELD(sampling) + sizeof(struct sampler_options);
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        found = found || (opt->kind != OPT_HEADING && opt->at == more[i]);
    return found;
}

static const char *setting_name(const struct repl *repl, size_t n)
{
    const struct program *program = repl->gen->program;
    for (size_t i = 0; i < program->n_opts; i++)
        if (is_setting(&program->opts[i]) && n-- == 0)
            return program->opts[i].name;
    return NULL;
}

/* Finds a setting by the name of its option, with or without dashes, or of its member of requests. */
static const struct opt *find_setting(const struct repl *repl, const char *name, struct err *err)
{
    const struct program *program = repl->gen->program;
    const char *word = name + strspn(name, "-");
    size_t at = SIZE_MAX;
    char known[400] = "";
    size_t param = 0;
    while (param < SAMPLING_COUNT_OF_PARAMS && strcmp(sampling_params[param].name, word) != 0 &&
           (!sampling_params[param].alias || strcmp(sampling_params[param].alias, word) != 0))
        param++;
    if (param < SAMPLING_COUNT_OF_PARAMS)
        at = param == SAMPLING_mirostat ? FIELD(mirostat)
             : param == SAMPLING_order  ? FIELD(samplers)
                                        : FIELD(sampling) + sampling_params[param].at;
    for (size_t i = 0; i < program->n_opts; i++) {
        const struct opt *opt = &program->opts[i];
        if (!is_setting(opt))
            continue;
        if (opt->at == at || strcmp(opt->name, word) == 0 ||
            (opt->letters && strcmp(opt->letters, word) == 0))
            return opt;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", opt->name);
    }
    err_set(err, "/set knows no \"%s\"; there are %s", excerpt_of(name, strlen(name)).text, known);
    return NULL;
}

/* The value in use. */
static void value_text(const struct repl *repl, const struct opt *opt, char *text, size_t size)
{
    const struct gen *gen = repl->gen;
    const struct sampler_options *s = &gen->serve.options.sampling;
    double value = 0;
    if (opt->at == FIELD(samplers)) {
        sampler_order_text(&s->order, text, size);
        snprintf(text + strlen(text), size - strlen(text), "%s", s->order.n ? "" : "the default order");
        return;
    }
    if (opt->at == FIELD(seed)) {
        snprintf(text, size, "%llu", (unsigned long long)gen->seed);
        return;
    }
    if (opt->at == FIELD(request.n))
        value = gen->serve.options.request.n == GENERATE_NO_LIMIT
                    ? -1
                    : (double)gen->serve.options.request.n;
    else if (opt->at == FIELD(mirostat))
        value = (double)s->mirostat;
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++)
        if (FIELD(sampling) + sampling_params[i].at == opt->at)
            value = sampling_get(s, i);
    number_text(value, text);
}

/* Reads a value into options of which no other sampling parameter is given. */
static int read_value(const struct opt *opt, const char *text, struct gen_options *o, struct err *err)
{
    if (opt->at == FIELD(samplers))
        return sampler_order_parse(text, &o->sampling.order, err) < 0 ? err_prefix(err, "--samplers")
                                                                      : 0;
    if (opt->at == FIELD(mirostat)) {
        if (strcmp(text, "0") != 0 && strcmp(text, "2") != 0)
            return err_set(err, "--mirostat: \"%s\" is none of 0, 2",
                           excerpt_of(text, strlen(text)).text);
        o->sampling.mirostat = text[0] == '2' ? 2 : 0;
        return 0;
    }
    if (opt_store_number(opt, text, (char *)o + opt->at))
        return 0;
    char sentence[256];
    opt_number_sentence(opt, text, sentence, sizeof sentence);
    return err_set(err, "--%s: %s", opt->name, sentence);
}

static int apply_setting(struct gen *gen, const struct opt *opt, const struct gen_options *o,
                         struct err *err)
{
    if (opt->at == FIELD(request.n))
        gen->serve.options.request.n = o->request.n;
    if (opt->at == FIELD(seed)) {
        gen->seed = o->seed.value;
        if (o->seed.draw && seed_draw(&gen->seed, err) < 0)
            return -1;
        gen->serve.options.request.seed = gen->seed;
    }
    sampling_override(&gen->serve.options.sampling, &o->sampling);
    return dry_breakers_find(&gen->serve.breakers, &gen->serve.options.sampling, err);
}

static int run_set(struct repl *repl, const char *arg, struct err *err)
{
    char name[64], value[160];
    const size_t len = strcspn(arg, " \t=");
    const char *text = arg + len + strspn(arg + len, " \t=");
    snprintf(name, sizeof name, "%.*s", (int)size_min(len, sizeof name - 1), arg);
    if (!*name) {
        for (size_t i = 0; i < repl->gen->program->n_opts; i++) {
            const struct opt *opt = &repl->gen->program->opts[i];
            if (!is_setting(opt))
                continue;
            value_text(repl, opt, value, sizeof value);
            repl_say("%-20s %s", opt->name, value);
        }
        return 0;
    }
    const struct opt *opt = find_setting(repl, name, err);
    if (!opt)
        return -1;
    if (*text) {
        struct gen_options o = *repl->gen->options;
        o.sampling = sampling_not_given();
        if (read_value(opt, text, &o, err) < 0 || apply_setting(repl->gen, opt, &o, err) < 0)
            return -1;
    }
    value_text(repl, opt, value, sizeof value);
    repl_say("%s is %s%s", opt->name, value, *text ? " from the next answer on" : "");
    return 0;
}

/* ---- the table of commands ---- */

struct repl_command {
    const char *name, *arg, *help; /* arg: NULL: none; in brackets: may be missing */
    int (*run)(struct repl *repl, const char *arg, struct err *err); /* NULL: nothing is to be done */
    enum command_outcome outcome;
};

static int run_help(struct repl *repl, const char *arg, struct err *err);

static int run_system(struct repl *repl, const char *arg, struct err *err)
{
    const char *now = dialogue_system(&repl->dialogue);
    if (repl->dialogue.base.len)
        return err_set(err, "the conversation began with a snapshot, and its system prompt with it; "
                            "/reset begins another one");
    if (!*arg) {
        repl_say(now ? "system prompt: %s" : "there is no system prompt%s", now ? now : "");
        return 0;
    }
    repl->changed = true;
    arg = strcmp(arg, "\"\"") == 0 ? "" : arg;
    return dialogue_set_system(&repl->dialogue, arg, strlen(arg), err);
}

static int run_save(struct repl *repl, const char *arg, struct err *err)
{
    if (save_conversation(repl, arg, err) < 0)
        return -1;
    repl_say("saved as %s", arg);
    return 0;
}

static int run_load(struct repl *repl, const char *arg, struct err *err)
{
    if (load_conversation(repl, arg, err) < 0)
        return -1;
    if (repl->dialogue.base.len)
        repl_say("the conversation goes on after the %zu tokens of %s", repl->dialogue.base.len, arg);
    else
        repl_say("%s: %zu messages", arg, json_array_size(repl->dialogue.messages));
    return 0;
}

static int run_reset(struct repl *repl, const char *arg, struct err *err)
{
    (void)arg;
    if (repl_reset(repl, err) < 0)
        return -1;
    repl_say("the conversation begins anew%s",
             dialogue_system(&repl->dialogue) ? ", with the same system prompt" : "");
    return 0;
}

static int run_undo(struct repl *repl, const char *arg, struct err *err)
{
    (void)arg;
    if (!dialogue_drop_answer(&repl->dialogue, true))
        return err_set(err, "there is no message to take back");
    repl->changed = true;
    repl_say("took the last message and its answer back; %zu left",
             dialogue_questions(&repl->dialogue));
    return 0;
}

static int run_regen(struct repl *repl, const char *arg, struct err *err)
{
    (void)arg;
    if (!dialogue_drop_answer(&repl->dialogue, false))
        return err_set(err, "there is no message to answer again");
    repl->changed = true;
    if (repl->gen->serve.options.sampling.temp <= 0)
        repl_say("greedy decoding gives the same answer again; --temp 0.8 would sample");
    return 0;
}

static int run_stats(struct repl *repl, const char *arg, struct err *err)
{
    (void)arg;
    (void)err;
    repl_print_stats(repl);
    return 0;
}

static int run_file(struct repl *repl, const char *arg, struct err *err)
{
    if (attach_file(repl, arg, err) < 0)
        return -1;
    repl_say("%s: %zu bytes go before the next message", arg, repl->attached.len);
    return 0;
}

static const struct repl_command commands[] = {
    {"/help", NULL, "print this list", run_help, COMMAND_DONE},
    {"/system", "[TEXT]", "set the system prompt, \"\" removes it; without TEXT print it", run_system,
     COMMAND_DONE},
    {"/file", "FILE", "put a text file before the next message", run_file, COMMAND_DONE},
    {"/regen", NULL, "answer the last message again", run_regen, COMMAND_ANSWER},
    {"/undo", NULL, "take the last message and its answer back", run_undo, COMMAND_DONE},
    {"/reset", NULL, "begin a new conversation with the same system prompt", run_reset, COMMAND_DONE},
    {"/save", "FILE",
     "save the messages as JSON; with a name in .kv the KV cache, to go on without prefill", run_save,
     COMMAND_DONE},
    {"/load", "FILE", "go on with a saved conversation", run_load, COMMAND_DONE},
    {"/stats", NULL, "print the use of the context, and speed", run_stats, COMMAND_DONE},
    {"/set", "[NAME VALUE]", "set a sampling parameter, as temp 0.7; without VALUE print it", run_set,
     COMMAND_DONE},
    {"/quit", NULL, "end, as Ctrl-D does", NULL, COMMAND_QUIT},
};

static int run_help(struct repl *repl, const char *arg, struct err *err)
{
    (void)repl;
    (void)arg;
    (void)err;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        char usage[32];
        snprintf(usage, sizeof usage, "%s %s", commands[i].name,
                 commands[i].arg ? commands[i].arg : "");
        repl_say("%-17s %s", usage, commands[i].help);
    }
    repl_say(
        "A message goes on in the next line after a backslash at the end of a line, and in all lines "
        "between two lines of \"\"\". // at its start stands for a slash. Ctrl-C stops an answer.");
    return 0;
}

static const char *command_name(size_t n) { return n < ARRAY_LEN(commands) ? commands[n].name : NULL; }

static bool takes_file(const char *command, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strlen(commands[i].name) == len && memcmp(commands[i].name, command, len) == 0)
            return commands[i].arg && strcmp(commands[i].arg, "FILE") == 0;
    return false;
}

/* The command that a line begins with, perhaps shortened. NULL with a sentence: there is none, or there are
 * several. */
static const struct repl_command *find_command(const char *line, size_t len, struct err *err)
{
    const struct repl_command *found = NULL;
    char names[128] = "";
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strncmp(commands[i].name, line, len) != 0)
            continue;
        if (strlen(commands[i].name) == len)
            return &commands[i];
        found = &commands[i];
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", n++ ? ", " : "", found->name);
    }
    if (n == 1 && len > 1)
        return found;
    const int shown = (int)size_min(len, 60);
    if (n > 1 && len > 1)
        err_set(err, "%.*s could be %s", shown, line, names);
    else
        err_set(err,
                "there is no command %.*s; /help lists them, and a message that begins with a slash "
                "begins with two",
                shown, line);
    return NULL;
}

int repl_command(struct repl *repl, const char *line, struct err *err)
{
    const size_t len = strcspn(line, " \t\n");
    const struct repl_command *command = find_command(line, len, err);
    const char *arg = line + len + strspn(line + len, " \t\n");
    size_t arg_len = strlen(arg);
    if (!command)
        return -1;
    while (arg_len && strchr(" \t\n", arg[arg_len - 1]))
        arg_len--;
    if (!command->arg && arg_len)
        return err_set(err, "%s takes no argument", command->name);
    if (command->arg && command->arg[0] != '[' && !arg_len)
        return err_set(err, "%s needs a name: %s %s", command->name, command->name, command->arg);
    AUTO(free_auto) char *copy = strndup(arg, arg_len);
    if (!copy)
        return err_no_memory(err, "a command");
    const int rc = command->run ? command->run(repl, copy, err) : 0;
    return rc < 0 ? -1 : (int)command->outcome;
}

/* ---- completion: commands, settings and names of files ---- */

/* Candidates for a word: their longest common prefix. */
struct candidates {
    const char *word;
    size_t len, n;
    char common[256];
};

static void offer_name(struct candidates *c, const char *name)
{
    size_t same = 0;
    if (strncmp(name, c->word, c->len) != 0)
        return;
    if (c->n++ == 0)
        snprintf(c->common, sizeof c->common, "%s", name);
    while (c->common[same] && c->common[same] == name[same])
        same++;
    c->common[same] = 0;
}

/* Offers the files of the word's folder. Hidden ones are not offered unless the word begins with a dot. */
static bool offer_files(struct candidates *c, const char *word)
{
    const char *slash = strrchr(word, '/');
    char folder[4096], path[4096 + 256];
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - word + 1) : 1, slash ? word : ".");
    c->word = slash ? slash + 1 : word;
    c->len = strlen(c->word);
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' || c->word[0] == '.')
            offer_name(c, entry->d_name);
    if (dir)
        closedir(dir);
    snprintf(path, sizeof path, "%s/%s", folder, c->common);
    return c->n == 1 && file_is_folder(path);
}

int repl_complete(void *arg, const char *line, struct buf *rest, struct err *err)
{
    const struct repl *repl = arg;
    const size_t len = strcspn(line, " \t");
    struct candidates c = {.word = line, .len = len};
    const char *end = " ", *name;
    if (!line[len]) {
        for (size_t i = 0; (name = command_name(i)); i++)
            offer_name(&c, name);
    } else {
        c.word += len + strspn(line + len, " \t");
        c.len = strlen(c.word);
        if (strncmp(line, "/set", len) == 0 && len == strlen("/set"))
            for (size_t i = 0; (name = setting_name(repl, i)); i++)
                offer_name(&c, name);
        else if (takes_file(line, len))
            end = offer_files(&c, c.word) ? "/" : "";
    }
    if (!c.n || strlen(c.common) < c.len)
        return 0;
    if (buf_add(rest, c.common + c.len, strlen(c.common) - c.len, err) < 0)
        return -1;
    return c.n == 1 ? buf_add(rest, end, strlen(end), err) : 0;
}
