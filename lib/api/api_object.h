/* What models, contexts, samplers and texts of the public API begin with: a lock, so that calls of several threads take
 * turns, and a number of holders, so that an object lives until its calls have ended and what was opened from it
 * is closed. */
#ifndef BMC_API_OBJECT_H
#define BMC_API_OBJECT_H

#include "api/api.h"

/* Sets up an object with one holder, whoever opens it; `free` is called after the last one. `from`: NULL, or what it is
 * opened from, which it holds; it has that one's lock if `shares`. */
void api_object_open(struct api_object *object, struct api_object *from, bool shares,
                     void (*free)(struct api_object *object));

/* Ends a holder of an object, which may be NULL. */
void api_object_drop(struct api_object *object);

/* Begins a call: waits until those of other threads have ended. Fails if `object` is NULL, or if a call on it runs the
 * function that makes this one. `kind`: "context", for the sentence. */
int api_enter(struct api_object *object, const char *kind, struct err *err) MUST_USE;
void api_leave(struct api_object *object);

/* Fails if an argument is NULL. */
int api_given(const void *argument, const char *name, struct err *err) MUST_USE;

/* The object of a public structure, also of a constant one; NULL of NULL. */
#define API_OBJECT(p) ((p) ? (struct api_object *)(uintptr_t) & (p)->object : NULL)

/* The body of a public function: `work`, which returns 0 or -1 with `err`, as a call on the object of *p. */
#define API_CALL(kind, p, work, otherwise, error)                                                      \
    struct err err;                                                                                    \
    int api_rc = api_enter(API_OBJECT(p), kind, &err);                                                 \
    if (api_rc == 0) {                                                                                 \
        api_rc = (work);                                                                               \
        api_leave(API_OBJECT(p));                                                                      \
    }                                                                                                  \
    return api_status(api_rc, &err, otherwise, error)

#endif
