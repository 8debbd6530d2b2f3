/* Numbers and seeds in options, requests and configurations. */
#pragma once

#include "base/err.h"

/* Parse strictly: the whole text must be a number; sizes have no sign. */
bool parse_size(const char *text, size_t *value);
bool parse_int64(const char *text, int64_t *value);
bool parse_double(const char *text, double *value);

/* Parses a count of tokens: "8192" or "8K"; suffixes K, M, G and T are powers of 1024. */
bool parse_count(const char *text, size_t *value);

/* Parses a number of bytes, at least 1: "512M", "1.5G"; suffixes as in parse_count(). */
bool parse_bytes(const char *text, size_t *bytes);

/* Formats a number with the fewest digits that parse back to it: "0.7". */
enum { NUMBER_TEXT_SIZE = 32 };
void number_text(double number, char text[NUMBER_TEXT_SIZE]);

/* ---- seeds of random numbers ---- */

/* A seed as users give it: any whole number of 64 bits, or -1 to have one drawn. All zero: not given. */
struct seed {
    uint64_t value;
    bool given, draw;
};

/* Parses a seed; the whole text must be one. */
bool seed_parse(const char *text, struct seed *seed);

/* Draws a seed, of 32 bits, so that it is easy to repeat. */
int seed_draw(uint64_t *value, struct err *err) MUST_USE;
