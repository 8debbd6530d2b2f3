/* Numbers from texts, as options and configurations use them. */
#ifndef BMC_NUMBER_H
#define BMC_NUMBER_H

#include "base/base.h"

/* Strict: the whole text, no sign for sizes. */
bool parse_size(const char *text, size_t *value);
bool parse_int64(const char *text, int64_t *value);
bool parse_double(const char *text, double *value);

/* "8192", or "8K": so many times 1024, as M, G and T are of each other. Of tokens and rows. */
bool parse_count(const char *text, size_t *value);

/* "512M", "1.5G": bytes, at least one, or so many KiB, MiB, GiB or TiB. */
bool parse_bytes(const char *text, size_t *bytes);

/* The fewest digits that are read back as the same number: "0.7". */
enum { NUMBER_TEXT_SIZE = 32 };
void number_text(double number, char text[NUMBER_TEXT_SIZE]);

#endif
