/* Converting SentencePiece models, which are protocol buffers (spmodel.proto, for protoc-c). */
#include "format/hf/spmodel.h"

#include <sodium.h>
#include <spmodel.pb-c.h>

#include "base/json.h"
#include "format/detect.h"

enum { MAX_BYTES = 64 << 20, BYTE_VALUES = 256 };

enum spmodel_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER,
    PIECE_UNUSED,
    PIECE_BYTE
};

/* Names of SentencePiece model types by number, and "type" of the JSON; NULL: not supported. */
static const struct {
    const char *name, *type;
} kinds[] = {
    {"unknown", NULL}, {"unigram", "Unigram"}, {"bpe", "SPM"}, {"word", NULL}, {"char", NULL},
};

struct spmodel_reader {
    const char *name;
    const Spm__Model *model;
    const Spm__Trainer *trainer;
    const Spm__Normalizer *normalizer;
    const char *type;
    json_int_t unk;
};

static bool same_bytes(ProtobufCBinaryData a, ProtobufCBinaryData b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static int check_kind(struct spmodel_reader *r, struct err *err)
{
    const int32_t kind = r->trainer->model_type;
    const bool known = kind > 0 && (size_t)kind < ARRAY_LEN(kinds);
    r->type = known ? kinds[kind].type : NULL;
    if (!r->type)
        return err_set(err,
                       "%s: SentencePiece model type %s (%d) is not supported; unigram and bpe are",
                       r->name, kinds[known ? kind : 0].name, (int)kind);
    return 0;
}

static int check_rules(const struct spmodel_reader *r, struct err *err)
{
    const struct {
        bool is;
        const char *rule;
    } rules[] = {
        {r->trainer->whitespace_as_suffix, "treat_whitespace_as_suffix"},
        {!r->normalizer->escape_whitespaces, "escape_whitespaces = false"},
        {r->model->denormalizer && r->model->denormalizer->charsmap.len, "a denormalizer"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (rules[i].is)
            return err_set(err, "%s: SentencePiece models with %s are not supported", r->name,
                           rules[i].rule);
    return 0;
}

static int check_piece(const struct spmodel_reader *r, size_t id, struct err *err)
{
    const Spm__Piece *piece = r->model->pieces[id];
    if (piece->type < PIECE_NORMAL || piece->type > PIECE_BYTE)
        return err_set(err, "%s: piece %zu has type %d, expected 1 to 6", r->name, id,
                       (int)piece->type);
    if (!piece->piece.len)
        return err_set(err, "%s: piece %zu is empty", r->name, id);
    return isfinite(piece->score)
               ? 0
               : err_set(err, "%s: the score of piece %zu is not finite", r->name, id);
}

/* Fails unless exactly one piece is of type unknown, and with byte_fallback 256 of type byte. */
static int check_pieces(struct spmodel_reader *r, struct err *err)
{
    size_t count[PIECE_BYTE + 1] = {0};
    for (size_t i = 0; i < r->model->n_pieces; i++) {
        if (check_piece(r, i, err) < 0)
            return -1;
        const int32_t type = r->model->pieces[i]->type;
        count[type]++;
        if (type == PIECE_UNKNOWN)
            r->unk = (json_int_t)i;
    }
    if (count[PIECE_UNKNOWN] != 1)
        return err_set(err, "%s: %zu unknown pieces, expected 1", r->name, count[PIECE_UNKNOWN]);
    if (r->trainer->byte_fallback && count[PIECE_BYTE] != BYTE_VALUES)
        return err_set(err, "%s: %zu byte pieces, expected %d", r->name, count[PIECE_BYTE],
                       (int)BYTE_VALUES);
    return 0;
}

static int put_piece(const struct spmodel_reader *r, json_t *vocab, size_t id, struct err *err)
{
    const Spm__Piece *piece = r->model->pieces[id];
    json_t *text = json_text((const char *)piece->piece.data, piece->piece.len);
    json_t *entry = json_array();
    if (text && (json_string_length(text) != piece->piece.len ||
                 memcmp(json_string_value(text), piece->piece.data, piece->piece.len) != 0)) {
        json_decref(text);
        json_decref(entry);
        return err_set(err, "%s: piece %zu is not valid UTF-8", r->name, id);
    }
    int rc = json_push(entry, text, err);
    if (rc == 0)
        rc = json_push(entry, json_real(piece->score), err);
    if (rc == 0)
        rc = json_push(entry, json_integer(piece->type), err);
    if (rc == 0)
        return json_push(vocab, entry, err);
    json_decref(entry);
    return -1;
}

static int put_vocab(const struct spmodel_reader *r, json_t *model, struct err *err)
{
    json_t *vocab = json_array();
    if (json_put(model, "vocab", vocab, err) < 0)
        return -1;
    for (size_t i = 0; i < r->model->n_pieces; i++)
        if (put_piece(r, vocab, i, err) < 0)
            return -1;
    return 0;
}

static int put_model(const struct spmodel_reader *r, json_t *root, struct err *err)
{
    json_t *model = json_object();
    if (json_put(root, "model", model, err) < 0 ||
        json_put(model, "type", json_string(r->type), err) < 0 || put_vocab(r, model, err) < 0 ||
        json_put(model, "unk_id", json_integer(r->unk), err) < 0)
        return -1;
    const struct {
        const char *key;
        bool is;
    } flags[] = {
        {"byte_fallback", r->trainer->byte_fallback},
        {"add_prefix_space", r->normalizer->add_dummy_prefix},
        {"remove_extra_whitespaces", r->normalizer->remove_extra_whitespaces},
    };
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        if (json_put(model, flags[i].key, json_boolean(flags[i].is), err) < 0)
            return -1;
    return 0;
}

/* Stores the id of the control piece with this spelling under `key`, if there is one. */
static int put_control(const struct spmodel_reader *r, json_t *root, const char *key,
                       ProtobufCBinaryData spelling, struct err *err)
{
    for (size_t i = 0; i < r->model->n_pieces; i++)
        if (r->model->pieces[i]->type == PIECE_CONTROL &&
            same_bytes(r->model->pieces[i]->piece, spelling))
            return json_put(root, key, json_integer((json_int_t)i), err);
    return 0;
}

static int put_charsmap(const struct spmodel_reader *r, json_t *root, struct err *err)
{
    const ProtobufCBinaryData map = r->normalizer->charsmap;
    const int variant = sodium_base64_VARIANT_ORIGINAL;
    AUTO(buf_release) struct buf text = {0};
    if (!map.len)
        return 0;
    const size_t room = sodium_base64_encoded_len(map.len, variant);
    int rc = buf_reserve(&text, room, err);
    if (rc == 0) {
        sodium_bin2base64(text.data, room, map.data, map.len, variant);
        rc = json_put(root, "charsmap", json_string(text.data), err);
    }
    return rc;
}

static int put_tokenizer(struct spmodel_reader *r, struct buf *out, struct err *err)
{
    json_t *root = json_object();
    int rc = -1;
    if (check_kind(r, err) < 0 || check_rules(r, err) < 0 || check_pieces(r, err) < 0)
        goto out;
    if (put_model(r, root, err) < 0 || put_control(r, root, "bos_id", r->trainer->bos_piece, err) < 0 ||
        put_control(r, root, "eos_id", r->trainer->eos_piece, err) < 0 ||
        put_charsmap(r, root, err) < 0)
        goto out;
    rc = json_append(root, JSON_COMPACT, out, err);
out:
    json_decref(root);
    return rc;
}

int spmodel_json(struct buf *out, const void *data, size_t size, const char *name, struct err *err)
{
    static const Spm__Trainer trainer = SPM__TRAINER__INIT;
    static const Spm__Normalizer normalizer = SPM__NORMALIZER__INIT;
    if (detect_refuse(data, size, KIND_OTHER, "a SentencePiece model", name, err) < 0)
        return -1;
    if (size > MAX_BYTES)
        return err_set(err, "%s: %zu bytes are too large for a SentencePiece model", name, size);
    Spm__Model *model = spm__model__unpack(NULL, size, data);
    if (!model || !model->n_pieces) {
        spm__model__free_unpacked(model, NULL);
        return err_set(err, "%s: not a SentencePiece model, or damaged%s", name,
                       model ? ": it has no pieces" : "");
    }
    struct spmodel_reader r = {.name = name,
                               .model = model,
                               .trainer = model->trainer ? model->trainer : &trainer,
                               .normalizer = model->normalizer ? model->normalizer : &normalizer};
    const int rc = put_tokenizer(&r, out, err);
    spm__model__free_unpacked(model, NULL);
    return rc;
}
