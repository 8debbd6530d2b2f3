/* Quantised weights of Hugging Face folders: what the tensors of GPTQ, AWQ, compressed-tensors, FP8 and BitNet are. To read
 * another layout, add a row to `schemes`. */
#include "format/hf/quantized.h"

#include <strings.h>

#include "base/text_util.h"

enum { NAME_SIZE = 512 };

/* What is joined: a matrix whose tensors begin with NAME. */
struct join {
    struct tensor_file *file;
    size_t n_files;
    const json_t *how; /* quantization_config; NULL: none */
    const char *method, *folder;
    struct source_tensor *tensor; /* that has the integers */
    char name[NAME_SIZE];
    struct split_weights *split;
};

/* ---- quantization_config ---- */

/* A member of quantization_config that only some values of are supported; `values` end with NULL. */
static const struct quantized_variant {
    const char *method, *member;
    const char *values[5];
} variants[] = {
    {"gptq", "checkpoint_format", {"gptq", "gptq_v2", NULL}},
    {"gptq", "quant_method", {"gptq", NULL}},
    {"awq", "version", {"gemm", NULL}},
    {"compressed-tensors",
     "format",
     {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized", NULL}},
    {"fp8", "fmt", {"e4m3", NULL}},
    {"fbgemm_fp8", "quant_method", {"fbgemm_fp8", NULL}},
    {"modelopt", "quant_algo", {"FP8", NULL}},
    {"mxfp4", "quant_method", {"mxfp4", NULL}},
    {"bitnet", "linear_class", {"bitlinear", "autobitlinear", NULL}},
    {"bitnet", "quantization_mode", {"offline", NULL}},
};

static int check_variant(const json_t *how, const struct quantized_variant *variant, const char *folder,
                         struct err *err)
{
    const char *value = json_string_value(json_object_get(how, variant->member));
    for (size_t i = 0; value && variant->values[i]; i++)
        if (strcasecmp(value, variant->values[i]) == 0)
            value = NULL;
    return !value
               ? 0
               : err_set(err,
                         "%s: quantized weights (%s, %s \"%.80s\" in config.json) are not supported; "
                         "convert the original model in F32, F16 or BF16",
                         folder, variant->method, variant->member, value);
}

int quantized_method(const char **method, const json_t *config, const char *folder, struct err *err)
{
    const json_t *how = json_at(config, "quantization_config");
    bool known = false;
    *method = "";
    if (!how || json_is_null(how))
        return 0;
    const char *name = json_string_value(json_object_get(how, "quant_method"));
    for (size_t i = 0; name && i < ARRAY_LEN(variants); i++) {
        if (strcmp(name, variants[i].method) != 0)
            continue;
        known = true;
        if (check_variant(how, &variants[i], folder, err) < 0)
            return -1;
    }
    if (!known)
        return err_set(err,
                       "%s: quantized weights (%.80s, quantization_config in config.json) are not "
                       "supported; convert the original model in F32, F16 or BF16",
                       folder, name ? name : "of an unnamed kind");
    *method = name;
    return 0;
}

static size_t size_of(const json_t *how, const char *member, size_t missing)
{
    const json_t *value = json_object_get(how, member);
    const json_int_t n = json_integer_value(value);
    return !json_is_integer(value) ? missing : n > 0 && n <= 1 << 24 ? (size_t)n : 0;
}

/* ---- tensors of a matrix ---- */

static struct source_tensor *find(const struct join *join, const char *ending)
{
    char name[NAME_SIZE + 32];
    snprintf(name, sizeof name, "%s%s", join->name, ending);
    for (size_t i = 0; i < join->n_files; i++) {
        const struct source_tensor *found = tensor_file_find(&join->file[i], name);
        if (found)
            return &join->file[i].tensor[found - join->file[i].tensor];
    }
    return NULL;
}

static bool has_type(const struct source_tensor *tensor, const char *type)
{
    return tensor->type_name && strcmp(tensor->type_name, type) == 0 && !tensor->strided;
}

/* Fails about a tensor of the matrix; `expected` says what it should be. */
static int refuse(const struct join *join, const struct source_tensor *tensor, const char *expected,
                  struct err *err)
{
    char shape[3 * 24 + 1] = "";
    for (size_t i = 0, n = 0; i < size_min(tensor->n_dims, 3); i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "[%zu]", tensor->dim[i]);
    return err_set(err, "%s: tensor \"%s\" is %s%s, which does not fit \"%s\" (%s): expected %s",
                   join->folder, tensor->name, tensor->type_name, shape, join->tensor->name,
                   *join->method ? join->method : "no quantization_config", expected);
}

/* Finds a tensor of the matrix that must be there, of a type and shape [rows][columns], and marks it. */
static int take(const struct join *join, struct source_tensor **found, const char *ending,
                const char *type, size_t rows, size_t columns, struct err *err)
{
    char expected[96];
    struct source_tensor *tensor = *found = find(join, ending);
    if (!tensor)
        return err_set(err, "%s: tensor \"%s%s\" is missing, which belongs to \"%s\"", join->folder,
                       join->name, ending, join->tensor->name);
    snprintf(expected, sizeof expected, "%s[%zu][%zu]", type ? type : "F32, F16 or BF16 ", rows,
             columns);
    if (tensor->n_dims != 2 || tensor->dim[0] != rows || tensor->dim[1] != columns ||
        !(type ? has_type(tensor, type) : tensor->type < SOURCE_OTHER && !tensor->strided))
        return refuse(join, tensor, expected, err);
    tensor->is_scales = true;
    return 0;
}

static void set_scale(struct split_weights *split, const struct source_tensor *scale, size_t row_step,
                      size_t column_step)
{
    split->scale = scale->data;
    split->scale_type = scale->type;
    split->scale_row_step = row_step;
    split->scale_column_step = column_step;
}

/* Reads the group of each column, if the matrix has such a list. In the order of the columns it says nothing. */
static int take_groups(const struct join *join, const char *ending, bool needed, struct err *err)
{
    struct split_weights *split = join->split;
    struct source_tensor *list = find(join, ending);
    const size_t n = split->columns, groups = div_up(n, split->column_block);
    bool in_order = true;
    if (!list && needed && groups > 1)
        return err_set(err,
                       "%s: tensor \"%s%s\" is missing, although desc_act says that columns are "
                       "quantized in another order than theirs",
                       join->folder, join->name, ending);
    if (!list)
        return 0;
    if (!has_type(list, "I32") || list->n_dims != 1 || list->dim[0] != n)
        return refuse(join, list, "I32, a group for each column", err);
    for (size_t i = 0; i < n; i++) {
        uint32_t group;
        memcpy(&group, list->data + 4 * i, sizeof group);
        if (group >= groups)
            return err_set(err, "%s: tensor \"%s\" says that column %zu is in group %d of %zu",
                           join->folder, list->name, i, (int)group, groups);
        in_order &= group == i / split->column_block;
    }
    list->is_scales = true;
    split->group_of = in_order ? NULL : list->data;
    return 0;
}

/* AutoGPTQ adds biases of zeros to layers without one; only others are used, or missed. */
static void skip_bias_of_zeros(const struct join *join)
{
    struct source_tensor *bias = find(join, ".bias");
    bool zeros = bias != NULL && !bias->strided;
    for (size_t i = 0; zeros && i < bias->bytes; i++)
        zeros = bias->data[i] == 0;
    if (zeros)
        bias->is_scales = true;
}

/* ---- GPTQ (Frantar et al. 2023) and AWQ (Lin et al. 2024) ---- */

/* The place in a word of 8 integers of AWQ. */
static const uint8_t awq_order[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static unsigned log2_of(unsigned x) { return (unsigned)__builtin_ctz(x); }

/* Integers of 32-bit words [rows][columns / n] that hold n columns each. */
static struct packed_integers along_columns(const struct source_tensor *tensor, unsigned bits,
                                            size_t words)
{
    return (struct packed_integers){.data = tensor->data,
                                    .unit_bytes = 4,
                                    .bits = bits,
                                    .column_shift = log2_of(32 / bits),
                                    .row_step = words,
                                    .column_step = 1};
}

/* Integers of 32-bit words [rows / n][columns] that hold n rows each. */
static struct packed_integers along_rows(const struct source_tensor *tensor, unsigned bits,
                                         size_t words)
{
    struct packed_integers p = along_columns(tensor, bits, words);
    p.row_shift = p.column_shift;
    p.column_shift = 0;
    return p;
}

/* Exchanges rows and columns: GPTQ and AWQ have matrices [in][out]. */
static struct packed_integers transposed(struct packed_integers p)
{
    return (struct packed_integers){.data = p.data,
                                    .unit_bytes = p.unit_bytes,
                                    .bits = p.bits,
                                    .row_shift = p.column_shift,
                                    .column_shift = p.row_shift,
                                    .row_step = p.column_step,
                                    .column_step = p.row_step,
                                    .order = p.order};
}

/* NAME.qweight, NAME.qzeros, NAME.scales and, of GPTQ, NAME.g_idx. Integers of a word are neighbouring inputs in
 * GPTQ, neighbouring outputs in AWQ. */
static int join_gptq(struct join *join, struct err *err)
{
    const bool awq = strcmp(join->method, "awq") == 0;
    struct split_weights *split = join->split;
    struct source_tensor *q = join->tensor, *zeros, *scales;
    const char *format = json_string_value(json_object_get(join->how, "checkpoint_format"));
    const size_t bits = size_of(join->how, "bits", 4), group = size_of(join->how, "group_size", 128);
    if ((bits != 4 && (awq || (bits != 2 && bits != 8))))
        return err_set(err, "%s: quantized weights (%s of %zu bits) are not supported, only of %s",
                       join->folder, join->method, bits, awq ? "4" : "2, 4 and 8");
    const size_t per_word = 32 / bits;
    if (q->n_dims != 2 || !has_type(q, "I32") || !q->dim[0] || !q->dim[1] ||
        (!awq && q->dim[1] % per_word))
        return refuse(join, q, "I32, a matrix of 32-bit words", err);
    split->columns = awq ? q->dim[0] : q->dim[0] * per_word;
    split->rows = awq ? q->dim[1] * per_word : q->dim[1];
    split->column_block = group ? size_min(group, split->columns) : split->columns;
    split->row_block = 1;
    if (json_is_integer(json_object_get(join->how, "group_size")) && !group &&
        json_integer_value(json_object_get(join->how, "group_size")) != -1)
        return err_set(err, "%s: config.json: group_size is not positive, nor -1", join->folder);
    const size_t groups = div_up(split->columns, split->column_block), words = split->rows / per_word;
    if (take(join, &scales, ".scales", NULL, groups, split->rows, err) < 0 ||
        take(join, &zeros, ".qzeros", "I32", groups, words, err) < 0 ||
        (!awq &&
         take_groups(join, ".g_idx", json_is_true(json_object_get(join->how, "desc_act")), err) < 0))
        return -1;
    split->q =
        transposed(awq ? along_columns(q, 4, words) : along_rows(q, (unsigned)bits, split->rows));
    split->zero = transposed(along_columns(zeros, (unsigned)bits, words));
    split->q.order = split->zero.order = awq ? awq_order : NULL;
    /* the first format of GPTQ has zeros that are 1 too small */
    split->zero_point = !awq && !(format && strcmp(format, "gptq_v2") == 0);
    set_scale(split, scales, 1, split->rows);
    skip_bias_of_zeros(join);
    return 0;
}

/* ---- compressed-tensors and FP8: matrices [out][in] ---- */

/* The sides of FP8 blocks, where quantization_config does not say them. */
enum { BLOCK_SIDE = 128 };

/* Side i of blocks: of the configuration of fp8, or of a group of compressed-tensors. */
static size_t block_side(const json_t *how, size_t i)
{
    const json_t *sides = json_object_get(how, "weight_block_size"), *group;
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(how, "config_groups"), name, group)
    {
        const json_t *weights = json_object_get(group, "weights");
        if (!json_is_array(sides))
            sides = json_object_get(weights, "block_structure");
    }
    const json_int_t side = json_integer_value(json_array_get(sides, i));
    return !json_is_array(sides) ? BLOCK_SIDE : side > 0 && side <= 1 << 24 ? (size_t)side : 0;
}

/* Finds the scales: one, one of each row, of each group of a row, or of each block. */
static int take_scale(const struct join *join, const char *ending, bool blocks, struct err *err)
{
    struct split_weights *split = join->split;
    struct source_tensor *scale = find(join, ending);
    if (!scale)
        return err_set(err, "%s: tensor \"%s%s\" is missing, which belongs to \"%s\"", join->folder,
                       join->name, ending, join->tensor->name);
    const size_t rows = scale->n_dims ? scale->dim[0] : 1, n = scale->n_dims > 1 ? scale->dim[1] : 1;
    const size_t side[2] = {block_side(join->how, 0), block_side(join->how, 1)};
    if (scale->n_dims > 2 || scale->type >= SOURCE_OTHER || dtype_is_quantized(scale->type) ||
        scale->strided)
        return refuse(join, scale, "a matrix of F32, F16 or BF16", err);
    split->row_block = 1;
    split->column_block = split->columns;
    if (rows == 1 && n == 1) {
        split->row_block = split->rows;
    } else if (rows == split->rows && n && split->columns % n == 0) {
        split->column_block = split->columns / n;
    } else if (blocks && side[0] && side[1] && rows == div_up(split->rows, side[0]) &&
               n == div_up(split->columns, side[1])) {
        split->row_block = side[0];
        split->column_block = side[1];
    } else {
        return refuse(join, scale, "a scale of all, of each row, group or block", err);
    }
    set_scale(split, scale, n, n > 1);
    scale->is_scales = true;
    return 0;
}

/* Finds the zero points of compressed-tensors, if there are any: one for each scale, with sign. */
static int take_zeros(const struct join *join, struct err *err)
{
    struct split_weights *split = join->split;
    struct source_tensor *zeros = find(join, ".weight_zero_point");
    const unsigned bits = split->q.bits;
    const size_t groups = div_up(split->columns, split->column_block), per_word = 32 / bits;
    split->zero_point = zeros ? 0 : 1u << (bits - 1);
    if (!zeros)
        return 0;
    zeros->is_scales = true;
    const bool packed = has_type(zeros, "I32"), one = split->row_block > 1;
    const size_t rows = one ? 1 : packed ? div_up(split->rows, per_word) : split->rows;
    if (zeros->n_dims > 2 || (packed && one) || (!packed && !has_type(zeros, "I8")) ||
        (zeros->n_dims ? zeros->dim[0] : 1) != rows ||
        (zeros->n_dims > 1 ? zeros->dim[1] : 1) != groups)
        return refuse(join, zeros, "I8 or packed I32, one for each scale", err);
    if (packed)
        split->zero = along_rows(zeros, bits, groups);
    else
        split->zero = (struct packed_integers){.data = zeros->data,
                                               .unit_bytes = 1,
                                               .bits = 8,
                                               .row_step = one ? 0 : groups,
                                               .column_step = 1,
                                               .flip = 128};
    if (!packed && bits < 8) /* of 8 bits, they count from -128 */
        split->zero_point = 0u - (128u - (1u << (bits - 1)));
    return 0;
}

/* NAME.weight_packed, whose shape NAME.weight_shape has, with scales and zero points of groups. */
static int join_packed(struct join *join, struct err *err)
{
    struct split_weights *split = join->split;
    struct source_tensor *q = join->tensor, *shape = find(join, ".weight_shape");
    int64_t sides[2];
    unsigned bits = 0;
    if (!shape || !has_type(shape, "I64") || shape->n_dims != 1 || shape->dim[0] != 2)
        return err_set(err, "%s: tensor \"%s.weight_shape\" is missing, or is no pair of I64",
                       join->folder, join->name);
    memcpy(sides, shape->data, sizeof sides);
    if (q->n_dims != 2 || sides[0] <= 0 || sides[1] <= 0 || sides[1] > INT32_MAX ||
        (uint64_t)sides[0] != q->dim[0])
        return refuse(join, q, "the row count of its weight_shape", err);
    shape->is_scales = true;
    split->rows = (size_t)sides[0];
    split->columns = (size_t)sides[1];
    for (unsigned b = 2; b <= 8; b *= 2)
        if (q->dim[1] == div_up(split->columns, 32 / b))
            bits = b;
    if (!bits)
        return refuse(join, q, "words with 2, 4 or 8 bits for each column of weight_shape", err);
    split->q = along_columns(q, bits, q->dim[1]);
    if (take_scale(join, ".weight_scale", false, err) < 0 || take_zeros(join, err) < 0)
        return -1;
    const struct source_tensor *groups = find(join, ".weight_g_idx");
    const bool unused = groups && has_type(groups, "I32") && groups->bytes >= 4 &&
                        memcmp(groups->data, "\xff\xff\xff\xff", 4) == 0;
    if (!unused)
        return take_groups(join, ".weight_g_idx", false, err);
    find(join, ".weight_g_idx")->is_scales = true;
    return 0;
}

/* NAME.weight of bytes, with NAME.weight_scale or, of FP8, NAME.weight_scale_inv. */
static int join_bytes(struct join *join, struct err *err)
{
    struct split_weights *split = join->split;
    struct source_tensor *q = join->tensor;
    const bool e4m3 = has_type(q, "F8_E4M3");
    if (q->n_dims != 2 || !q->dim[0] || !q->dim[1])
        return refuse(join, q, "a matrix", err);
    split->rows = q->dim[0];
    split->columns = q->dim[1];
    split->e4m3 = e4m3;
    split->q = (struct packed_integers){.data = q->data,
                                        .unit_bytes = 1,
                                        .bits = 8,
                                        .row_step = q->dim[1],
                                        .column_step = 1,
                                        .flip = e4m3 ? 0 : 128};
    const bool inverse = e4m3 && find(join, ".weight_scale_inv");
    if (take_scale(join, inverse ? ".weight_scale_inv" : ".weight_scale", e4m3, err) < 0)
        return -1;
    return e4m3 ? 0 : take_zeros(join, err);
}

/* ---- BitNet b1.58 (Ma et al. 2024) ---- */

/* NAME.weight of bytes with four rows of -1, 0 and 1 each, as many rows apart as there are bytes in a column, and
 * NAME.weight_scale, the one scale, by which products are multiplied or, of linear_class bitlinear, divided. */
static int join_bitnet(struct join *join, struct err *err)
{
    struct split_weights *split = join->split;
    struct source_tensor *q = join->tensor;
    const char *class = json_string_value(json_object_get(join->how, "linear_class"));
    if (json_is_true(json_object_get(join->how, "use_rms_norm")))
        return err_set(err, "%s: quantized weights (bitnet with use_rms_norm) are not supported",
                       join->folder);
    if (q->n_dims != 2 || !q->dim[0] || !q->dim[1] || q->dim[0] > SIZE_MAX / 4)
        return refuse(join, q, "a matrix", err);
    split->rows = 4 * q->dim[0];
    split->columns = q->dim[1];
    split->q = (struct packed_integers){.data = q->data,
                                        .unit_bytes = 1,
                                        .bits = 2,
                                        .plane = q->dim[0],
                                        .row_step = q->dim[1],
                                        .column_step = 1};
    split->zero_point = 1;
    split->inverse = !class || strcasecmp(class, "bitlinear") == 0;
    if (take_scale(join, ".weight_scale", false, err) < 0)
        return -1;
    if (split->row_block < split->rows || split->column_block < split->columns)
        return err_set(err, "%s: tensor \"%s\" has several scales; weights of BitNet have a single one",
                       join->folder, q->name);
    for (size_t i = 0; i < q->bytes; i++)
        if (q->data[i] & q->data[i] >> 1 & 0x55)
            return err_set(err, "%s: tensor \"%s\" has the integer 2; those of BitNet are -1, 0 and 1",
                           join->folder, q->name);
    return 0;
}

/* ---- the table ---- */

static const struct scheme {
    const char *ending;     /* of the tensor with the integers */
    const char *type;       /* its type */
    const char *methods[6]; /* that have it; NULL after the last */
    const char *what;       /* for lists of types */
    int (*join)(struct join *join, struct err *err);
} schemes[] = {
    {".qweight", "I32", {"gptq", NULL}, "GPTQ", join_gptq},
    {".qweight", "I32", {"awq", NULL}, "AWQ", join_gptq},
    {".weight_packed", "I32", {"compressed-tensors", NULL}, "packed integers", join_packed},
    {".weight", "I8", {"compressed-tensors", NULL}, "I8 with scales", join_bytes},
    {".weight",
     "F8_E4M3",
     {"fp8", "fbgemm_fp8", "compressed-tensors", "modelopt", NULL},
     "FP8",
     join_bytes},
    {".weight", "U8", {"bitnet", NULL}, "BitNet", join_bitnet},
};

static const struct scheme *scheme_of(const struct source_tensor *tensor, const char *method)
{
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        bool has = text_ends(tensor->name, schemes[i].ending) && has_type(tensor, schemes[i].type);
        for (size_t m = 0; has && schemes[i].methods[m]; m++)
            if (strcmp(schemes[i].methods[m], method) == 0)
                return &schemes[i];
    }
    return NULL;
}

static int join_one(struct join *join, struct split_weights **list, const struct scheme *scheme,
                    struct err *err)
{
    struct source_tensor *tensor = join->tensor;
    const size_t len = strlen(tensor->name) - strlen(scheme->ending);
    if (len + sizeof ".weight" > NAME_SIZE)
        return err_set(err, "%s: tensor \"%.100s...\" has a name over %d bytes", join->folder,
                       tensor->name, NAME_SIZE);
    memcpy(join->name, tensor->name, len);
    join->name[len] = 0;
    char *name = malloc(len + sizeof ".weight");
    struct split_weights *split = join->split = name ? calloc(1, sizeof *split) : NULL;
    if (!split) {
        free(name);
        return err_no_memory(err, "%s: tensor \"%s\"", join->folder, tensor->name);
    }
    memcpy(name, join->name, len);
    memcpy(name + len, ".weight", sizeof ".weight");
    split->name = name;
    split->next = *list;
    *list = split;
    if (scheme->join(join, err) < 0)
        return -1;
    tensor->split = split;
    tensor->type_name = scheme->what;
    return 0;
}

/* Gives joined tensors the type that holds them, and their names. One asymmetric matrix makes all others asymmetric,
 * too, as experts of a layer have one type. */
static void finish(struct tensor_file *file, size_t n_files, struct split_weights *list)
{
    bool zeros = false;
    for (struct split_weights *s = list; s; s = s->next) {
        s->type = split_type(split_choose(s));
        zeros |= s->type->stored == DTYPE_Q4_Z32;
    }
    for (struct split_weights *s = list; s; s = s->next)
        if (zeros && s->type->stored == DTYPE_Q4_0)
            s->type = split_type(DTYPE_Q4_Z32);
    for (size_t f = 0; f < n_files; f++) {
        for (size_t i = 0; i < file[f].n_tensors; i++) {
            struct source_tensor *tensor = &file[f].tensor[i];
            if (!tensor->split)
                continue;
            tensor->name = tensor->split->name;
            tensor->type = tensor->split->type->stored;
            tensor->n_dims = 2;
            tensor->dim[0] = tensor->split->rows;
            tensor->dim[1] = tensor->split->columns;
        }
        tensors_sort(file[f].tensor, file[f].n_tensors);
    }
}

int quantized_join(struct split_weights **list, struct tensor_file *file, size_t n_files,
                   const json_t *config, const char *folder, struct err *err)
{
    struct join join = {.file = file,
                        .n_files = n_files,
                        .how = json_at(config, "quantization_config"),
                        .folder = folder};
    if (quantized_method(&join.method, config, folder, err) < 0)
        return -1;
    for (size_t f = 0; f < n_files; f++)
        for (size_t i = 0; i < file[f].n_tensors; i++) {
            join.tensor = &file[f].tensor[i];
            const struct scheme *scheme = scheme_of(join.tensor, join.method);
            if (scheme && join_one(&join, list, scheme, err) < 0)
                return -1;
        }
    if (*join.method && strcmp(join.method, "mxfp4") != 0 && !*list)
        return err_set(err,
                       "%s: config.json says that the weights are quantized (%s), but no tensor is; "
                       "remove its quantization_config, or use the weights that it describes",
                       folder, join.method);
    finish(file, n_files, *list);
    for (size_t f = 0; f < n_files; f++)
        if (tensors_check_names(file[f].tensor, file[f].n_tensors, folder, err) < 0)
            return -1;
    return 0;
}

void quantized_release(struct split_weights *list)
{
    for (struct split_weights *next; list; list = next) {
        next = list->next;
        free((char *)(uintptr_t)list->name);
        free(list);
    }
}
