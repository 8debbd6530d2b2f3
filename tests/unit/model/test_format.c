/* File formats. A second, independent reader of model.bmc, written from bmc-model(5), compares
 * every tensor with the original safetensors file; then invalid safetensors headers.
 *
 *    test_format MODEL.bmc MODEL.safetensors (a Llama with bf16 weights) */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "base/conf.h"
#include "base/number.h"
#include "base/file.h"
#include "base/file_head.h"
#include "base/vm.h"
#include "tests/unit/check.h"
#include "format/tensorfile.h"

static struct tensor_file source;

static uint64_t u64(const unsigned char *at)
{
    uint64_t x = 0;
    for (int i = 7; i >= 0; i--)
        x = x << 8 | at[i];
    return x;
}

static uint32_t u32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static bool blake2b_is(const unsigned char *want, const void *bytes, size_t len)
{
    unsigned char got[32];
    crypto_generichash(got, sizeof got, bytes, len, NULL, 0);
    return memcmp(got, want, sizeof got) == 0;
}

/* The hash of stored bytes: above one block, the hash of the blocks' hashes. */
static bool stored_hash_is(const unsigned char *want, const unsigned char *bytes, size_t len)
{
    enum { PIECE = 65536, MOST = 1024 };
    static unsigned char hashes[MOST][32];
    if (len <= PIECE)
        return blake2b_is(want, bytes, len);
    size_t n = 0;
    for (size_t at = 0; at < len && n < MOST; at += PIECE, n++)
        crypto_generichash(hashes[n], 32, bytes + at, len - at < PIECE ? len - at : PIECE, NULL, 0);
    return blake2b_is(want, hashes, 32 * n);
}

/* "layers.3.q.weight" -> "model.layers.3.self_attn.q_proj.weight" */
static void source_name(const char *name, char *out, size_t size)
{
    static const char *const inner[][2] = {
        {"attn_norm.weight", "input_layernorm.weight"},
        {"mlp_norm.weight", "post_attention_layernorm.weight"},
        {"q.weight", "self_attn.q_proj.weight"},
        {"k.weight", "self_attn.k_proj.weight"},
        {"v.weight", "self_attn.v_proj.weight"},
        {"out.weight", "self_attn.o_proj.weight"},
        {"gate.weight", "mlp.gate_proj.weight"},
        {"up.weight", "mlp.up_proj.weight"},
        {"down.weight", "mlp.down_proj.weight"},
    };
    const bool tied = !tensor_file_find(&source, "lm_head.weight");
    unsigned layer;
    int used = 0;
    snprintf(out, size, "%s",
             strcmp(name, "final_norm.weight") == 0      ? "model.norm.weight"
             : strcmp(name, "head.weight") == 0 && !tied ? "lm_head.weight"
                                                         : "model.embed_tokens.weight");
    if (sscanf(name, "layers.%u.%n", &layer, &used) == 1 && used)
        for (size_t i = 0; i < ARRAY_LEN(inner); i++)
            if (strcmp(name + used, inner[i][0]) == 0)
                snprintf(out, size, "model.layers.%u.%s", layer, inner[i][1]);
}

/* The source's elements in row order and in the stored type: bf16 matrices unchanged, vectors as
 * f32. */
static unsigned char *elements_of(const struct source_tensor *from, uint32_t dtype, size_t *bytes)
{
    const size_t n = from->bytes / 2, size = dtype == 1 ? 2 : 4;
    unsigned char *elements = calloc(n + 1, size);
    for (size_t i = 0; i < n; i++)
        memcpy(elements + i * size + (size - 2), from->data + 2 * i, 2);
    *bytes = n * size;
    return elements;
}

/* Checks that the stored bytes are these elements in the tensor's layout, zero-padded. */
static bool lie_as_told(const unsigned char *tensor, const unsigned char *data,
                        const unsigned char *elements)
{
    const size_t size = u32(tensor) == 1 ? 2 : 4, out = u64(tensor + 16), in = u64(tensor + 24);
    const size_t padded_out = u64(tensor + 48), padded_in = u64(tensor + 56);
    const bool packed = u32(tensor + 4) == 1;
    if (padded_out != (packed ? (out + 15) / 16 * 16 : out) ||
        padded_in != (packed ? (in + 31) / 32 * 32 : in) ||
        u64(tensor + 88) != padded_out * padded_in * size)
        return false;
    for (size_t o = 0; o < padded_out; o++)
        for (size_t k = 0; k < padded_in; k++) {
            const size_t at = !packed     ? o * in + k
                              : size == 2 ? (o / 16 * (padded_in / 2) + k / 2) * 32 + o % 16 * 2 + k % 2
                                          : (o / 16 * padded_in + k) * 16 + o % 16;
            const unsigned char zero[4] = {0};
            if (memcmp(data + at * size, o < out && k < in ? elements + (o * in + k) * size : zero,
                       size) != 0)
                return false;
        }
    return true;
}

static void second_reader(const unsigned char *file, size_t size)
{
    enum { HEAD = 256, TENSOR = 192, NAME = 16 };
    const bool tied = !tensor_file_find(&source, "lm_head.weight");
    check(memcmp(file, "BMCMODEL", 8) == 0 && u32(file + 8) == 5, "magic and version");
    const uint64_t header = u64(file + 16);
    check(u64(file + 24) == size && header % 4096 == 0, "sizes");
    unsigned char *copy = malloc(header);
    memcpy(copy, file, header);
    memset(copy + 32, 0, 32);
    check(blake2b_is(file + 32, copy, header), "the header's hash");
    free(copy);
    struct {
        const unsigned char *at;
        uint64_t bytes;
    } section[6];
    for (int i = 0; i < 6; i++) {
        section[i].at = file + u64(file + 96 + 16 * i);
        section[i].bytes = u64(file + 104 + 16 * i);
    }
    check(section[5].bytes >= 7 && memcmp(section[5].at, "token [", 7) == 0,
          "special tokens, no chat format");
    check(section[0].bytes > 7 && memcmp(section[0].at, "family ", 7) == 0, "configuration text");
    crypto_generichash_state id;
    unsigned char model_id[32];
    crypto_generichash_init(&id, NULL, 0, 32);
    for (int i = 0; i < 2; i++) {
        crypto_generichash_update(&id, (const unsigned char *)&section[i].bytes, 8);
        crypto_generichash_update(&id, section[i].at, section[i].bytes);
    }
    for (size_t i = 0; i < section[3].bytes / NAME; i++) {
        const unsigned char *entry = section[3].at + NAME * i;
        const uint64_t len = u32(entry + 8);
        char name[64] = "", from[128];
        memcpy(name, section[4].at + u32(entry + 4), len < sizeof name ? len : 0);
        const unsigned char *tensor = section[2].at + TENSOR * (size_t)u32(entry);
        const unsigned char *data = file + u64(tensor + 80);
        const uint64_t dtype = u32(tensor), bytes = u64(tensor + 88);
        source_name(name, from, sizeof from);
        const struct source_tensor *st = tensor_file_find(&source, from);
        if (!check(st && u64(tensor + 16) == st->dim[0] &&
                       u64(tensor + 24) == (st->n_dims < 2 ? 1 : st->dim[1]),
                   "%s is not %s", name, from))
            continue;
        size_t canonical_bytes;
        unsigned char *elements = elements_of(st, (uint32_t)dtype, &canonical_bytes), canonical[32];
        /* Look-up tables are stored in rows. */
        const bool table = strcmp(name, "embed.weight") == 0 && !tied;
        check(u32(tensor + 4) == (st->n_dims == 2 && !table), "%s: layout %u", name, u32(tensor + 4));
        check(lie_as_told(tensor, data, elements), "%s is not %s", name, from);
        check(stored_hash_is(tensor + 128, data, bytes), "%s: hash of the stored bytes", name);
        check(blake2b_is(tensor + 160, elements, canonical_bytes), "%s: canonical hash", name);
        /* model_id is computed from the source alone. */
        crypto_generichash(canonical, sizeof canonical, elements, canonical_bytes, NULL, 0);
        free(elements);
        crypto_generichash_update(&id, (const unsigned char *)&len, 8);
        crypto_generichash_update(&id, (const unsigned char *)name, len);
        crypto_generichash_update(&id, (const unsigned char *)&dtype, 8);
        crypto_generichash_update(&id, tensor + 16, 32);
        crypto_generichash_update(&id, canonical, 32);
    }
    crypto_generichash_final(&id, model_id, 32);
    check(memcmp(model_id, file + 64, 32) == 0, "model_id");
    /* All tensors of the source, and a tied head as a second name of the embedding. */
    check(section[2].bytes / TENSOR == source.n_tensors &&
              section[3].bytes / NAME == source.n_tensors + tied,
          "%zu tensors, %zu names", (size_t)section[2].bytes / TENSOR, (size_t)section[3].bytes / NAME);
}

/* ---- invalid safetensors ---- */

static void test_safetensors(void)
{
    static const struct {
        const char *json, *complaint; /* NULL: valid */
        size_t body;
    } known[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", NULL, 16},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", "ends at byte", 15},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,0]}}", "[begin, end]", 16},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,16]}}", "its shape needs", 16},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "invalid size", 16},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],\"data_offsets\":["
         "0,0]"
         "}}",
         "invalid size", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]}}", NULL,
         0},
        {"{\"a\":{\"dtype\":\"Q4\",\"shape\":[2],\"data_offsets\":[0,16]}}", "unknown", 16},
        {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,16]}}", "unknown", 16},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}", "a list of at most", 16},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", "[begin, end]", 16},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[6,14]}}",
         "overlap", 16},
        {"{\"a\":[]}", "unknown", 0},
        {"[]", "expected an object", 0},
        {"{", "not valid JSON", 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", NULL, 0},
    };
    struct tensor_file st;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        const size_t json = strlen(known[i].json), size = 8 + json + known[i].body;
        unsigned char *file = calloc(1, size);
        file[0] = (unsigned char)json;
        memcpy(file + 8, known[i].json, json);
        const int rc = safetensors_parse(&st, file, size, "file", &err);
        check(known[i].complaint
                  ? rc < 0 && strstr(err.text, known[i].complaint) && strstr(err.text, "file")
                  : rc == 0,
              "%s: %s", known[i].json, rc < 0 ? err.text : "accepted");
        if (rc == 0)
            tensor_file_release(&st);
        for (size_t cut = 0; cut < 8 + json; cut++)
            check(safetensors_parse(&st, file, cut, "file", &err) < 0, "%s: cut at %zu", known[i].json,
                  cut);
        free(file);
    }
    const unsigned char huge[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    check(safetensors_parse(&st, huge, sizeof huge, "file", &err) < 0, "a header of 2^64 bytes");
}

/* ---- text ---- */

static void test_conf(void)
{
    struct conf conf;
    struct err err;
    size_t size;
    double real;
    const char text[] = "# comment\n\n  a  1 2 \na 3\r\nb\t-4\nlast";
    check(conf_parse(&conf, text, sizeof text - 1, "t", &err) == 0 && conf.n_entries == 4, "parse");
    check(strcmp(conf.entry[0].value, "1 2") == 0 && conf.entry[0].line == 3, "first value");
    check(strcmp(conf_get(&conf, "a"), "3") == 0 && strcmp(conf_get(&conf, "last"), "") == 0,
          "last value of a key");
    check(conf_get_size(&conf, "b", 0, 9, &size, &err) < 0 && strstr(err.text, "from 0 to 9"),
          "a negative size");
    check(conf_get_size(&conf, "none", 0, 9, &size, &err) < 0 && strstr(err.text, "none"),
          "a missing key");
    check(conf_get_size(&conf, "a", 0, 9, &size, &err) < 0 &&
              strstr(err.text, "t: line 4: \"a\" is on line 3 already"),
          "a size that is said twice: %s", err.text);
    conf_release(&conf);
    check(conf_parse(&conf, "a\0b", 3, "t", &err) < 0, "a zero byte");
    static const char *const no_size[] = {"",   " 1",   "+1",  "-1",
                                          "1 ", "0x10", "1e3", "18446744073709551616"};
    for (size_t i = 0; i < ARRAY_LEN(no_size); i++)
        check(!parse_size(no_size[i], &size), "size \"%s\"", no_size[i]);
    static const char *const no_real[] = {"", " 1", "nan", "inf", "1x", "1e999"};
    for (size_t i = 0; i < ARRAY_LEN(no_real); i++)
        check(!parse_double(no_real[i], &real), "real \"%s\"", no_real[i]);
    check(parse_double("-1.5e3", &real) && real == -1500, "a real");
}

/* A writer that is killed or fails leaves the old file, and nothing else. */
static void test_outfile(void)
{
    char folder[] = "/tmp/test_format.XXXXXX", path[64], command[256];
    struct outfile out;
    struct err err;
    if (!check(mkdtemp(folder) != NULL, "mkdtemp"))
        return;
    snprintf(path, sizeof path, "%s/file", folder);
    for (int commit = 0; commit < 2; commit++) {
        check(outfile_open(&out, path, &err) == 0 && outfile_write(&out, "ab", 2, &err) == 0, "write");
        check(!file_exists(path), "the file is there before it is complete");
        if (commit)
            check(outfile_commit(&out, &err) == 0, "commit");
        outfile_abort(&out);
        check(file_exists(path) == (commit == 1), "after abort or commit");
    }
    check(outfile_open(&out, path, &err) == 0, "open again");
    file_remove_unfinished();
    outfile_abort(&out);
    snprintf(command, sizeof command, "test \"$(ls -A %s)\" = file && test \"$(cat %s)\" = ab", folder,
             path);
    check(system(command) == 0, "files are left behind");
    check(outfile_open(&out, folder, &err) < 0 && strstr(err.text, "folder"), "a folder as output");
    check(outfile_open(&out, "/no/such/folder/x", &err) < 0, "a folder that is not there");
    unlink(path);
    rmdir(folder);
}

/* Number of write() and pwrite() calls of this process; 0 if the system does not say. */
static unsigned long write_calls(void)
{
    char text[512];
    text[file_head("/proc/self/io", text, sizeof text - 1)] = 0;
    const char *at = strstr(text, "syscw: ");
    return at ? strtoul(at + strlen("syscw: "), NULL, 10) : 0;
}

/* Pieces of any size arrive in whole huge pages, before and after bytes at an offset of their own. */
static void test_large_outfile(void)
{
    enum { BYTES = 3 * HUGE_PAGE + 5, PIECE = 1000003, AT = HUGE_PAGE - 2 };
    char path[] = "/tmp/test_format.XXXXXX";
    const int fd = mkstemp(path);
    unsigned char *bytes = malloc(BYTES);
    struct outfile out;
    struct file_map map;
    struct err err;
    if (!check(fd >= 0 && bytes != NULL, "a large file"))
        return;
    close(fd);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i % 251);
    check(outfile_open(&out, path, &err) == 0, "%s", err.text);
    out.whole_pages = true;
    const unsigned long before = write_calls();
    for (size_t at = 0; at < BYTES; at += PIECE) {
        check(outfile_write(&out, bytes + at, size_min(PIECE, BYTES - at), &err) == 0, "%s", err.text);
        if (at == 2 * PIECE) /* splits the second huge page */
            check(outfile_write_at(&out, AT, "abcd", 4, &err) == 0, "%s", err.text);
    }
    check(out.written == BYTES && outfile_commit(&out, &err) == 0, "commit");
    check(write_calls() - before == (before ? 6 : 0), "%lu writes", write_calls() - before);
    memcpy(bytes + AT, "abcd", 4);
    if (check(file_map(&map, path, &err) == 0 && map.size == BYTES, "%s", path)) {
        check(memcmp(map.data, bytes, BYTES) == 0, "bytes of a large file");
        file_unmap(&map);
    }
    unlink(path);
    free(bytes);
}

int main(int argc, char **argv)
{
    struct file_map map;
    struct err err;
    if (argc != 3 || sodium_init() < 0)
        return 2;
    if (check(tensor_file_open(&source, argv[2], safetensors_parse, &err) == 0, "%s", argv[2]) &&
        check(file_map(&map, argv[1], &err) == 0, "%s", argv[1])) {
        second_reader(map.data, map.size);
        file_unmap(&map);
    }
    tensor_file_release(&source);
    test_safetensors();
    test_conf();
    test_outfile();
    test_large_outfile();
    return check_result();
}
