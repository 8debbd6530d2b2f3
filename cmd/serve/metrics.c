/* Metrics in Prometheus' text format. */
#include <unistd.h>

#include "serve/server.h"

static size_t resident_bytes(void)
{
    size_t pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%zu %zu", &pages, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

int metrics_answer(struct server *server, const char *url, const char **type, struct buf *text,
                   struct err *err)
{
    (void)url;
    *type = "text/plain; version=0.0.4";
    pthread_mutex_lock(&server->lock);
    const struct serve_counters c = server->counters;
    size_t waiting = 0;
    for (size_t i = 0; i < ARRAY_LEN(server->lane); i++)
        for (const struct exchange *x = server->lane[i].first; x; x = x->behind)
            waiting++;
    const size_t in_progress = server->n_exchanges - 1; /* but for this one */
    pthread_mutex_unlock(&server->lock);
    const struct {
        const char *name, *type, *help;
        double value;
    } metrics[] = {
        {"bmc_requests_in_progress", "gauge", "Requests that have not been answered",
         (double)in_progress},
        {"bmc_requests_waiting", "gauge", "Of these, those that wait for a slot", (double)waiting},
        {"bmc_requests_cancelled_total", "counter", "Requests whose client went away",
         (double)c.cancelled},
        {"bmc_prompt_tokens_total", "counter", "Tokens of prompts", (double)c.prompt_tokens},
        {"bmc_cached_tokens_total", "counter", "Of these, those that were not computed",
         (double)c.cached_tokens},
        {"bmc_generated_tokens_total", "counter", "Tokens generated", (double)c.generated_tokens},
        {"bmc_request_seconds_sum", "counter", "Time of all requests", c.total_s},
        {"bmc_first_event_seconds_sum", "counter", "Time to the first event, of those that stream",
         c.first_s},
        {"bmc_first_event_seconds_count", "counter", "Requests that stream", (double)c.first_tokens},
        {"process_resident_memory_bytes", "gauge", "Memory in use", (double)resident_bytes()},
    };
    int rc = buf_addf(
        text, err,
        "# HELP bmc_requests_total Requests by their status\n# TYPE bmc_requests_total counter\n");
    for (size_t i = 2; i < ARRAY_LEN(c.requests) && rc == 0; i++)
        rc = buf_addf(text, err, "bmc_requests_total{status=\"%zuxx\"} %llu\n", i,
                      (unsigned long long)c.requests[i]);
    for (size_t i = 0; i < ARRAY_LEN(metrics) && rc == 0; i++)
        rc = buf_addf(text, err, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", metrics[i].name,
                      metrics[i].help, metrics[i].name, metrics[i].type, metrics[i].name,
                      metrics[i].value);
    return rc;
}
