/* Invalid PyTorch checkpoints: pickles with disallowed opcodes and globals or inconsistent data,
 * and zip archives in other forms, made by libzip. */
#include <string.h>

#include <zip.h>

#include "tests/unit/check.h"
#include "format/hf/pickle.h"
#include "format/tensorfile.h"
#include "model/convert/tensor_import.h"

struct test_bytes {
    const char *data;
    size_t size;
};

#define BYTES(text)                                                                                    \
    {                                                                                                  \
        text, sizeof(text) - 1                                                                         \
    }

/* Fragments of pickles. A storage has 12 floats. */
#define PROTO                       "\x80\x02"
#define NAME(text)                  "X\x01\0\0\0" text
#define REBUILD                     "ctorch._utils\n_rebuild_tensor_v2\n"
#define STORAGE                     "(X\x07\0\0\0storagectorch\nFloatStorage\n" NAME("0") "X\x03\0\0\0cpuK\x0ctQ"
#define HOOKS                       "ccollections\nOrderedDict\n)R"
#define TENSOR(first_sizes_strides) REBUILD "(" STORAGE first_sizes_strides "\x89" HOOKS "tR"
#define THREE_BY_FOUR               "K\0K\x03K\x04\x86K\x04K\x01\x86"
#define ONE(value)                  PROTO "}" NAME("a") value "s."

static const struct {
    struct test_bytes pickle;
    const char *complaint; /* NULL: valid */
} known[] = {
    {BYTES(ONE(TENSOR(THREE_BY_FOUR))), NULL},
    {BYTES(PROTO HOOKS "(" NAME("a") TENSOR(THREE_BY_FOUR) NAME("b") "NuN0."), "POP"},
    {BYTES(PROTO HOOKS "(" NAME("a") TENSOR(THREE_BY_FOUR) NAME("b") "Nu}" NAME("v") "K\1sb."), NULL},
    /* Entries other than tensors: floats, lists, dictionaries, byte strings, long integers. */
    {BYTES(PROTO "}(" NAME("a") TENSOR(THREE_BY_FOUR)
               NAME("b") "G?\xf0\0\0\0\0\0\0" NAME("c") "](K\1]K\2aNe" NAME("d") "}" NAME(
                   "a") "\x88s" NAME("e") "U\x02hi" NAME("f") "T\x02\0\0\0hi" NAME("g") "\x8a\x09\1"
                                                                                        "\1\1\1"
                                                                                        "\1\1\1\1\1"
                                                                                        "u."),
     NULL},
    {BYTES(ONE("ctorch._utils\n_rebuild_parameter\n(" TENSOR(THREE_BY_FOUR) "\x88" HOOKS "tR")), NULL},
    {BYTES(ONE(TENSOR("K\x05K\x02K\x03\x86K\x03K\x01\x86"))), NULL},
    {BYTES(ONE(TENSOR("K\0K\x03K\x04\x86K\x01K\x03\x86"))), NULL},     /* transposed */
    {BYTES(ONE(TENSOR("K\x0bM\xff\xffK\0\x86K\x63K\x01\x86"))), NULL}, /* no elements */
    {BYTES(ONE(TENSOR("K\x0bM\xff\xff\x85K\0\x85"))), NULL},           /* one element, broadcast */
    {BYTES(ONE(TENSOR("K\0))"))), NULL},                               /* a scalar */
    {BYTES(ONE(TENSOR("K\x01K\x03K\x04\x86K\x04K\x01\x86"))), "exceeds its storage"},
    {BYTES(ONE(TENSOR("K\0K\x03K\x04\x86K\x05K\x01\x86"))), "exceeds its storage"},
    {BYTES(ONE(TENSOR("K\x0c))"))), "exceeds its storage"},
    {BYTES(ONE(TENSOR("\x8a\x07\xff\xff\xff\xff\xff\xff\x7f))"))), "exceeds its storage"},
    {BYTES(ONE(TENSOR(
         "K\0\x8a\x07\xff\xff\xff\xff\xff\xff\x7f\x85\x8a\x07\xff\xff\xff\xff\xff\xff\x7f\x85"))),
     "exceeds its storage"},
    {BYTES(ONE(TENSOR("J\xff\xff\xff\xffK\x03\x85K\x01\x85"))), "dimensions"},
    {BYTES(ONE(TENSOR("K\0J\xff\xff\xff\xff\x85K\x01\x85"))), "an invalid size"},
    {BYTES(ONE(TENSOR("K\0K\x03\x85\x8a\x01\x80\x85"))), "an invalid stride"},
    {BYTES(ONE(TENSOR("K\0N\x85K\x01\x85"))), "an invalid size"},
    {BYTES(ONE(TENSOR("K\0K\x03\x85K\x01K\x01\x86"))), "dimensions"},
    {BYTES(ONE(TENSOR("K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t(K\1K\1K\1K\1K\1K\1K\1K\1K\1t"))), "dimensions"},
    {BYTES(ONE(TENSOR("NK\x03\x85K\x01\x85"))), "arguments are not storage, offset"},
    {BYTES(ONE(REBUILD ")R")), "arguments are not storage, offset"},
    {BYTES(ONE("ctorch._utils\n_rebuild_parameter\n)R")), "argument is not a tensor"},
    {BYTES(ONE("ccollections\nOrderedDict\nN\x85R")), "OrderedDict"},
    {BYTES(ONE("ctorch\nFloatStorage\n)R")), "a storage class is called"},
    {BYTES(ONE("(X\x07\0\0\0storageK\1" NAME("0") NAME("c") "K\1tQ")), "malformed storage reference"},
    {BYTES(ONE("(X\x07\0\0\0storage" REBUILD NAME("0") NAME("c") "K\1tQ")),
     "malformed storage reference"},
    {BYTES(ONE("(X\x07\0\0\0storagectorch\nFloatStorage\n" NAME("0") NAME("c") "\x8a\x01\xfftQ")),
     "malformed storage reference"},
    {BYTES(ONE("(X\x06\0\0\0modulectorch\nFloatStorage\n" NAME("0") NAME("c") "K\1tQ")),
     "malformed storage reference"},
    /* Code execution in Python. */
    {BYTES(PROTO "cposix\nsystem\nX\x02\0\0\0id\x85R."), "uses \"posix.system\""},
    {BYTES(PROTO "c__builtin__\neval\nX\x01\0\0\0"
                 "1\x85R."),
     "uses \"__builtin__.eval\""},
    {BYTES(PROTO "ctorch\nload\n."), "uses \"torch.load\""},
    {BYTES(PROTO "ctorch\n_utils._rebuild_tensor_v2\n."), "uses \"torch._utils._rebuild_tensor_v2\""},
    {BYTES(PROTO "(iposix\nsystem\n."), "opcode INST (0x69) at byte 3"},
    {BYTES(PROTO "(cos\nsystem\no."), "uses"},
    {BYTES(PROTO ")\x81."), "opcode NEWOBJ (0x81) at byte 3"},
    {BYTES(PROTO "\x93."), "opcode unknown (0x93)"},
    {BYTES(PROTO "]."), "the pickle is a list"},
    {BYTES("\x80\x04}."), "protocol 4 is not supported"},
    /* Inconsistent pickles. */
    {BYTES(PROTO "}."), "contains no tensors"},
    {BYTES(PROTO "}q\0" NAME("a") "h\0s."), "contains no tensors"},
    {BYTES(PROTO "K\1."), "the pickle is an integer"},
    {BYTES(PROTO "K\1K\2."), "exactly one value"},
    {BYTES(PROTO "."), "exactly one value"},
    {BYTES(PROTO "R"), "expected a tuple, found a mark"},
    {BYTES(PROTO "(R"), "expected a tuple, found a mark"},
    {BYTES(PROTO "t"), "no mark on the stack"},
    {BYTES(PROTO "}t"), "no mark on the stack"},
    {BYTES(PROTO "K\1(" NAME("a") "K\1u"), "not pairs"},
    {BYTES(PROTO "}(" NAME("a") "u"), "not pairs"},
    {BYTES(PROTO "K\1" NAME("a") "K\1s"), "expected a dict, found an integer"},
    {BYTES(PROTO "K\1}b"), "attributes on a value that is not a dictionary"},
    {BYTES(PROTO "}K\1b"), "expected a dict"},
    {BYTES(PROTO "q\0"), "memo index out of order"},
    {BYTES(PROTO "(q\0"), "memo index out of order"},
    {BYTES(PROTO "}q\1"), "memo index out of order"},
    {BYTES(PROTO "}r\xff\xff\xff\xff"), "memo index out of order"},
    {BYTES(PROTO "h\0"), "memo entry does not exist"},
    {BYTES(PROTO "}q\0j\1\0\0\0"), "memo entry does not exist"},
    {BYTES(PROTO "N]a"), "append to a value that is not a list"},
    {BYTES(PROTO "]a"), "append to a value that is not a list"},
    {BYTES(PROTO "]e"), "no mark on the stack"},
    {BYTES(PROTO "N(Ne"), "append to a value that is not a list"},
    {BYTES(ONE(TENSOR("K\0]K\x01\x85"))), "arguments are not storage, offset"},
    {BYTES(ONE("(X\x07\0\0\0storage]" NAME("0") NAME("c") "K\1tQ")), "malformed storage reference"},
    {BYTES(PROTO "T\xff\xff\xff\xff"
                 "abc"),
     "ends within the pickle at byte"},
    {BYTES(PROTO "X\xff\xff\xff\xff"
                 "abc"),
     "ends within the pickle at byte"},
    {BYTES(PROTO "cposix"), "unterminated line"},
    {BYTES(PROTO "cposix\nsystem"), "unterminated line"},
};

static void test_known(void)
{
    struct pickle pickle;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        const struct test_bytes b = known[i].pickle;
        const int rc = pickle_parse(&pickle, b.data, b.size, "file", &err);
        check(known[i].complaint
                  ? rc < 0 && strstr(err.text, known[i].complaint) && strstr(err.text, "file")
                  : rc == 0 && pickle.n_entries == 1,
              "pickle %zu: %s", i, rc < 0 ? err.text : "accepted");
        if (rc < 0)
            continue;
        pickle_release(&pickle);
        for (size_t cut = 0; cut < b.size; cut++)
            check(pickle_parse(&pickle, b.data, cut, "file", &err) < 0, "pickle %zu cut at %zu", i,
                  cut);
    }
}

/* The same opcode repeated many times. */
static void test_floods(void)
{
    static const struct {
        struct test_bytes begin, again, end;
        const char *complaint;
    } floods[] = {
        {BYTES(PROTO), BYTES("("), BYTES("."), "too many values on its stack"},
        {BYTES(PROTO ")"), BYTES("\x85"), BYTES("."), "is a tuple, expected a dictionary"},
        {BYTES(PROTO "}q\0"), BYTES(NAME("a") "h\0s"), BYTES("."), "contains no tensors"},
        {BYTES(PROTO "}"), BYTES(NAME("a") "}s"), BYTES("."), "contains no tensors"},
        {BYTES(PROTO "}q\0N"), BYTES("\x85"), BYTES("b."), "expected a dict"},
    };
    enum { TIMES = 200000 };
    struct pickle pickle;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(floods); i++) {
        struct buf text = {0};
        int rc = buf_add(&text, floods[i].begin.data, floods[i].begin.size, &err);
        for (size_t n = 0; rc == 0 && n < TIMES; n++)
            rc = buf_add(&text, floods[i].again.data, floods[i].again.size, &err);
        if (rc == 0)
            rc = buf_add(&text, floods[i].end.data, floods[i].end.size, &err);
        check(rc == 0 && pickle_parse(&pickle, text.data, text.len, "file", &err) < 0 &&
                  strstr(err.text, floods[i].complaint),
              "flood %zu: %s", i, err.text);
        buf_release(&text);
    }
}

/* ---- archives ---- */

struct entry {
    const char *name;
    struct test_bytes bytes;
    zip_int32_t method;
    zip_uint16_t encryption;
};

/* An archive in memory, freed by the caller. */
static char *archive(const struct entry *entry, size_t *size)
{
    zip_source_t *source = zip_source_buffer_create(NULL, 0, 0, NULL);
    zip_t *zip = zip_open_from_source(source, ZIP_TRUNCATE, NULL);
    zip_source_keep(source);
    for (; entry->name; entry++) {
        zip_source_t *bytes = zip_source_buffer(zip, entry->bytes.data, entry->bytes.size, 0);
        const zip_int64_t at = zip_file_add(zip, entry->name, bytes, ZIP_FL_ENC_UTF_8);
        zip_set_file_compression(zip, (zip_uint64_t)at, entry->method, 0);
        if (entry->encryption)
            zip_file_set_encryption(zip, (zip_uint64_t)at, entry->encryption, "secret");
    }
    if (zip_close(zip) < 0 || zip_source_open(source) < 0 || zip_source_seek(source, 0, SEEK_END) < 0)
        abort();
    *size = (size_t)zip_source_tell(source);
    char *data = malloc(*size);
    zip_source_seek(source, 0, SEEK_SET);
    if (zip_source_read(source, data, *size) != (zip_int64_t)*size)
        abort();
    zip_source_close(source);
    zip_source_free(source);
    return data;
}

enum { STORE = ZIP_CM_STORE, DEFLATE = ZIP_CM_DEFLATE, NOT = ZIP_EM_NONE, AES = ZIP_EM_AES_256 };

#define PICKLE BYTES(ONE(TENSOR(THREE_BY_FOUR)))
#define FLOATS BYTES("0123456789abcdef0123456789abcdef0123456789abcdef") /* 48 bytes */

static const struct {
    struct entry entry[5];
    const char *complaint;
} archives[] = {
    {{{"x/data.pkl", PICKLE, STORE, NOT}, {"x/data/0", FLOATS, STORE, NOT}}, NULL},
    {{{"x/data.pkl", PICKLE, DEFLATE, NOT}, {"x/data/0", FLOATS, STORE, NOT}}, NULL},
    {{{"x/version", BYTES("3"), STORE, NOT},
      {"x/byteorder", BYTES("little"), STORE, NOT},
      {"x/data/0", FLOATS, STORE, NOT},
      {"x/data.pkl", PICKLE, STORE, NOT}},
     NULL},
    {{{"x/data.pkl", PICKLE, STORE, NOT}, {"x/data/0", FLOATS, DEFLATE, NOT}},
     "\"x/data/0\" is compressed in the zip archive"},
    {{{"x/data.pkl", PICKLE, STORE, NOT}, {"x/data/0", FLOATS, STORE, AES}},
     "the zip archive is encrypted (\"x/data/0\")"},
    {{{"x/data.pkl", PICKLE, STORE, AES}, {"x/data/0", FLOATS, STORE, NOT}},
     "the zip archive is encrypted (\"x/data.pkl\")"},
    {{{"x/data.pkl", PICKLE, STORE, NOT}, {"x/data/0", BYTES("0123"), STORE, NOT}},
     "\"x/data/0\" has 4 bytes, the pickle expects 12 elements of 4"},
    {{{"x/data.pkl", PICKLE, STORE, NOT}, {"x/data/0", BYTES(""), STORE, NOT}}, "has 0 bytes"},
    {{{"x/data.pkl", PICKLE, STORE, NOT}, {"x/data/1", FLOATS, STORE, NOT}}, "\"x/data/0\" is missing"},
    {{{"x/data.pkl", PICKLE, STORE, NOT}, {"y/data/0", FLOATS, STORE, NOT}}, "\"x/data/0\" is missing"},
    {{{"x", BYTES("1"), STORE, NOT}, {"y", FLOATS, STORE, NOT}}, "\"x/data.pkl\" is missing"},
    {{{"x/data.pkl", PICKLE, STORE, NOT},
      {"x/data/0", FLOATS, STORE, NOT},
      {"x/byteorder", BYTES("big"), STORE, NOT}},
     "byte order \"big\""},
    {{{"x/data.pkl", BYTES(PROTO "}(" NAME("a") TENSOR(THREE_BY_FOUR) NAME("a") TENSOR("K\0))") "u."),
       STORE, NOT},
      {"x/data/0", FLOATS, STORE, NOT}},
     "duplicate tensor name \"a\""},
    {{{"x/data.pkl", BYTES(ONE(TENSOR(THREE_BY_FOUR)) "and more"), STORE, NOT},
      {"x/data/0", FLOATS, STORE, NOT}},
     NULL},
    {{{"x/data.pkl", BYTES(PROTO "}X\x03\0\0\0a\0b" TENSOR(THREE_BY_FOUR) "s."), STORE, NOT},
      {"x/data/0", FLOATS, STORE, NOT}},
     "contains a zero byte"},
};

static void check_tensor(const struct tensor_file *file, const char *data, size_t size, size_t i)
{
    const struct source_tensor *tensor = tensor_file_find(file, "a");
    const char *bytes = (const char *)tensor->data;
    check(file->n_tensors == 1 && tensor->n_dims == 2 && tensor->dim[0] == 3 && tensor->dim[1] == 4 &&
              tensor->bytes == 48 && !tensor->strided && tensor->type == DTYPE_F32,
          "archive %zu: the tensor is another one", i);
    check(bytes >= data && bytes + 48 <= data + size && memcmp(bytes, "0123456789abcdef0123", 20) == 0,
          "archive %zu: its bytes are not those of the archive", i);
}

static void test_archives(void)
{
    for (size_t i = 0; i < ARRAY_LEN(archives); i++) {
        struct tensor_file file;
        struct err err;
        size_t size;
        char *data = archive(archives[i].entry, &size);
        const int rc = torchzip_parse(&file, data, size, "file", &err);
        check(archives[i].complaint
                  ? rc < 0 && strstr(err.text, archives[i].complaint) && strstr(err.text, "file")
                  : rc == 0,
              "archive %zu: %s", i, rc < 0 ? err.text : "accepted");
        if (rc == 0) {
            check_tensor(&file, data, size, i);
            tensor_file_release(&file);
            for (size_t cut = 0; cut < size; cut++)
                check(torchzip_parse(&file, data, cut, "file", &err) < 0, "archive %zu cut at %zu", i,
                      cut);
        }
        free(data);
    }
}

/* Every byte modified in turn: refused, or the tensor is inside the archive. */
static void test_changed(void)
{
    size_t size, refused = 0;
    char *data = archive(archives[0].entry, &size);
    for (size_t at = 0; at < 8 * size; at++) {
        struct tensor_file file;
        struct err err;
        data[at / 8] ^= (char)(1 << at % 8);
        if (torchzip_parse(&file, data, size, "file", &err) < 0) {
            refused++;
        } else {
            const char *bytes = (const char *)file.tensor[0].data;
            check(bytes >= data && bytes + 48 <= data + size, "bit %zu changed: beyond the archive",
                  at);
            tensor_file_release(&file);
        }
        data[at / 8] ^= (char)(1 << at % 8);
    }
    check(refused > size, "%zu of %zu changes refused", refused, 8 * size);
    free(data);
}

/* Broadcast rows of one stored element at the end of the storage: nothing beyond it is read. */
static void test_expanded(void)
{
    static const struct entry entry[] = {
        {"x/data.pkl", BYTES(ONE(TENSOR("K\x09K\x03K\x04\x86K\x01K\0\x86"))), STORE, NOT},
        {"x/data/0", FLOATS, STORE, NOT},
        {0}};
    struct tensor_file file;
    struct err err;
    size_t size;
    float x[3][4], want;
    char *data = archive(entry, &size);
    const int rc = torchzip_parse(&file, data, size, "file", &err);
    check(rc == 0 && file.tensor[0].strided, "expanded: %s", rc < 0 ? err.text : "not strided");
    if (rc == 0) {
        const struct source_tensor *a = &file.tensor[0];
        const struct tensor_import import = {.from = a,
                                             .type = &block_types[a->type],
                                             .columns = 4,
                                             .row_step = a->stride[0],
                                             .column_step = a->stride[1],
                                             .group = 3,
                                             .group_from = 3};
        check(tensor_import_rows(&import, 0, 3, DTYPE_F32, x) == IMPORT_FINITE, "expanded: not finite");
        for (size_t i = 0; i < 12; i++) {
            memcpy(&want, a->data + i / 4 * sizeof want, sizeof want);
            check(memcmp(&x[i / 4][i % 4], &want, sizeof want) == 0, "expanded: element %zu", i);
        }
        tensor_file_release(&file);
    }
    free(data);
}

int main(void)
{
    test_known();
    test_floods();
    test_archives();
    test_changed();
    test_expanded();
    return check_result();
}
