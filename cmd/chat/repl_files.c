/* Files of a conversation: /save, /load and /file. */
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text_util.h"
#include "chat/repl.h"
#include "decode/session.h"
#include "format/detect.h"
#include "text/utf8.h"

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

/* Reads a saved conversation; the caller releases the object. NULL: it is none. */
static json_t *read_messages(const char *path, struct err *err)
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
    json_t *old = is_snapshot ? NULL : read_messages(path, &why);
    const bool fits = old != NULL;
    json_decref(old);
    return fits ? 0
                : err_set(err, "%s: exists and is no %s: choose another name", path,
                          is_snapshot ? "snapshot" : "saved conversation");
}

/* Takes what a command has removed from the conversation out of the KV cache. */
static int settle(struct repl *repl, struct err *err)
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
        .sampling = &gen->sampling,
    };
    const double start = clock_ms();
    struct kvwriter *writer;
    if (settle(repl, err) < 0)
        return -1;
    if (!session_length(gen->session, seq))
        return err_set(err, "the KV cache holds nothing to save");
    if (snapshot_create(&writer, path, gen->session, err) < 0)
        return -1;
    if (snapshot_add(writer, gen->session, seq, &saved, err) < 0) {
        kvwriter_abort(writer);
        return -1;
    }
    const int rc = kvwriter_commit(writer, err);
    gen->save_ms += clock_ms() - start;
    return rc;
}

int repl_save(struct repl *repl, const char *path, struct err *err)
{
    const bool is_snapshot = text_ends(path, ".kv");
    struct buf text = {0};
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
    json_t *object = json_object();
    int rc = json_put(object, "messages", json_incref(repl->dialogue.messages), err);
    if (rc == 0)
        rc = json_append(object, 0, &text, err);
    if (rc == 0)
        rc = buf_add(&text, "\n", 1, err);
    if (rc == 0)
        rc = outfile_save_private(path, text.data, text.len, err);
    json_decref(object);
    buf_release(&text);
    return rc;
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

int repl_load(struct repl *repl, const char *path, struct err *err)
{
    if (file_detect(path) == KIND_SNAPSHOT)
        return load_snapshot(repl, path, err);
    json_t *root = read_messages(path, err);
    if (!root || repl_reset(repl, err) < 0) {
        json_decref(root);
        return -1;
    }
    dialogue_set_messages(&repl->dialogue, json_object_get(root, "messages"));
    json_decref(root);
    return 0;
}

int repl_attach(struct repl *repl, const char *path, struct err *err)
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
