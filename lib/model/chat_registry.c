/* Finding chat formats in MODELS_DIR/chat. */
#include "model/chat_registry.h"

#include <dirent.h>

#include "base/file.h"
#include "base/text_util.h"
#include "text/slice.h"

enum { PATH_SIZE = 4096 + 300 };

static int is_chat_file(const struct dirent *entry)
{
    return text_ends(entry->d_name, ".jinja") || text_ends(entry->d_name, ".chat");
}

/* Appends the lines of a format's template: those in the comment that it begins with, and "format". */
static int template_lines(const char *text, size_t size, const char *path, struct buf *lines,
                          struct err *err)
{
    const char *end = memmem(text, size, "-#}", 3);
    if (!end || size < 3 || memcmp(text, "{#-", 3) != 0)
        return err_set(err,
                       "%s: a chat format begins with {#- and -#}, between which its lines are; see "
                       "bmc-chat(5)",
                       path);
    const char *body = end + 3;
    AUTO(json_auto) json_t *format = json_text(body, size - (size_t)(body - text));
    int rc = format ? buf_add(lines, text + 3, (size_t)(end - text) - 3, err)
                    : err_no_memory(err, "%s", path);
    if (rc == 0)
        rc = buf_addf(lines, err, "\nformat ");
    return rc < 0 ? -1 : json_append(format, JSON_ENCODE_ANY, lines, err);
}

static int read_chat(struct chat *chat, const char *path, struct err *err)
{
    struct file_map map;
    struct buf lines = {0};
    if (file_map(&map, path, err) < 0)
        return -1;
    const char *text = map.data ? (const char *)map.data : "";
    int rc = chat_is_jinja_path(path) ? template_lines(text, map.size, path, &lines, err)
                                      : buf_add(&lines, text, map.size, err);
    if (rc == 0)
        rc = chat_parse(chat, buf_text(&lines), lines.len, path, err);
    buf_release(&lines);
    file_unmap(&map);
    return rc;
}

/* Called with each chat format; may take ownership by leaving another or a zeroed struct. */
typedef int visitor(void *arg, struct chat *chat, struct err *err);

static int visit_all(const char *models_dir, visitor *visit, void *arg, struct err *err)
{
    char path[PATH_SIZE];
    struct dirent **files = NULL;
    snprintf(path, sizeof path, "%s/chat", models_dir);
    const int n = scandir(path, &files, is_chat_file, alphasort);
    if (n < 0)
        return err_errno(err, "%s: cannot list the chat formats", path);
    int rc = 0;
    for (int i = 0; i < n; i++) {
        struct chat chat = {0};
        snprintf(path, sizeof path, "%s/chat/%s", models_dir, files[i]->d_name);
        if (rc == 0 && (rc = read_chat(&chat, path, err)) == 0)
            rc = visit(arg, &chat, err);
        chat_release(&chat);
        free(files[i]);
    }
    free(files);
    return rc;
}

bool chat_is_jinja_path(const char *name)
{
    return text_ends(name, ".jinja") || text_ends(name, ".j2");
}

struct chat_search {
    const char *text;
    size_t len;
    struct chat best;
    size_t bytes; /* total length of the `mark` lines of `best` */
};

static int compare_template(void *arg, struct chat *chat, struct err *err)
{
    struct chat_search *search = arg;
    const size_t bytes = chat_match(chat, search->text, search->len);
    (void)err;
    if (bytes > search->bytes) {
        const struct chat before = search->best;
        search->best = *chat;
        search->bytes = bytes;
        *chat = before;
    }
    return 0;
}

/* Compares after replacing the template's line feeds by the escape "\n", as in `mark` lines. */
int chat_find(struct chat *chat, const char *models_dir, const char *chat_template, size_t len,
              struct err *err)
{
    struct buf text = {0};
    struct chat_search search = {0};
    int rc = slice_replace((struct slice){chat_template, len}, (struct slice){"\n", 1},
                           (struct slice){"\\n", 2}, 2 * len + 1, &text, err);
    search.text = buf_text(&text);
    search.len = text.len;
    if (rc == 0)
        rc = visit_all(models_dir, compare_template, &search, err);
    buf_release(&text);
    if (rc < 0) {
        chat_release(&search.best);
        return -1;
    }
    *chat = search.best;
    return search.bytes ? CHAT_FOUND : CHAT_NONE;
}

static int add_name(void *arg, struct chat *chat, struct err *err)
{
    struct buf *names = arg;
    return buf_addf(names, err, "%s%s", names->len ? ", " : "", chat->name);
}

struct named {
    const char *name;
    struct chat *chat;
    bool found;
};

static int take_named(void *arg, struct chat *chat, struct err *err)
{
    struct named *named = arg;
    (void)err;
    if (!named->found && strcmp(chat->name, named->name) == 0) {
        *named->chat = *chat;
        *chat = (struct chat){0};
        named->found = true;
    }
    return 0;
}

int chat_open(struct chat *chat, const char *models_dir, const char *name, struct err *err)
{
    struct named named = {name, chat, false};
    AUTO(buf_release) struct buf names = {0};
    *chat = (struct chat){0};
    if (strchr(name, '/'))
        return read_chat(chat, name, err);
    int rc = visit_all(models_dir, take_named, &named, err);
    if (rc == 0 && !named.found) {
        rc = visit_all(models_dir, add_name, &names, err);
        if (rc == 0)
            rc = err_set(err, "chat format \"%s\" is unknown; known are %s", name, names.data);
    }
    if (rc < 0)
        chat_release(chat);
    return rc;
}

int chat_default_tokens(const struct tokenizer *tok, const struct config *config, struct buf *bos,
                        struct buf *eos, struct err *err)
{
    AUTO(ids_release) struct ids ids = {0};
    int rc = tokenizer_encode(tok, "", 0, true, &ids, err);
    if (rc == 0 && ids.len)
        rc = tokenizer_piece(tok, ids.id[0], bos, err);
    if (rc == 0 && config->n_eos)
        rc = tokenizer_piece(tok, config->eos[0], eos, err);
    return rc;
}
