/* Reading model.bmc; everything is validated before use. */
#include "format/bmc/bmcfile.h"

#include "base/mem.h"
#include "base/text_util.h"
#include "format/bmc/bmclayout.h"
#include "format/detect.h"
#include "quant/pack.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "model.bmc is used in place: little-endian only");
_Static_assert(sizeof(struct bmc_tensor) == 192, "a tensor entry has no padding");
_Static_assert(sizeof(struct bmc_name) == 16, "a name entry has no padding");
_Static_assert(sizeof(struct bmc_head) == 256, "the head has no padding");

/* Maximum size of the header, which limits the time to hash it at open. */
enum { MAX_HEADER_BYTES = 256 << 20 };

static bool section_ok(const struct bmc_section *section, size_t header_bytes, size_t element)
{
    return section->offset >= sizeof(struct bmc_head) && section->offset <= header_bytes &&
           section->bytes <= header_bytes - section->offset && section->offset % 64 == 0 &&
           section->bytes % element == 0;
}

/* Checks magic, version, sizes and the header's hash. */
static int check_head(const struct bmc_head *head, const void *data, size_t size, const char *name,
                      struct err *err)
{
    if (detect_refuse(data, size, KIND_MODEL, "a .bmc model", name, err) < 0)
        return -1;
    if (size < sizeof *head || memcmp(head->magic, BMC_MAGIC, sizeof head->magic) != 0)
        return err_set(err,
                       "%s: not a .bmc model (%s), nor a GGUF file: give one of these, or a Hugging "
                       "Face folder",
                       name, size ? "does not begin with \"BMCMODEL\"" : "is empty");
    if (head->version != BMC_VERSION)
        return err_set(
            err, "%s: .bmc version %u is unsupported, this program reads version %d; convert again",
            name, head->version, BMC_VERSION);
    if (head->file_bytes != size)
        return err_set(err, "%s: has %zu bytes, its header says %llu: %s; copy or convert it again",
                       name, size, (unsigned long long)head->file_bytes,
                       size < head->file_bytes ? "truncated or damaged"
                                               : "something was appended, or it is damaged");
    if (head->header_bytes < sizeof *head || head->header_bytes > size ||
        head->header_bytes > MAX_HEADER_BYTES || head->header_bytes % BMC_ALIGN)
        return err_set(err, "%s: invalid header size %llu: the file is damaged", name,
                       (unsigned long long)head->header_bytes);
    const struct hash found = bmc_header_hash(data, (size_t)head->header_bytes);
    if (!hash_equal(&found, &head->header_hash))
        return err_set(err, "%s: header hash mismatch: the file is damaged", name);
    return 0;
}

/* True if the padded shape is exactly what the layout implies, and the layout suits the type. */
static bool padded_ok(const struct bmc_tensor *tensor)
{
    const size_t out = tensor->n_dims == 3;
    for (size_t i = 0; i < BMC_MAX_DIMS; i++) {
        const size_t shape = (size_t)tensor->shape[i];
        const size_t want = i == out       ? layout_out(tensor->layout, shape)
                            : i == out + 1 ? layout_in(tensor->layout, shape)
                                           : shape;
        if (tensor->padded[i] != want || want < shape)
            return false;
    }
    return tensor->layout == LAYOUT_PACKED ? tensor->n_dims == 2 || tensor->n_dims == 3
                                           : !dtype_is_quantized(tensor->dtype);
}

/* Bytes of a tensor's data by shape, type and layout. The caller has checked that the number of
 * elements does not overflow. */
static size_t stored_bytes(const struct bmc_tensor *tensor)
{
    const struct bmc_matrices m = bmc_matrices_of(tensor);
    const size_t rows =
        m.out * (tensor->n_dims == 4 ? (size_t)(tensor->shape[2] * tensor->shape[3]) : 1);
    return m.n * layout_bytes(tensor->layout, tensor->dtype, rows, m.in);
}

static int check_tensor(const struct bmc_tensor *tensor, size_t header_bytes, size_t size, size_t index,
                        const char *name, struct err *err)
{
    enum { MOST_BYTES = 64 }; /* upper bound of bytes per padded element, scales included */
    size_t elements = 1, logical = 1, max;
    if (tensor->dtype >= DTYPE_COUNT || tensor->layout >= LAYOUT_COUNT || tensor->n_dims < 1 ||
        tensor->n_dims > BMC_MAX_DIMS)
        return err_set(err,
                       "%s: tensor %zu has an unknown type %u, layout %u or number of dimensions %u",
                       name, index, tensor->dtype, tensor->layout, tensor->n_dims);
    for (size_t i = 0; i < BMC_MAX_DIMS; i++)
        if (!size_mul(elements, tensor->padded[i], &elements) ||
            !size_mul(logical, tensor->shape[i], &logical) || tensor->shape[i] == 0 ||
            (i >= tensor->n_dims && tensor->shape[i] != 1))
            return err_set(err, "%s: tensor %zu has an invalid shape", name, index);
    if (!padded_ok(tensor))
        return err_set(err, "%s: tensor %zu has the wrong padding for layout \"%s\"", name, index,
                       layout_name(tensor->layout));
    if (!size_mul(elements, MOST_BYTES, &max) || stored_bytes(tensor) != tensor->bytes)
        return err_set(err, "%s: tensor %zu has %llu bytes, its shape needs %zu", name, index,
                       (unsigned long long)tensor->bytes, stored_bytes(tensor));
    if (tensor->offset % BMC_ALIGN || tensor->offset < header_bytes || tensor->offset > size ||
        tensor->bytes > size - tensor->offset)
        return err_set(err, "%s: tensor %zu at %llu + %llu is outside the file of %zu bytes", name,
                       index, (unsigned long long)tensor->offset, (unsigned long long)tensor->bytes,
                       size);
    if (tensor->scale_bytes || tensor->scale_offset)
        return err_set(err, "%s: tensor %zu has separate scales, which this version does not support",
                       name, index);
    return 0;
}

/* Checks that a draft head begins behind the header and ends with the file. */
static int check_draft(const struct bmc_head *head, size_t size, const char *name, struct err *err)
{
    const struct bmc_section *draft = &head->draft;
    if (draft->offset == 0 && draft->bytes == 0)
        return 0;
    if (draft->offset % BMC_ALIGN || draft->offset < head->header_bytes || draft->offset > size ||
        draft->bytes != size - draft->offset)
        return err_set(err,
                       "%s: its draft head of %llu bytes at %llu does not end with the file of %zu "
                       "bytes: the file is damaged",
                       name, (unsigned long long)draft->bytes, (unsigned long long)draft->offset, size);
    return 0;
}

/* Checks every tensor, and that they are in file order with no gaps but alignment, up to a draft head
 * or the end of the file. */
static int check_tensors(const struct bmc_file *file, size_t size, const char *name, struct err *err)
{
    size_t end = file->header_bytes;
    for (size_t i = 0; i < file->n_tensors; i++) {
        if (check_tensor(&file->tensor[i], file->header_bytes, size, i, name, err) < 0)
            return -1;
        if (file->tensor[i].offset != round_up(end, BMC_ALIGN))
            return err_set(err, "%s: tensors %zu and %zu overlap, are out of order or leave a gap",
                           name, i - 1, i);
        end = (size_t)(file->tensor[i].offset + file->tensor[i].bytes);
    }
    if (file->draft_offset && round_up(end, BMC_ALIGN) != file->draft_offset)
        return err_set(err, "%s: tensors end at byte %zu, but its draft head begins at %zu", name, end,
                       file->draft_offset);
    if (!file->draft_offset && end != size)
        return err_set(err, "%s: tensors end at byte %zu, but the file at %zu", name, end, size);
    return 0;
}

static int check_names(const struct bmc_file *file, size_t text_bytes, const char *name,
                       struct err *err)
{
    for (size_t i = 0; i < file->n_names; i++) {
        const struct bmc_name *at = &file->name[i];
        if (at->tensor >= file->n_tensors || at->text > text_bytes || at->len > text_bytes - at->text)
            return err_set(err, "%s: name %zu is outside its tables", name, i);
        if (i > 0 &&
            text_order(file->text + at[-1].text, at[-1].len, file->text + at->text, at->len) >= 0)
            return err_set(err, "%s: names %zu and %zu are duplicates or out of order", name, i - 1, i);
    }
    return 0;
}

/* Sets the fields of *file that point to sections of the header, which check_head() accepted. */
static int find_sections(struct bmc_file *file, const struct bmc_head *head, const char *name,
                         struct err *err)
{
    const unsigned char *bytes = file->data;
    static const size_t element[BMC_SECTIONS] = {
        [BMC_CONFIG] = 1,
        [BMC_TOKENIZER] = 1,
        [BMC_TENSORS] = sizeof(struct bmc_tensor),
        [BMC_NAMES] = sizeof(struct bmc_name),
        [BMC_TEXT] = 1,
        [BMC_CHAT] = 1,
    };
    const struct bmc_section *section = head->section;
    for (size_t i = 0; i < BMC_SECTIONS; i++)
        if (!section_ok(&section[i], (size_t)head->header_bytes, element[i]))
            return err_set(err, "%s: section %zu is outside the header: the file is damaged", name, i);
    file->config = (const char *)bytes + section[BMC_CONFIG].offset;
    file->config_bytes = (size_t)section[BMC_CONFIG].bytes;
    file->tokenizer = bytes + section[BMC_TOKENIZER].offset;
    file->tokenizer_bytes = (size_t)section[BMC_TOKENIZER].bytes;
    file->tensor = (const void *)(bytes + section[BMC_TENSORS].offset);
    file->n_tensors = (size_t)section[BMC_TENSORS].bytes / sizeof *file->tensor;
    file->name = (const void *)(bytes + section[BMC_NAMES].offset);
    file->n_names = (size_t)section[BMC_NAMES].bytes / sizeof *file->name;
    file->chat = (const char *)bytes + section[BMC_CHAT].offset;
    file->chat_bytes = (size_t)section[BMC_CHAT].bytes;
    file->text = (const char *)bytes + section[BMC_TEXT].offset;
    return 0;
}

/* Validates one image: a file without regard to the contents of its draft head, or a draft head. */
static int parse_image(struct bmc_file *file, const void *data, size_t size, const char *name,
                       struct err *err)
{
    const struct bmc_head *head = data;
    *file = (struct bmc_file){.data = data, .size = size};
    if (check_head(head, data, size, name, err) < 0 || check_draft(head, size, name, err) < 0 ||
        find_sections(file, head, name, err) < 0)
        return -1;
    file->header_bytes = (size_t)head->header_bytes;
    file->draft_offset = (size_t)head->draft.offset;
    file->file_id = head->header_hash;
    file->model_id = head->model_id;
    if (check_tensors(file, size, name, err) < 0)
        return -1;
    return check_names(file, (size_t)head->section[BMC_TEXT].bytes, name, err);
}

int bmc_file_open_draft(struct bmc_file *draft, const struct bmc_file *file, const char *name,
                        struct err *err)
{
    const struct bmc_head *head = (const void *)file->data;
    if (parse_image(draft, file->data + file->draft_offset, file->size - file->draft_offset, name,
                    err) < 0)
        return -1;
    if (draft->draft_offset)
        return err_set(err, "%s: has a draft head itself: the file is damaged", name);
    if (!hash_equal(&draft->file_id, &head->draft_hash))
        return err_set(err, "%s: does not match draft_hash in the file's header: the file is damaged",
                       name);
    return 0;
}

int bmc_file_parse(struct bmc_file *file, const void *data, size_t size, const char *name,
                   struct err *err)
{
    struct bmc_file draft;
    char draft_name[4096 + 32];
    if (parse_image(file, data, size, name, err) < 0)
        return -1;
    snprintf(draft_name, sizeof draft_name, "draft head of %s", name);
    return file->draft_offset ? bmc_file_open_draft(&draft, file, draft_name, err) : 0;
}

int bmc_file_open(struct bmc_file *file, const char *path, struct err *err)
{
    struct file_map map;
    *file = (struct bmc_file){0};
    if (file_is_folder(path))
        return err_set(err, "%s: is a folder; convert it first: bmc-convert %s -o model.bmc", path,
                       path);
    if (strchr(path, '/') && !text_ends(path, ".bmc") &&
        detect_hub_name(path, "file", "give its folder, or its GGUF file, with -m", err) < 0)
        return -1;
    if (file_map(&map, path, err) < 0)
        return -1;
    if (bmc_file_parse(file, map.data, map.size, path, err) < 0) {
        file_unmap(&map);
        return -1;
    }
    file->map = map;
    return 0;
}

void bmc_file_release(struct bmc_file *file)
{
    file_unmap(&file->map);
    *file = (struct bmc_file){0};
}

const struct bmc_tensor *bmc_file_find(const struct bmc_file *file, const char *name)
{
    size_t low = 0, high = file->n_names;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const struct bmc_name *at = &file->name[mid];
        const int order = text_order(file->text + at->text, at->len, name, strlen(name));
        if (order == 0)
            return &file->tensor[at->tensor];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* ---- the two hashes that identify a file: of its header (the file), and model_id (the model) ---- */

struct hash bmc_header_hash(const void *header, size_t header_bytes)
{
    return hash_of_head(header, header_bytes, offsetof(struct bmc_head, header_hash), NULL, 0);
}

static void add_number(struct hasher *hasher, uint64_t number)
{
    hasher_add(hasher, &number, sizeof number);
}

/* Bytes of the configuration before the lines of what was measured, which change no result. */
static size_t bytes_that_identify(const char *config, size_t bytes)
{
    static const char first[] = "\nquality_";
    const char *at = bytes ? memmem(config, bytes, first, strlen(first)) : NULL;
    return at ? (size_t)(at - config) + 1 : bytes;
}

struct hash bmc_model_id(const struct bmc_file *file)
{
    struct hasher hasher;
    hasher_init(&hasher);
    const size_t config_bytes = bytes_that_identify(file->config, file->config_bytes);
    add_number(&hasher, config_bytes);
    hasher_add(&hasher, file->config, config_bytes);
    add_number(&hasher, file->tokenizer_bytes);
    hasher_add(&hasher, file->tokenizer, file->tokenizer_bytes);
    for (size_t i = 0; i < file->n_names; i++) {
        const struct bmc_name *name = &file->name[i];
        const struct bmc_tensor *tensor = &file->tensor[name->tensor];
        add_number(&hasher, name->len);
        hasher_add(&hasher, file->text + name->text, name->len);
        add_number(&hasher, tensor->dtype);
        for (size_t k = 0; k < BMC_MAX_DIMS; k++)
            add_number(&hasher, tensor->shape[k]);
        hasher_add(&hasher, &tensor->canonical, sizeof tensor->canonical);
    }
    return hasher_result(&hasher);
}
