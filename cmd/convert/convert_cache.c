/* --cache: lists and removes models that were converted on first use. */
#include "convert/convert_cmd.h"
#include "model/convert/model_cache.h"
#include "open_model.h"

static int open_folder(char *folder, size_t size, struct err *err)
{
    const char *why;
    return cli_cache_folder(folder, size, &why)
               ? 0
               : err_set(err, "--cache: there is no folder of converted models: neither XDG_CACHE_HOME "
                              "nor HOME is set");
}

static int push_model(json_t *rows, const struct model_cache_entry *entry, struct err *err)
{
    char used[CLI_TIME];
    cli_time(entry->used.tv_sec, used);
    return json_push(rows,
                     json_pack("{s:o, s:s, s:I, s:s}", "name",
                               json_text(entry->name, strlen(entry->name)), "used", used, "bytes",
                               (json_int_t)entry->bytes, "state",
                               !entry->own     ? "foreign"
                               : entry->in_use ? "in use"
                                               : "unused"),
                     err);
}

int convert_list_cache(enum table_format format, struct err *err)
{
    char folder[4096];
    size_t limit, n, bytes = 0;
    AUTO(free_auto) struct model_cache_entry *entry = NULL;
    AUTO(json_auto) json_t *rows = json_array(), *about = json_object();
    if (open_folder(folder, sizeof folder, err) < 0 || cli_cache_size(&limit, err) < 0 ||
        model_cache_list(folder, &entry, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        bytes += entry[i].bytes;
        if (push_model(rows, &entry[i], err) < 0)
            return -1;
    }
    if (json_put(about, "folder", json_text(folder, strlen(folder)), err) < 0 ||
        json_put(about, "bytes", json_whole(bytes), err) < 0 ||
        json_put(about, "max_bytes", json_whole(limit), err) < 0)
        return -1;
    return convert_write_info(about, rows, format, err);
}

int convert_clear_cache(const char *program, bool quiet, struct err *err)
{
    char folder[4096], size[32], rest[64] = "";
    size_t removed, bytes, left;
    if (open_folder(folder, sizeof folder, err) < 0 ||
        model_cache_clear(folder, &removed, &bytes, &left, err) < 0)
        return -1;
    cli_format_bytes(bytes, size);
    if (left)
        snprintf(rest, sizeof rest, "; %zu in use: left", left);
    if (!quiet)
        cli_say(stderr, "%s: %s: %zu model%s removed, %s%s\n", program, folder, removed,
                removed == 1 ? "" : "s", size, rest);
    return 0;
}
