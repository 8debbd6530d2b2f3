/* Members that other servers' requests have, and this one's do not. */
#pragma once

#include "base/json.h"

/* Members that have no effect, a bit each. */
typedef uint64_t foreign_members;

/* Looks a member up. Returns 1 for one without effect on the answer, and adds it to *ignored; 0 for one of no server;
 * -1 with the reason for one that would change the answer. *openai is set if OpenAI's requests have it. */
int foreign_member(const char *name, const json_t *value, foreign_members *ignored, bool *openai,
                   struct err *err) MUST_USE;

/* Appends a sentence about members without effect. */
int foreign_note(foreign_members ignored, struct buf *note, struct err *err) MUST_USE;

/* Fails if an object has a member whose name is not in the list `known`, separated by blanks. */
int check_known(const char *where, const json_t *object, const char *known, struct err *err) MUST_USE;
