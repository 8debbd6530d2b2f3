/* Conversations that are kept under a name. */
#include "chat/repl_session.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text_util.h"
#include "report/table.h"
#include "userdir.h"

enum { PATH_BYTES = 4096 + 256 };

static const char conversation[] = "conversation.json", cache[] = "cache.kv";

/* ---- folders ---- */

/* Names are those of folders, so that other characters and names as ".." are refused. */
static int check_name(const char *name, struct err *err)
{
    static const char known[] = "._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const size_t len = strlen(name);
    return len && len <= 64 && *name != '.' && *name != '-' && strspn(name, known) == len
               ? 0
               : err_code(err, ERR_INVALID,
                          "\"%s\" cannot name a session: at most 64 letters, digits, dots, dashes and "
                          "underscores are expected, of which the first is a letter or digit",
                          excerpt_of(name, len).text);
}

/* The folder of a conversation, of all of them if `name` is "". */
static int find_folder(const char *name, char *path, size_t size, struct err *err)
{
    char relative[128];
    snprintf(relative, sizeof relative, "sessions%s%s", *name ? "/" : "", name);
    return userdir_path(USER_STATE, relative, path, size)
               ? 0
               : err_set(err, "--session: there is no folder for conversations: neither XDG_STATE_HOME "
                              "nor HOME is set");
}

static void path_in(char path[PATH_BYTES], const char *folder, const char *name)
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
}

/* Opens and locks a folder that only this user can read. Returns a descriptor, or -1. */
static int open_folder(const char *folder, const char *name, struct err *err)
{
    struct stat st;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = fd < 0 ? err_errno(err, "--session: cannot open the folder %s", folder) : 0;
    if (rc == 0 && fstat(fd, &st) == 0 && (st.st_uid != geteuid() || st.st_mode & 077))
        rc =
            err_set(err, "--session: others can use the folder %s: remove it, or chmod 700 it", folder);
    if (rc == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
        rc = err_set(err, "--session: the conversation \"%s\" is open in another process", name);
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- the conversation ---- */

/* Identifies the chat template: that of the model file, and the one of --chat-template. */
static void template_id(const struct gen *gen, char id[17])
{
    const char *format = gen->options->chat_format ? gen->options->chat_format : "";
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, format, strlen(format) + 1);
    hasher_add(&hasher, gen->model->file.chat, gen->model->file.chat_bytes);
    const struct hash hash = hasher_result(&hasher);
    hash_hex(&hash, 8, id);
}

static bool has_text(const json_t *object, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && strcmp(value, text) == 0;
}

/* Fails if the conversation is with another model, or another template. */
static int check_partner(const struct repl *repl, const json_t *saved, struct err *err)
{
    const struct gen *gen = repl->gen;
    const char *name = gen->options->session;
    const char *model = json_string_value(json_object_get(saved, "model"));
    char model_id[2 * HASH_BYTES + 1], template[17];
    hash_hex(&gen->model->file.model_id, HASH_BYTES, model_id);
    template_id(gen, template);
    if (!has_text(saved, "model_id", model_id))
        return err_set(
            err,
            "--session: the conversation \"%s\" is with another model, %s: give that with -m, "
            "or another name",
            name, model ? excerpt_of(model, strlen(model)).text : "which is not known");
    if (!has_text(saved, "template", template))
        return err_set(err,
                       "--session: the conversation \"%s\" has another chat template: give that with "
                       "--chat-template, or another name",
                       name);
    return 0;
}

/* Opens the snapshot of the KV cache. Without it the conversation is computed again. */
static void open_cache(struct repl *repl)
{
    char path[PATH_BYTES];
    struct err why;
    path_in(path, repl->folder, cache);
    if (!file_exists(path))
        return;
    if (snapshot_open(&repl->snapshot, path, repl->gen->model, &why) == 0)
        repl->owns_snapshot = true;
    else
        repl_say("session: the KV cache is computed again: %s", why.text);
}

static int restore(struct repl *repl, const char *path, struct err *err)
{
    struct gen *gen = repl->gen;
    AUTO(json_auto) json_t *saved = repl_read_messages(path, err);
    if (!saved || check_partner(repl, saved, err) < 0)
        return -1;
    if (dialogue_restore(&repl->dialogue, saved, err) < 0)
        return err_prefix(err, "%s", path);
    const json_t *seed = json_object_get(saved, "seed");
    const json_int_t answers = json_integer_value(json_object_get(saved, "answers"));
    repl->n_answers_before = answers > 0 ? (size_t)answers : 0;
    if (json_is_integer(seed) && !gen->options->seed.given)
        gen->seed = gen->serve.options.request.seed = (uint64_t)json_integer_value(seed);
    repl->changed = true;
    open_cache(repl);
    if (!gen->options->quiet)
        repl_say("session %s: goes on after %zu messages", gen->options->session,
                 json_array_size(repl->dialogue.messages));
    return 0;
}

int repl_session_open(struct repl *repl, const char *name, struct err *err)
{
    char path[PATH_BYTES];
    if (check_name(name, err) < 0 || find_folder(name, repl->folder, sizeof repl->folder, err) < 0)
        return -1;
    path_in(path, repl->folder, conversation);
    file_make_parents(path);
    repl->folder_fd = open_folder(repl->folder, name, err);
    if (repl->folder_fd < 0)
        return -1;
    return file_exists(path) ? restore(repl, path, err) : 0;
}

static int save(struct repl *repl, struct err *err)
{
    const struct gen *gen = repl->gen;
    char path[PATH_BYTES], model_id[2 * HASH_BYTES + 1], template[17];
    AUTO(buf_release) struct buf text = {0};
    if (repl->dialogue.base.len)
        return err_set(err, "the conversation began with a snapshot, whose messages are unknown");
    path_in(path, repl->folder, conversation);
    hash_hex(&gen->model->file.model_id, HASH_BYTES, model_id);
    template_id(gen, template);
    AUTO(json_auto)
    json_t *saved = json_pack(
        "{s:o, s:s, s:s, s:o, s:o}", "model", json_text(gen->model->name, strlen(gen->model->name)),
        "model_id", model_id, "template", template, "seed", json_integer((json_int_t)gen->seed),
        "answers", json_whole(repl->n_answers_before + repl->n_requests));
    if (!saved)
        return err_no_memory(err, "a conversation");
    return dialogue_save(&repl->dialogue, saved, err) < 0 || json_append(saved, 0, &text, err) < 0 ||
                   buf_add(&text, "\n", 1, err) < 0
               ? -1
               : outfile_save_private(path, text.data, text.len, err);
}

void repl_session_save(struct repl *repl)
{
    struct err err;
    if (repl->folder_fd >= 0 && save(repl, &err) < 0)
        repl_say("session %s: is not saved: %s", repl->gen->options->session, err.text);
}

void repl_session_save_kv(struct repl *repl, size_t seq)
{
    char path[PATH_BYTES];
    struct err err;
    if (repl->folder_fd < 0)
        return;
    repl_session_save(repl);
    path_in(path, repl->folder, cache);
    if (repl->n_requests && !repl->dialogue.base.len && repl_save_kv(repl, path, seq, &err) < 0)
        repl_say("session %s: the KV cache is not saved: %s", repl->gen->options->session, err.text);
}

void repl_session_close(struct repl *repl)
{
    if (repl->folder_fd < 0)
        return;
    (void)!rmdir(repl->folder); /* without a message it is empty */
    close(repl->folder_fd);
    repl->folder_fd = -1;
}

/* ---- --list-sessions and --remove-session ---- */

static size_t bytes_of(const char *folder, const char *name, time_t *used)
{
    char path[PATH_BYTES];
    struct stat st;
    path_in(path, folder, name);
    if (stat(path, &st) < 0)
        return 0;
    *used = st.st_mtime > *used ? st.st_mtime : *used;
    return (size_t)st.st_size;
}

static int push_session(json_t *rows, const char *all, const char *name, struct err *err)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 64], text[CLI_TIME];
    time_t used = 0;
    struct err why;
    if (check_name(name, &why) < 0)
        return 0;
    path_in(folder, all, name);
    if (strlen(folder) >= 4096)
        return 0;
    path_in(path, folder, conversation);
    if (!file_exists(path))
        return 0;
    AUTO(json_auto) json_t *saved = repl_read_messages(path, &why);
    const char *model = json_string_value(json_object_get(saved, "model"));
    const size_t bytes = bytes_of(folder, conversation, &used) + bytes_of(folder, cache, &used);
    cli_time(used, text);
    return json_push(rows,
                     json_pack("{s:s, s:I, s:s, s:I, s:s}", "session", name, "messages",
                               (json_int_t)json_array_size(json_object_get(saved, "messages")), "used",
                               text, "bytes", (json_int_t)bytes, "model",
                               saved ? (model ? model : "") : why.text),
                     err);
}

int repl_list_sessions(struct err *err)
{
    char all[4096];
    struct dirent **entry = NULL;
    AUTO(json_auto) json_t *rows = json_array();
    AUTO(buf_release) struct buf text = {0};
    if (find_folder("", all, sizeof all, err) < 0)
        return -1;
    int rc = rows ? 0 : err_no_memory(err, "a table");
    const int n = scandir(all, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = push_session(rows, all, entry[i]->d_name, err);
        free(entry[i]);
    }
    free(entry);
    if (rc == 0 && json_array_size(rows))
        rc = table_write(rows, NULL, TABLE_TEXT, &text, err);
    return rc == 0 ? cli_put(buf_text(&text), text.len, err) : -1;
}

int repl_remove_session(const char *name, struct err *err)
{
    char folder[4096], path[PATH_BYTES];
    if (check_name(name, err) < 0 || find_folder(name, folder, sizeof folder, err) < 0)
        return -1;
    path_in(path, folder, conversation);
    if (!file_exists(folder))
        return err_set(err, "--remove-session: there is no conversation \"%s\"", name);
    const int fd = open_folder(folder, name, err);
    if (fd < 0)
        return -1;
    (void)!unlinkat(fd, cache, 0);
    int rc = unlinkat(fd, conversation, 0);
    rc = rc < 0 && errno == ENOENT ? 0 : rc;
    if (rc == 0)
        rc = rmdir(folder);
    if (rc < 0)
        err_errno(err, "--remove-session: cannot remove %s", folder);
    close(fd);
    return rc;
}
