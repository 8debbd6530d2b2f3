/* Rewrites a safetensors file in the layouts of other checkpoints: one matrix for queries, keys and
 * values; transposed matrices; interleaved rotary pairs. bmc-convert must find the same model in
 * it.
 *
 *   refold FROM.safetensors TO.safetensors HEAD_DIM ROPE_DIM KV_HEADS [transposed]
 *   [fused|by_head] [by_row] [interleaved] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/tensorfile.h"

static struct {
    size_t head_dim, rope_dim, kv_heads;
    bool transposed, fused, by_head, by_row, interleaved; /* by_row: gate and up, if fused */
} how;

struct tensor {
    char name[256];
    const char *type;
    size_t rows, columns; /* of elements; a vector has one column */
    bool vector;
    unsigned char *data;
    size_t bytes;
};

static struct tensor written[512];
static size_t n_written;

static void *need(void *pointer)
{
    if (pointer)
        return pointer;
    fprintf(stderr, "refold: out of memory\n");
    exit(1);
}

static void *room(size_t bytes) { return need(calloc(bytes + 1, 1)); }

static size_t row_bytes(const struct tensor *t) { return t->bytes / t->rows; }

static struct tensor read_tensor(const struct source_tensor *from)
{
    struct tensor t = {.type = from->type_name,
                       .rows = from->dim[0],
                       .columns = from->n_dims > 1 ? from->dim[1] : 1,
                       .vector = from->n_dims == 1,
                       .data = room(from->bytes),
                       .bytes = from->bytes};
    snprintf(t.name, sizeof t.name, "%s", from->name);
    memcpy(t.data, from->data, from->bytes);
    return t;
}

/* Moves elements i and i + rope_dim / 2 of every head to 2 i and 2 i + 1. */
static void interleave(struct tensor *t)
{
    const size_t row = row_bytes(t), half = how.rope_dim / 2;
    unsigned char *to = room(t->bytes);
    memcpy(to, t->data, t->bytes);
    for (size_t head = 0; head < t->rows / how.head_dim; head++)
        for (size_t i = 0; i < half; i++) {
            const size_t base = head * how.head_dim;
            memcpy(to + (base + 2 * i) * row, t->data + (base + i) * row, row);
            memcpy(to + (base + 2 * i + 1) * row, t->data + (base + half + i) * row, row);
        }
    free(t->data);
    t->data = to;
}

static void transpose(struct tensor *t)
{
    const size_t size = t->bytes / (t->rows * t->columns), rows = t->rows;
    unsigned char *to = room(t->bytes);
    for (size_t r = 0; r < t->rows; r++)
        for (size_t c = 0; c < t->columns; c++)
            memcpy(to + (c * t->rows + r) * size, t->data + (r * t->columns + c) * size, size);
    free(t->data);
    t->data = to;
    t->rows = t->columns;
    t->columns = rows;
}

/* Concatenates the rows of `t` and `more` in `turns` rounds, each with an equal share of every
 * tensor. */
static void join(struct tensor *t, struct tensor *more, size_t n_more, size_t turns)
{
    const size_t row = row_bytes(t), own = t->rows;
    size_t all = own, at = 0;
    for (size_t i = 0; i < n_more; i++)
        all += more[i].rows;
    unsigned char *to = room(all * row);
    for (size_t turn = 0; turn < turns; turn++)
        for (size_t i = 0; i <= n_more; i++) {
            const struct tensor *from = i ? &more[i - 1] : t;
            const size_t share = from->rows / turns * row;
            memcpy(to + at, from->data + turn * share, share);
            at += share;
        }
    for (size_t i = 0; i < n_more; i++)
        free(more[i].data);
    free(t->data);
    t->data = to;
    t->rows = all;
    t->bytes = all * row;
}

/* Replaces `from` by `to` in the name; false if it does not contain `from`. */
static bool rename_to(char name[256], const char *from, const char *to)
{
    char old[256], *at = strstr(name, from);
    if (!at)
        return false;
    snprintf(old, sizeof old, "%s", at + strlen(from));
    snprintf(at, 256 - (size_t)(at - name), "%s%s", to, old);
    return true;
}

/* Reads the tensor whose name is that of `t` with `from` replaced by `to`. */
static struct tensor beside(const struct tensor_file *st, const struct tensor *t, const char *from,
                            const char *to)
{
    char name[256];
    snprintf(name, sizeof name, "%s", t->name);
    if (!rename_to(name, from, to))
        exit(1);
    struct tensor other = read_tensor(need((void *)(uintptr_t)tensor_file_find(st, name)));
    if (how.interleaved && strcmp(to, "k_proj") == 0)
        interleave(&other);
    return other;
}

static bool joined_into_another(const char *name)
{
    return (how.fused || how.by_head) &&
           (strstr(name, "k_proj") || strstr(name, "v_proj") || strstr(name, "up_proj"));
}

static void refold(const struct tensor_file *st, const struct source_tensor *from)
{
    if (joined_into_another(from->name))
        return;
    struct tensor t = read_tensor(from);
    if (how.interleaved && (strstr(t.name, "q_proj") || strstr(t.name, "k_proj")))
        interleave(&t);
    if ((how.fused || how.by_head) && strstr(t.name, "q_proj")) {
        struct tensor more[] = {beside(st, &t, "q_proj", "k_proj"), beside(st, &t, "q_proj", "v_proj")};
        join(&t, more, 2, how.by_head ? how.kv_heads : 1);
        rename_to(t.name, "q_proj", "qkv_proj");
    } else if ((how.fused || how.by_head) && strstr(t.name, "gate_proj")) {
        struct tensor up = beside(st, &t, "gate_proj", "up_proj");
        join(&t, &up, 1, how.by_row ? t.rows : 1);
        rename_to(t.name, "gate_proj", "gate_up_proj");
    }
    if (how.transposed && strstr(t.name, "_proj.weight"))
        transpose(&t);
    written[n_written++] = t;
}

static void write_file(const char *path)
{
    static char header[1 << 16];
    size_t len = 0, at = 0;
    for (size_t i = 0; i < n_written; i++) {
        const struct tensor *t = &written[i];
        char columns[32] = "";
        if (!t->vector)
            snprintf(columns, sizeof columns, ",%zu", t->columns);
        len +=
            (size_t)snprintf(header + len, sizeof header - len,
                             "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu%s],\"data_offsets\":[%zu,%zu]}",
                             i ? ',' : '{', t->name, t->type, t->rows, columns, at, at + t->bytes);
        at += t->bytes;
    }
    header[len++] = '}';
    const uint64_t size = len;
    FILE *file = need(fopen(path, "wb"));
    fwrite(&size, sizeof size, 1, file);
    fwrite(header, 1, len, file);
    for (size_t i = 0; i < n_written; i++) {
        fwrite(written[i].data, 1, written[i].bytes, file);
        free(written[i].data);
    }
    if (fclose(file) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    struct tensor_file st;
    struct err err;
    if (argc < 6 || tensor_file_open(&st, argv[1], safetensors_parse, &err) < 0 ||
        st.n_tensors > ARRAY_LEN(written)) {
        fprintf(stderr, "usage: refold FROM TO HEAD_DIM ROPE_DIM KV_HEADS [WORD..]\n");
        return 1;
    }
    how.head_dim = strtoul(argv[3], NULL, 10);
    how.rope_dim = strtoul(argv[4], NULL, 10);
    how.kv_heads = strtoul(argv[5], NULL, 10);
    for (int i = 6; i < argc; i++) {
        how.transposed |= strcmp(argv[i], "transposed") == 0;
        how.fused |= strcmp(argv[i], "fused") == 0;
        how.by_head |= strcmp(argv[i], "by_head") == 0;
        how.by_row |= strcmp(argv[i], "by_row") == 0;
        how.interleaved |= strcmp(argv[i], "interleaved") == 0;
    }
    for (size_t i = 0; i < st.n_tensors; i++)
        refold(&st, &st.tensor[i]);
    tensor_file_release(&st);
    write_file(argv[2]);
    return 0;
}
