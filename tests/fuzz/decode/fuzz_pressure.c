/* Logs of --kv-pressure: conversions that are read are written and read again unchanged, and each is found as the next one of
 * its sequence. */
#include "decode/pressure_log.h"
#include "tests/fuzz/support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_event(const struct pressure_log *log, const struct pressure_event *event)
{
    if (pressure_log_next(log, event->sequence, event->position - 1) != event->position ||
        pressure_log_next(log, event->sequence, event->position) <= event->position)
        abort();
}

static void write_again(const struct pressure_log *log, const char *path)
{
    struct pressure_log out;
    struct err err;
    if (pressure_log_open(&out, path, NULL, &err) < 0)
        abort();
    for (size_t i = 0; i < log->n_events; i++)
        if (pressure_log_add(&out, "suspend", i, 0, &err) < 0 ||
            pressure_log_add(&out, "convert", log->event[i].sequence, log->event[i].position, &err) < 0)
            abort();
    if (pressure_log_commit(&out, &err) < 0)
        abort();
    pressure_log_close(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 1000 };
    struct pressure_log log, again = {.out.fd = -1};
    struct err err;
    char path[300];
    scratch_begin();
    snprintf(path, sizeof path, "%s/log", scratch_folder);
    if (!scratch_write("log", data, size))
        abort();
    if (pressure_log_open(&log, NULL, path, &err) == 0 && log.n_events < MOST) {
        for (size_t i = 0; i < log.n_events; i++)
            check_event(&log, &log.event[i]);
        write_again(&log, path);
        if (pressure_log_open(&again, NULL, path, &err) < 0 || again.n_events != log.n_events ||
            (log.n_events && memcmp(again.event, log.event, log.n_events * sizeof *log.event) != 0))
            abort();
    }
    pressure_log_close(&again);
    pressure_log_close(&log);
    return 0;
}
