/* Detokenisation. Decoders run token by token: across tokens they only join bytes to characters
 * and treat the first token's space specially. */
#include "text/tokenizer/detok.h"

#include "text/slice.h"
#include "text/tokenizer/tok_tables.h"
#include "text/utf8.h"

enum { MAX_PIECE = 1 << 20 };

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* The byte of a spelling such as "<0xE2>", or -1. */
static int byte_of_spelling(const char *text, size_t len)
{
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int detok_piece(const struct tokenizer *tok, uint32_t id, bool first, struct buf *out, struct err *err)
{
    struct buf texts[2] = {{0}, {0}}; /* double buffer: a decoder reads one and writes the other */
    size_t len, passes = 0;
    const char *text = tok_bytes(tok, id, &len);
    unsigned char byte = 0;
    int rc = -1;
    for (size_t i = 0; i < tok->step_count[LIST_DECODER]; i++) {
        const struct tok_step *step = &tok->steps[LIST_DECODER][i];
        const char *a = tok->text + step->a, *b = tok->text + step->b;
        if (step->kind == DECODE_REPLACE || step->kind == DECODE_METASPACE) {
            struct buf *replaced = &texts[passes++ % 2];
            bool drop = step->kind == DECODE_METASPACE && step->option && first;
            buf_clear(replaced);
            if (slice_replace((struct slice){text, len}, (struct slice){a, step->a_len},
                              (struct slice){b, drop ? 0 : step->b_len}, MAX_PIECE, replaced, err) < 0)
                goto out;
            text = replaced->data;
            len = replaced->len;
        } else if (step->kind == DECODE_BYTES) {
            int value = byte_of_spelling(text, len);
            if (value >= 0) {
                byte = (unsigned char)value;
                text = (const char *)&byte;
                len = 1;
            }
        } else if (step->kind == DECODE_STRIP && first && len > 0 && text[0] == a[0]) {
            text++;
            len--;
        }
    }
    rc = buf_add(out, text, len, err);
out:
    buf_release(&texts[0]);
    buf_release(&texts[1]);
    return rc;
}

void detok_init(struct detok *detok, const struct tokenizer *tok, bool keep_special)
{
    *detok = (struct detok){.tok = tok, .keep_special = keep_special};
}

/* Appends U+FFFD in place of held bytes that cannot become a character. */
static int drop_held(struct detok *detok, struct buf *out, struct err *err)
{
    size_t count = detok->tok->bytes_stand_alone ? detok->held_len : detok->held_len > 0;
    detok->held_len = 0;
    for (size_t i = 0; i < count; i++)
        if (buf_add(out, replacement, sizeof replacement - 1, err) < 0)
            return -1;
    return 0;
}

static int add_byte(struct detok *detok, unsigned char byte, struct buf *out, struct err *err)
{
    for (;;) {
        detok->held[detok->held_len++] = byte;
        int step = utf8_step((const char *)detok->held, detok->held_len);
        if (step == 0)
            return 0;
        if (step > 0) {
            detok->held_len = 0;
            return buf_add(out, detok->held, (size_t)step, err);
        }
        if (detok->held_len == 1)
            return drop_held(detok, out, err);
        /* The byte does not continue the held ones, but may start a character. */
        detok->held_len--;
        if (drop_held(detok, out, err) < 0)
            return -1;
    }
}

int detok_add(struct detok *detok, uint32_t id, struct buf *out, struct err *err)
{
    struct buf piece = {0};
    uint8_t flags = tok_flags(detok->tok, id);
    int rc = -1;
    if (!(flags & TOK_PRESENT) || ((flags & TOK_SPECIAL) && !detok->keep_special))
        return 0;
    if (detok_piece(detok->tok, id, !detok->started, &piece, err) < 0)
        goto out;
    detok->started |= !detok->tok->starts_with_text || piece.len > 0;
    for (size_t at = 0; at < piece.len;) {
        size_t valid = detok->held_len ? 0 : utf8_valid(piece.data + at, piece.len - at);
        if (buf_add(out, piece.data + at, valid, err) < 0)
            goto out;
        at += valid;
        if (at < piece.len && add_byte(detok, (unsigned char)piece.data[at++], out, err) < 0)
            goto out;
    }
    rc = 0;
out:
    buf_release(&piece);
    return rc;
}

int detok_finish(struct detok *detok, struct buf *out, struct err *err)
{
    return drop_held(detok, out, err);
}
