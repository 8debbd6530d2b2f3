/* A single tokenizer file, tokenizer.json, tokenizer.model or tekken.json, as a source without weights. */
#include "format/source.h"

#include "base/file.h"
#include "base/text_util.h"
#include "format/hf/spmodel.h"
#include "format/hf/tiktoken.h"

struct tokfile_state {
    struct file_map map;
    struct buf made; /* generated tokenizer.json, if the file is another one */
};

/* First bytes of JSON, and of a SentencePiece model (tag of protobuf field 1, a piece). */
enum { JSON_BEGINS = '{', PIECE_BEGINS = 0x0a };

static int first_byte(const struct file_map *map)
{
    const unsigned char *bytes = map->data;
    size_t at = 0;
    while (at < map->size && (bytes[at] == ' ' || bytes[at] == '\r' || bytes[at] == '\n'))
        at++;
    if (map->size == 0)
        return -1;
    return at < map->size && bytes[at] == JSON_BEGINS ? JSON_BEGINS : bytes[0];
}

static int open_file(struct weight_source *source, enum source_scope scope, struct err *err)
{
    struct tokfile_state *s = source->state = calloc(1, sizeof *s);
    (void)scope; /* the file has nothing but a tokenizer */
    if (!s)
        return err_no_memory(err, "%s", source->path);
    snprintf(source->config_name, sizeof source->config_name, "%s", source->path);
    snprintf(source->tokenizer_name, sizeof source->tokenizer_name, "%s", source->path);
    if (file_map(&s->map, source->path, err) < 0)
        return -1;
    source->text[SOURCE_TOKENIZER] = (struct source_bytes){(const char *)s->map.data, s->map.size};
    const int first = first_byte(&s->map);
    if (!text_ends(source->path, "tekken.json") && first == JSON_BEGINS)
        return 0;
    if (!text_ends(source->path, "tekken.json") && first != PIECE_BEGINS)
        return err_set(err,
                       "%s: not a tokenizer; expected a folder with one, a GGUF file, a "
                       "tokenizer.json, a tokenizer.model or a tekken.json",
                       source->path);
    const int rc =
        text_ends(source->path, "tekken.json")
            ? tekken_json(&s->made, (const char *)s->map.data, s->map.size, source->path, err)
            : spmodel_json(&s->made, s->map.data, s->map.size, source->path, err);
    source->text[SOURCE_TOKENIZER] = (struct source_bytes){s->made.data, s->made.len};
    return rc;
}

static void close_file(struct weight_source *source)
{
    AUTO(free_auto) struct tokfile_state *s = source->state;
    if (!s)
        return;
    buf_release(&s->made);
    file_unmap(&s->map);
}

const struct weight_format tokenizer_file = {
    .kind = KIND_OTHER,
    .open = open_file,
    .close = close_file,
};
