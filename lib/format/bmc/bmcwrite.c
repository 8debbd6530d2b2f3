/* Writing model.bmc: computes all offsets, streams tensors block by block, writes the header
 * last. While one block is packed and hashed, the previous one is written. */
#include "base/hash.h"
#include "base/mem.h"
#include "quant/pack.h"
#include "base/threads.h"
#include "format/bmc/bmclayout.h"

enum { BLOCK_BYTES = 2 << 20 };

/* Buffers for a block of a tensor's rows: row-major as produced, and in the packed layout. */
struct write_block {
    unsigned char *rows, *packed;
};

/* A finished block that is written while the next one is computed. */
struct pending {
    const void *data;
    size_t bytes, offset; /* size, and place in the image; bytes == 0: nothing to write */
};

struct bmc_writer {
    const struct bmc_plan *plan;
    size_t base;           /* place of the image in the file; its own offsets count from there */
    struct bmc_head *head; /* the header with all its sections */
    struct bmc_tensor *tensor;
    struct bmc_name *name;
    char *text;
    struct outfile *out;
    struct write_block block[2]; /* one is filled while the other is written */
    size_t filling;              /* index of the block being filled */
    struct pending pending;
    size_t done, total; /* bytes of tensors of all images: written so far, and in all */
};

/* Places a section of `bytes` bytes at *end, the end of the header so far, and moves *end past
 * it, 64-byte aligned; false on overflow. */
static bool place_section(struct bmc_section *section, size_t bytes, size_t *end)
{
    section->offset = *end;
    section->bytes = bytes;
    return size_add(*end, bytes, end) && size_add(*end, 64, end) && (*end = *end / 64 * 64, true);
}

static int alloc_header(struct bmc_writer *w, size_t n_stored, size_t text_bytes, struct err *err)
{
    const struct bmc_plan *plan = w->plan;
    struct bmc_head head = {.magic = "", .version = BMC_VERSION};
    memcpy(head.magic, BMC_MAGIC, sizeof head.magic);
    const size_t bytes[BMC_SECTIONS] = {
        [BMC_CONFIG] = plan->config_bytes,
        [BMC_TOKENIZER] = plan->tokenizer_bytes,
        [BMC_TENSORS] = n_stored * sizeof(struct bmc_tensor),
        [BMC_NAMES] = plan->n_tensors * sizeof(struct bmc_name),
        [BMC_TEXT] = text_bytes,
        [BMC_CHAT] = plan->chat_bytes,
    };
    size_t end = sizeof head;
    for (size_t i = 0; i < BMC_SECTIONS; i++)
        if (!place_section(&head.section[i], bytes[i], &end))
            return err_set(err, "%s: the header would be too large", w->out->path);
    head.header_bytes = round_up(end, BMC_ALIGN);
    unsigned char *header = mem_zalloc(1, (size_t)head.header_bytes);
    if (!header)
        return err_no_memory(err, "%s: its header of %llu bytes", w->out->path,
                             (unsigned long long)head.header_bytes);
    memcpy(header, &head, sizeof head);
    w->head = (void *)header;
    memcpy(header + head.section[BMC_CONFIG].offset, plan->config, plan->config_bytes);
    if (plan->tokenizer_bytes)
        memcpy(header + head.section[BMC_TOKENIZER].offset, plan->tokenizer, plan->tokenizer_bytes);
    if (plan->chat_bytes)
        memcpy(header + head.section[BMC_CHAT].offset, plan->chat, plan->chat_bytes);
    w->tensor = (void *)(header + head.section[BMC_TENSORS].offset);
    w->name = (void *)(header + head.section[BMC_NAMES].offset);
    w->text = (char *)header + head.section[BMC_TEXT].offset;
    return 0;
}

static int by_text(const void *a, const void *b, void *arg)
{
    const struct bmc_name *x = a, *y = b;
    const struct bmc_plan *plan = arg;
    return strcmp(plan->tensor[x->reserved].name, plan->tensor[y->reserved].name);
}

/* The stack of matrices that a tensor is. */
static struct bmc_matrices matrices_of(const struct bmc_plan_tensor *tensor)
{
    const size_t *shape = tensor->shape;
    return tensor->n_dims == 3 ? (struct bmc_matrices){shape[0], shape[1], shape[2]}
                               : (struct bmc_matrices){1, shape[0], tensor->n_dims == 2 ? shape[1] : 1};
}

/* Fills the table of tensors and the sorted names; tied tensors get a name only. */
static void fill_tables(struct bmc_writer *w)
{
    const struct bmc_plan *plan = w->plan;
    size_t offset = (size_t)w->head->header_bytes, stored = 0, text = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct bmc_plan_tensor *from = &plan->tensor[i];
        w->name[i].reserved = (uint32_t)i; /* index in the plan, until the names are sorted */
        if (from->tied_to >= 0) {
            w->name[i].tensor = w->name[from->tied_to].tensor;
            continue;
        }
        struct bmc_tensor *tensor = &w->tensor[stored];
        w->name[i].tensor = (uint32_t)stored++;
        tensor->dtype = from->dtype;
        tensor->layout = from->layout;
        tensor->n_dims = (uint32_t)from->n_dims;
        tensor->source = from->source;
        for (size_t k = 0; k < BMC_MAX_DIMS; k++)
            tensor->shape[k] = tensor->padded[k] = k < from->n_dims ? from->shape[k] : 1;
        const struct bmc_matrices m = matrices_of(from);
        tensor->padded[from->n_dims == 3] = layout_out(from->layout, m.out);
        tensor->padded[1 + (from->n_dims == 3)] = layout_in(from->layout, m.in);
        tensor->bytes = m.n * layout_bytes(from->layout, from->dtype, m.out, m.in);
        tensor->offset = offset;
        offset = round_up(offset + (size_t)tensor->bytes, BMC_ALIGN);
        w->total += (size_t)tensor->bytes;
        w->head->file_bytes = tensor->offset + tensor->bytes;
    }
    qsort_r(w->name, plan->n_tensors, sizeof *w->name, by_text, (void *)(uintptr_t)plan);
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const char *name = plan->tensor[w->name[i].reserved].name;
        w->name[i].reserved = 0;
        w->name[i].text = (uint32_t)text;
        w->name[i].len = (uint32_t)strlen(name);
        memcpy(w->text + text, name, w->name[i].len);
        text += w->name[i].len;
    }
}

static int write_zeros(struct bmc_writer *w, size_t upto, struct err *err)
{
    static const char zeros[BMC_ALIGN];
    while (w->out->written < w->base + upto)
        if (outfile_write(w->out, zeros, size_min(sizeof zeros, w->base + upto - w->out->written),
                          err) < 0)
            return -1;
    return 0;
}

static size_t row_bytes(const struct bmc_plan_tensor *tensor)
{
    return dtype_row_bytes(tensor->dtype, matrices_of(tensor).in);
}

/* Rows to process at a time: about BLOCK_BYTES, in the packed layout a multiple of PACK_OUT. */
static size_t rows_at_once(const struct bmc_plan_tensor *tensor)
{
    const size_t rows = size_max(1, BLOCK_BYTES / row_bytes(tensor));
    return tensor->layout == LAYOUT_PACKED ? size_max(PACK_OUT, rows / PACK_OUT * PACK_OUT) : rows;
}

/* Writes the pending block, if any, and the zero padding before it. */
static int write_pending(struct bmc_writer *w, struct err *err)
{
    const struct pending pending = w->pending;
    w->pending.bytes = 0;
    if (pending.bytes == 0)
        return 0;
    if (write_zeros(w, pending.offset, err) < 0 ||
        outfile_write(w->out, pending.data, pending.bytes, err) < 0)
        return -1;
    w->done += pending.bytes;
    return 0;
}

static void report_progress(const struct bmc_writer *w)
{
    if (w->plan->progress && w->done)
        w->plan->progress(w->plan->arg, w->done, w->total);
}

/* Arguments of the parallel tasks on a block of rows: see run_block_task(). */
struct write_work {
    struct bmc_writer *w;
    const struct bmc_tensor *tensor;
    size_t rows, bytes; /* of the block: rows, and their bytes before packing */
    struct pending made;
    struct hasher *canonical;
    struct long_hasher *stored;
    struct err *err;
    int rc; /* result of write_pending() */
};

static void pack_and_hash(struct write_work *work)
{
    const struct write_block *block = &work->w->block[work->w->filling];
    const size_t in = bmc_matrices_of(work->tensor).in, in_padded = layout_in(work->tensor->layout, in);
    const enum dtype type = work->tensor->dtype;
    if (work->tensor->layout == LAYOUT_PACKED)
        pack_rows(block->packed, in_padded, block->rows, in, work->rows, in, type);
    long_hasher_add(work->stored, work->made.data, work->made.bytes);
}

/* Runs a task: 0 packs the block and hashes it as stored, 1 computes the canonical hash, 2 writes
 * the previous block. Longest first: with two threads, writing follows the shorter hash. */
static void run_block_task(void *arg, size_t task)
{
    struct write_work *work = arg;
    struct bmc_writer *w = work->w;
    switch (task) {
    case 0: pack_and_hash(work); break;
    case 1: hasher_add(work->canonical, w->block[w->filling].rows, work->bytes); break;
    default: work->rc = write_pending(w, work->err); break;
    }
}

/* Produces and hashes a tensor block by block; if `write`, also writes all blocks but the last. */
static int stream_tensor(struct bmc_writer *w, size_t plan_index, struct bmc_tensor *tensor, bool write,
                         struct err *err)
{
    const struct bmc_plan_tensor *from = &w->plan->tensor[plan_index];
    const bool packed = from->layout == LAYOUT_PACKED;
    const struct bmc_matrices m = matrices_of(from);
    const size_t rows = m.n * m.out, block_rows = rows_at_once(from);
    size_t offset = (size_t)tensor->offset;
    struct hasher canonical;
    struct long_hasher stored;
    hasher_init(&canonical);
    long_hasher_init(&stored);
    for (size_t row = 0, n; row < rows; row += n) {
        n = size_min(block_rows, m.out - row % m.out);
        const struct write_block *block = &w->block[w->filling];
        struct write_work work = {.w = w,
                                  .tensor = tensor,
                                  .rows = n,
                                  .bytes = n * row_bytes(from),
                                  .made.data = packed ? block->packed : block->rows,
                                  .made.bytes = layout_bytes(from->layout, from->dtype, n, m.in),
                                  .made.offset = offset,
                                  .canonical = &canonical,
                                  .stored = &stored,
                                  .err = err};
        if (w->plan->produce(w->plan->arg, plan_index, row, n, block->rows, err) < 0)
            return -1;
        parallel_for(3, work.bytes, run_block_task, &work);
        if (work.rc < 0)
            return -1;
        if (!write)
            continue;
        report_progress(w);
        w->pending = work.made;
        w->filling = !w->filling;
        offset += work.made.bytes;
    }
    tensor->canonical = hasher_result(&canonical);
    tensor->stored = long_hasher_result(&stored);
    return 0;
}

static int stream_tensors(struct bmc_writer *w, bool write, struct err *err)
{
    size_t stored = 0;
    for (size_t i = 0; i < w->plan->n_tensors; i++)
        if (w->plan->tensor[i].tied_to < 0 && stream_tensor(w, i, &w->tensor[stored++], write, err) < 0)
            return -1;
    if (write_pending(w, err) < 0)
        return -1;
    report_progress(w);
    return 0;
}

static void seal_header(struct bmc_writer *w)
{
    const struct bmc_plan *plan = w->plan;
    const struct bmc_file file = {.config = plan->config,
                                  .config_bytes = plan->config_bytes,
                                  .tokenizer = plan->tokenizer,
                                  .tokenizer_bytes = plan->tokenizer_bytes,
                                  .tensor = w->tensor,
                                  .name = w->name,
                                  .n_names = plan->n_tensors,
                                  .text = w->text};
    w->head->model_id = bmc_model_id(&file);
    w->head->header_hash = bmc_header_hash(w->head, (size_t)w->head->header_bytes);
}

/* Allocates the two block buffers, sized for the largest block of any tensor. */
static int alloc_blocks(struct bmc_writer *w, struct err *err)
{
    size_t rows = 1, packed = 1;
    for (size_t i = 0; i < w->plan->n_tensors; i++) {
        const struct bmc_plan_tensor *tensor = &w->plan->tensor[i];
        if (tensor->tied_to >= 0)
            continue;
        const size_t n = rows_at_once(tensor);
        rows = size_max(rows, n * row_bytes(tensor));
        if (tensor->layout == LAYOUT_PACKED)
            packed =
                size_max(packed, layout_bytes(LAYOUT_PACKED, tensor->dtype, n, matrices_of(tensor).in));
    }
    for (size_t i = 0; i < ARRAY_LEN(w->block); i++) {
        w->block[i] = (struct write_block){mem_alloc(1, rows), mem_alloc(1, packed)};
        if (!w->block[i].rows || !w->block[i].packed)
            return err_no_memory(err, "a buffer of %zu bytes", packed);
    }
    return 0;
}

/* Computes the image's header, but for hashes; `base` is its place in the file. */
static int prepare_image(struct bmc_writer *w, size_t base, struct err *err)
{
    size_t n_stored = 0, text_bytes = 0;
    for (size_t i = 0; i < w->plan->n_tensors; i++) {
        n_stored += w->plan->tensor[i].tied_to < 0;
        text_bytes += strlen(w->plan->tensor[i].name);
    }
    w->base = base;
    if (alloc_header(w, n_stored, text_bytes, err) < 0 || alloc_blocks(w, err) < 0)
        return -1;
    fill_tables(w);
    return 0;
}

/* Prepares the model, and behind it its draft head, if there is one. */
static int prepare_images(struct bmc_writer *model, struct bmc_writer *draft, struct err *err)
{
    if (prepare_image(model, 0, err) < 0)
        return -1;
    if (!draft->plan)
        return 0;
    const size_t end = round_up((size_t)model->head->file_bytes, BMC_ALIGN);
    if (prepare_image(draft, end, err) < 0)
        return -1;
    model->head->draft = (struct bmc_section){end, draft->head->file_bytes};
    model->head->file_bytes = end + draft->head->file_bytes;
    model->total = draft->total = model->total + draft->total;
    return 0;
}

/* Completes the headers: the model's has the hash of the draft head's. */
static void seal_all(struct bmc_writer *model, struct bmc_writer *draft)
{
    if (draft->plan) {
        seal_header(draft);
        model->head->draft_hash = draft->head->header_hash;
    }
    seal_header(model);
}

static int write_image(struct bmc_writer *w, struct err *err)
{
    return write_zeros(w, 0, err) < 0 ||
                   outfile_write(w->out, w->head, (size_t)w->head->header_bytes, err) < 0
               ? -1
               : stream_tensors(w, true, err);
}

static int rewrite_header(struct bmc_writer *w, struct err *err)
{
    return outfile_write_at(w->out, w->base, w->head, (size_t)w->head->header_bytes, err);
}

static int write_images(struct bmc_writer *model, struct bmc_writer *draft, struct err *err)
{
    const bool both = draft->plan != NULL;
    if (prepare_images(model, draft, err) < 0)
        return -1;
    /* If the output cannot seek, a first pass computes the hashes so that the headers can go
     * first. */
    if (!model->out->seekable) {
        if (stream_tensors(model, false, err) < 0 || (both && stream_tensors(draft, false, err) < 0))
            return -1;
        seal_all(model, draft);
    }
    if (write_image(model, err) < 0)
        return -1;
    draft->done = model->done;
    if (both && write_image(draft, err) < 0)
        return -1;
    if (!model->out->seekable)
        return 0;
    seal_all(model, draft);
    return rewrite_header(model, err) < 0 || (both && rewrite_header(draft, err) < 0) ? -1 : 0;
}

static void release_writer(struct bmc_writer *w)
{
    free(w->head);
    for (size_t i = 0; i < ARRAY_LEN(w->block); i++) {
        free(w->block[i].rows);
        free(w->block[i].packed);
    }
}

int bmc_file_write(const struct bmc_plan *plan, const char *path, struct hash *model_id,
                   struct err *err)
{
    struct outfile out;
    struct bmc_writer model = {.plan = plan, .out = &out}, draft = {.plan = plan->draft, .out = &out};
    if ((plan->private ? outfile_open_private : outfile_open)(&out, path, err) < 0)
        return -1;
    out.whole_pages = out.seekable;
    int rc = write_images(&model, &draft, err);
    if (rc == 0) {
        *model_id = model.head->model_id;
        rc = outfile_commit(&out, err);
    }
    outfile_abort(&out);
    release_writer(&model);
    release_writer(&draft);
    return rc;
}

int bmc_file_planned_size(const struct bmc_plan *plan, const char *path, size_t *bytes, struct err *err)
{
    struct outfile none = {.fd = -1};
    struct bmc_writer model = {.plan = plan, .out = &none}, draft = {.plan = plan->draft, .out = &none};
    snprintf(none.path, sizeof none.path, "%s", path);
    const int rc = prepare_images(&model, &draft, err);
    *bytes = rc == 0 ? (size_t)model.head->file_bytes : 0;
    release_writer(&model);
    release_writer(&draft);
    return rc;
}
