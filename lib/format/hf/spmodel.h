/* A SentencePiece model (tokenizer.model), converted to an equivalent tokenizer.json. */
#pragma once

#include "base/mem.h"

/* Converts a tokenizer.model of `size` bytes, called `name` in errors, and appends the JSON text:
 *
 *    {"model": {"type": "SPM",           "SPM": merge the pair with the best score; "Unigram": maximise the sum of scores
 *               "vocab": [["<unk>", 0.0, 2], ..],    piece, score, type: 1 normal, 2 unknown, 3 control, 4 user defined,
 *                                         5 unused, 6 byte ("<0x41>")
 *               "unk_id": 0,
 *               "byte_fallback": true,
 *               "add_prefix_space": true,
 *               "remove_extra_whitespaces": false},
 *     "bos_id": 1, "eos_id": 2,          if there are such pieces
 *     "charsmap": "base64"}              precompiled normalisation rules of SentencePiece, if any */
int spmodel_json(struct buf *out, const void *data, size_t size, const char *name,
                 struct err *err) MUST_USE;
