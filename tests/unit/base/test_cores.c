/* Cores chosen by masks and by the system's description of hybrid processors, read from a folder:
 * test_cores FOLDER. Every choice is made in a thread of its own. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/cores.h"
#include "tests/unit/check.h"
#include "tests/unit/sysfs_text.h"

static const char *sysfs;

struct cores_choice {
    const char *mask; /* NULL: the fastest cores */
    cpu_set_t chosen;
    struct err err;
    int rc;
};

static void *choose(void *arg)
{
    struct cores_choice *c = arg;
    c->rc = c->mask ? cpu_use_mask(c->mask, &c->err) : cpu_use_fastest(sysfs, &c->err);
    sched_getaffinity(0, sizeof c->chosen, &c->chosen);
    return NULL;
}

/* Checks that a choice leaves the `n` cores listed, or fails with a message of `text` if n is 0. */
static void check_choice(const char *mask, const int *cores, int n, const char *text)
{
    struct cores_choice c = {.mask = mask, .err = {.text = ""}};
    pthread_t thread;
    if (pthread_create(&thread, NULL, choose, &c) != 0)
        return;
    pthread_join(thread, NULL);
    check((c.rc == 0) == (n > 0), "%s: %s", mask ? mask : "fastest", c.err.text);
    check(n > 0 || strstr(c.err.text, text), "%s: \"%s\"", mask ? mask : "fastest", c.err.text);
    check(n == 0 || CPU_COUNT(&c.chosen) == n, "%s: %d cores", mask ? mask : "fastest",
          CPU_COUNT(&c.chosen));
    for (int i = 0; i < n && i < 2; i++)
        check(CPU_ISSET((size_t)cores[i], &c.chosen), "%s: not core %d", mask ? mask : "fastest",
              cores[i]);
}

static void write_text(const char *name, const char *text) { write_sysfs(sysfs, name, text); }

static void write_capacity(int core, const char *capacity)
{
    char name[128];
    snprintf(name, sizeof name, "devices/system/cpu/cpu%d/cpu_capacity", core);
    write_text(name, capacity);
}

int main(int argc, char **argv)
{
    cpu_set_t allowed;
    int core[2] = {-1, -1}, n = 0;
    char mask[2][300], both[64];
    if (argc != 2 || sched_getaffinity(0, sizeof allowed, &allowed) < 0)
        return 2;
    sysfs = argv[1];
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET((size_t)i, &allowed))
            core[n++] = i;
    if (n < 2) {
        check(true, "a single core: nothing to choose");
        return check_result();
    }
    for (int i = 0; i < 2; i++)
        snprintf(mask[i], sizeof mask[i], "%s%X%.*s", i ? "0x" : "", 1 << core[i] % 4, core[i] / 4,
                 "0000000000000000000000000000000000000000000000000000000000000000");
    check_choice(mask[0], core, 1, "");
    check_choice(mask[1], core + 1, 1, "");
    check_choice("0", NULL, 0, "names no core");
    check_choice("8000000000000000000000000000000000000000000000000000000000000000", NULL, 0,
                 "none of these cores");
    check_choice("12g", NULL, 0, "no mask");
    check_choice("", NULL, 0, "no mask");
    /* without a description, all cores */
    const int count = CPU_COUNT(&allowed);
    check_choice(NULL, core, count, "");
    write_capacity(core[0], "512\n");
    write_capacity(core[1], "1024\n");
    check_choice(NULL, core + 1, 1, "");
    write_capacity(core[0], "1024\n");
    check_choice(NULL, core, 2, "");
    snprintf(both, sizeof both, "%d-%d,900\n", core[0], core[0]);
    write_text("devices/cpu_core/cpus", both);
    check_choice(NULL, core, 1, "");
    write_text("devices/cpu_core/cpus", "1000-1020\n");
    check_choice(NULL, NULL, 0, "--cores performance: this process may run on none");
    return check_result();
}
