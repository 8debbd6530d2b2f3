/* SentencePiece models. `test_spmodel FILE` prints a model as JSON; without arguments, invalid
 * models are tested. */
#include <string.h>

#include "base/file.h"
#include "tests/unit/check.h"
#include "format/hf/spmodel.h"

#define BYTES(text) text, sizeof(text) - 1

/* Fields of a message: a piece with a type, and what may follow. */
#define UNKNOWN           "\x0a\x05\x0a\x01u\x18\x02"
#define PIECE(text, type) "\x0a\x05\x0a\x01" text "\x18" type
#define TRAINER(bytes)    "\x12" bytes
#define NORMALIZER(bytes) "\x1a" bytes

static const struct {
    const char *data;
    size_t size;
    const char *complaint; /* NULL: valid */
} known[] = {
    {BYTES(UNKNOWN), NULL},
    {BYTES(UNKNOWN PIECE("a", "\x01") PIECE("b", "\x03") PIECE("c", "\x04") PIECE("d", "\x05")), NULL},
    {BYTES(UNKNOWN "\x0a\x03\x0a\x01"
                   "a"),
     NULL}, /* the default type is normal */
    {BYTES(UNKNOWN "\x22\x03"
                   "abc"
                   "\xf8\x7f\x01"),
     NULL}, /* unknown fields */
    {BYTES(UNKNOWN TRAINER("\x02\x18\x02")), NULL},
    {BYTES(""), "not a SentencePiece model"},
    {BYTES("x\n"), "it has no pieces"},
    {BYTES("Once upon a time"), "not a SentencePiece model"},
    {BYTES("version https://git-lfs.github.com/spec/v1\n"), "is a Git LFS pointer"},
    {BYTES("\x0a\xff\xff\xff\xff\x0f"), "not a SentencePiece model"},
    {BYTES("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "not a SentencePiece model"},
    {BYTES("\x0a\x05\x0a\x7fu\x18\x02"), "not a SentencePiece model"},
    {BYTES(PIECE("a", "\x01")), "0 unknown pieces, expected 1"},
    {BYTES(UNKNOWN UNKNOWN), "2 unknown pieces, expected 1"},
    {BYTES(UNKNOWN PIECE("a", "\x00")), "piece 1 has type 0, expected 1 to 6"},
    {BYTES(UNKNOWN PIECE("a", "\x07")), "piece 1 has type 7, expected 1 to 6"},
    {BYTES("\x0a\x0e\x0a\x01u\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
     "piece 0 has type -1, expected 1 to 6"},
    {BYTES(UNKNOWN "\x0a\x02\x18\x01"), "piece 1 is empty"},
    {BYTES(UNKNOWN PIECE("\xff", "\x01")), "piece 1 is not valid UTF-8"},
    {BYTES(UNKNOWN "\x0a\x08\x0a\x01"
                   "a\x15\x00\x00\xc0\x7f"),
     "the score of piece 1 is not finite"},
    {BYTES(UNKNOWN "\x0a\x08\x0a\x01"
                   "a\x15\x00\x00\x80\xff"),
     "the score of piece 1 is not finite"},
    {BYTES(UNKNOWN TRAINER("\x02\x18\x03")), "SentencePiece model type word (3)"},
    {BYTES(UNKNOWN TRAINER("\x02\x18\x04")), "SentencePiece model type char (4)"},
    {BYTES(UNKNOWN TRAINER("\x02\x18\x00")), "SentencePiece model type unknown (0)"},
    {BYTES(UNKNOWN TRAINER("\x02\x18\x63")), "SentencePiece model type unknown (99)"},
    {BYTES(UNKNOWN TRAINER("\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")), "type unknown (-1)"},
    {BYTES(UNKNOWN TRAINER("\x03\x98\x02\x01")), "0 byte pieces, expected 256"},
    {BYTES(UNKNOWN TRAINER("\x03\xc0\x01\x01")), "models with treat_whitespace_as_suffix"},
    {BYTES(UNKNOWN NORMALIZER("\x02\x28\x00")), "models with escape_whitespaces = false"},
    {BYTES(UNKNOWN "\x2a\x03\x12\x01x"), "models with a denormalizer"},
};

static void test_known(void)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct buf text = {0};
        struct err err;
        const int rc = spmodel_json(&text, known[i].data, known[i].size, "file", &err);
        check(known[i].complaint
                  ? rc < 0 && strstr(err.text, known[i].complaint) && strstr(err.text, "file: ")
                  : rc == 0 && text.len > 0,
              "model %zu: %s", i, rc < 0 ? err.text : "accepted");
        buf_release(&text);
    }
}

static int print(const char *path)
{
    struct file_map map;
    struct buf text = {0};
    struct err err;
    int rc = file_map(&map, path, &err);
    if (rc == 0)
        rc = spmodel_json(&text, map.data, map.size, path, &err);
    puts(rc == 0 ? text.data : err.text);
    buf_release(&text);
    file_unmap(&map);
    return rc < 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return print(argv[1]);
    test_known();
    return check_result();
}
