/* The log of --kv-pressure: a line for each event, "convert SEQUENCE POSITION q8", "suspend SEQUENCE POSITION". Sequences
 * are numbered from 0 in the order in which their requests started, positions are counted in tokens. */
#pragma once

#include "base/file.h"

#define PRESSURE_TYPE "q8" /* the cache type of converted sequences */

/* A conversion to be repeated. */
struct pressure_event {
    size_t sequence, position;
};

struct pressure_log {
    struct outfile out; /* fd -1: nothing is written */
    struct pressure_event *event;
    size_t n_events, events_cap;
};

/* Opens the file to write and reads the one to replay; each may be NULL. Close it in any case. */
int pressure_log_open(struct pressure_log *log, const char *path, const char *replay,
                      struct err *err) MUST_USE;

/* Completes the file. */
int pressure_log_commit(struct pressure_log *log, struct err *err) MUST_USE;
void pressure_log_close(struct pressure_log *log);

int pressure_log_add(struct pressure_log *log, const char *what, size_t sequence, size_t position,
                     struct err *err) MUST_USE;

/* The first position behind `processed` tokens at which a sequence is to be converted; SIZE_MAX: none. */
size_t pressure_log_next(const struct pressure_log *log, size_t sequence, size_t processed);
