/* A SentencePiece model (tokenizer.model): its pieces and rules, as the text of a tokenizer.json that says the same. Knows
 * nothing of how text is cut into pieces. */
#ifndef BMC_SPMODEL_H
#define BMC_SPMODEL_H

#include "base/mem.h"

/* Appends the JSON text of a model called `name`:
 *
 *   {"model": {"type": "SPM",           how pieces are chosen: "SPM" joins the pair of the best score, "Unigram" takes the
 *                                        likeliest cut
 *              "vocab": [["<unk>", 0.0, 2], ..],    piece, score, type: 1 normal, 2 unknown, 3 control, 4 user defined,
 *                                        5 unused, 6 byte ("<0x41>")
 *              "unk_id": 0,
 *              "byte_fallback": true,
 *              "add_prefix_space": true,
 *              "remove_extra_whitespaces": false},
 *    "bos_id": 1, "eos_id": 2,          where there are such pieces
 *    "charsmap": "base64"}              how characters are rewritten first, as SentencePiece compiled it; where they are */
int spmodel_json(struct buf *out, const void *data, size_t size, const char *name,
                 struct err *err) MUST_USE;

#endif
