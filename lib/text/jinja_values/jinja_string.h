/* Strings of templates: immutable UTF-8 that knows which of its bytes are content.
 *
 * Content is text that a conversation brought in, in contrast to text of the template. Each byte
 * keeps its origin through concatenation, slicing and replacing, so that special tokens spelled in
 * content stay plain text. Positions are those of Python: characters, not bytes. */
#ifndef BMC_JINJA_STRING_H
#define BMC_JINJA_STRING_H

#include "text/jinja_values/jinja_state.h"

struct js {
    const char *text; /* not terminated */
    size_t len;
    const unsigned char *mask; /* 1 for each byte of content, else 0; NULL: all as in `content` */
    bool content;
    bool ascii;
};

/* A string under construction; {.j = state} is empty. */
struct js_builder {
    struct jinja_state *j;
    char *text;
    unsigned char *mask; /* NULL: uniform so far */
    size_t len, cap;
    bool content;
};

extern const struct js js_empty;

/* A string of the template's own; the text is borrowed. js_literal() is for C strings. */
const struct js *js_new(struct jinja_state *j, const char *text, size_t len, bool content);
const struct js *js_literal(struct jinja_state *j, const char *text);

void js_add(struct js_builder *b, const char *text, size_t len, bool content);
void js_add_str(struct js_builder *b, const struct js *s);
void js_add_part(struct js_builder *b, const struct js *s, size_t start, size_t end); /* bytes */
void js_add_char(struct js_builder *b, uint32_t code, bool content);
const struct js *js_done(struct js_builder *b);

/* The bytes [start, end) of a string. */
const struct js *js_part(struct jinja_state *j, const struct js *s, size_t start, size_t end);

/* Number of characters; byte offset of the i-th one, at most `len`. */
size_t js_count(struct jinja_state *j, const struct js *s);
size_t js_offset(struct jinja_state *j, const struct js *s, size_t i);

/* True if the byte at an offset is content; past the end: as the last one. */
bool js_is_content(const struct js *s, size_t at);
bool js_any_content(const struct js *s);

bool js_is(const struct js *s, const char *text);
bool js_equal(const struct js *a, const struct js *b); /* callers count the work */
int js_order(const struct js *a, const struct js *b);  /* by code points */

/* Byte offset of the first occurrence of `what` in [start, end), or SIZE_MAX; the last one. */
size_t js_find(struct jinja_state *j, const struct js *s, const struct js *what, size_t start,
               size_t end);
size_t js_rfind(struct jinja_state *j, const struct js *s, const struct js *what, size_t start,
                size_t end);

/* Whether Python's str.isspace() holds for a character. */
bool js_is_space(uint32_t code);

/* Byte range of a string without leading and trailing white space, or without the characters in
 * `chars` unless that is NULL. */
enum { JS_LEFT = 1, JS_RIGHT = 2 };
const struct js *js_strip(struct jinja_state *j, const struct js *s, const struct js *chars,
                          unsigned sides);

#endif
