/* Reads a value as models write it, in pieces, and writes it as compact JSON with the same value: strings with the fewest
 * escapes, numbers with their digits. */
#pragma once

#include "base/mem.h"

enum value_syntax {
    VALUE_JSON,   /* strings may have raw control characters */
    VALUE_PYTHON, /* JSON, and Python's strings, True, False and None */
    VALUE_LOOSE,  /* JSON, keys without quotes, and strings between `quote`, without escapes */
};

enum { VALUE_DEPTH = 128 };

/* {.syntax = .., .quote = ..} begins a value. */
struct value_reader {
    enum value_syntax syntax;
    const char *quote; /* of VALUE_LOOSE, borrowed */
    unsigned expects;  /* what comes next */
    bool comma;        /* a comma precedes the next element */
    bool is_key;       /* the string is a key */
    char delimiter;    /* of the string that is read; 0: none, 1: `quote` */
    unsigned depth;
    char closing[VALUE_DEPTH];
};

enum { VALUE_MORE, VALUE_DONE, VALUE_BAD };

/* Reads bytes of a value, and appends what is known of its JSON to `out`. Sets *taken: bytes behind it were not read, and
 * are to be given again. Returns VALUE_DONE behind the value's last byte; VALUE_MORE if text[len] does not end it;
 * VALUE_BAD at a byte that no value has there; or -1. */
int value_read(struct value_reader *reader, const char *text, size_t len, size_t *taken,
               struct buf *out, struct err *err) MUST_USE;

/* Appends text as the inside of a JSON string. Invalid UTF-8 stays as it is. */
int value_add_text(struct buf *out, const char *text, size_t len, struct err *err) MUST_USE;
