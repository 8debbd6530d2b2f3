/* NUMA nodes, described in a folder that stands for /sys, and the placement of a model's weights on them:
 * test_numa FOLDER MODEL. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/cores.h"
#include "base/threads.h"
#include "kernel/steal.h"
#include "model/model_pages.h"
#include "quant/pack.h"
#include "tests/unit/check.h"
#include "tests/unit/sysfs_text.h"

/* ---- nodes ---- */

static void test_distribution(void)
{
    /* threads 7 on nodes of 2, 1 and 4 cores, and 2 threads: of 7 cores, thread t belongs to core 7 t / threads */
    struct numa numa = {.n = 3};
    const size_t cores[] = {2, 1, 4}, want[][4] = {{0, 2, 3, 7}, {0, 0, 0, 2}, {0, 4, 6, 14}};
    const size_t threads[] = {7, 2, 14};
    for (size_t i = 0; i < 3; i++)
        for (size_t c = 0; c < cores[i]; c++)
            CPU_SET(10 * i + c, &numa.node[i].cores);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        size_t first[NUMA_NODES + 1];
        numa_distribute(&numa, threads[i], first);
        check(memcmp(first, want[i], sizeof want[i]) == 0, "%zu threads: %zu %zu %zu %zu", threads[i],
              first[0], first[1], first[2], first[3]);
    }
}

struct bound_cores {
    size_t size;
    cpu_set_t cores[2];
};

static void read_bound(void *arg, size_t member)
{
    struct bound_cores *bound = arg;
    sched_getaffinity(0, sizeof(cpu_set_t), &bound->cores[member]);
}

/* A thread of its own, which stays bound. */
static void *bind_team(void *arg)
{
    const struct numa *numa = arg;
    struct bound_cores bound = {0};
    const int allowed = threads_allowed();
    numa_bind_team(numa, 2);
    check(threads_allowed() == allowed, "%d cores are allowed after binding, %d before",
          threads_allowed(), allowed);
    threads_all(read_bound, &bound);
    for (size_t i = 0; i < 2; i++)
        check(CPU_EQUAL(&bound.cores[i], &numa->node[i].cores), "member %zu is not on its node", i);
    return NULL;
}

static void test_nodes(const char *sysfs)
{
    struct numa numa;
    cpu_set_t allowed;
    int core[2] = {-1, -1}, n = 0;
    char text[64];
    numa_read(&numa, sysfs);
    check(numa.n == 1, "%zu nodes without a description", numa.n);
    sched_getaffinity(0, sizeof allowed, &allowed);
    check(CPU_EQUAL(&numa.node[0].cores, &allowed), "without a description, a node of all cores");
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET((size_t)i, &allowed))
            core[n++] = i;
    if (n < 2)
        return;
    snprintf(text, sizeof text, "%d\n", core[1]);
    write_sysfs(sysfs, "devices/system/node/node3/cpulist", text);
    write_sysfs(sysfs, "devices/system/node/node2/cpulist", "\n"); /* memory only */
    write_sysfs(sysfs, "devices/system/node/node1/cpulist", "1000-1003\n");
    snprintf(text, sizeof text, "%d,1004-1007\n", core[0]);
    write_sysfs(sysfs, "devices/system/node/node0/cpulist", text);
    numa_read(&numa, sysfs);
    check(numa.n == 2 && numa.node[0].id == 0 && numa.node[1].id == 3, "%zu nodes, not 0 and 3",
          numa.n);
    for (size_t i = 0; i < 2 && i < numa.n; i++)
        check(CPU_COUNT(&numa.node[i].cores) == 1 && CPU_ISSET((size_t)core[i], &numa.node[i].cores),
              "node %zu does not have core %d alone", i, core[i]);
    pthread_t thread;
    if (numa.n == 2 && pthread_create(&thread, NULL, bind_team, &numa) == 0)
        pthread_join(thread, NULL);
}

/* ---- weights ---- */

struct placed {
    unsigned char *node; /* [file size]: 1 + the node of each byte */
    size_t size, overlaps;
};

static void place(void *arg, size_t node, size_t from, size_t bytes)
{
    struct placed *placed = arg;
    check(from <= placed->size && bytes <= placed->size - from, "%zu bytes at %zu are not in the file",
          bytes, from);
    for (size_t i = from; i < from + bytes && i < placed->size; i++) {
        placed->overlaps += placed->node[i] != 0;
        placed->node[i] = (unsigned char)(1 + node);
    }
}

/* Checks the matrices of a loop: every block lies on the node of the thread whose range it is in. */
static void check_together(const struct model *model, const struct placed *placed, const size_t *first,
                           size_t threads, const struct linear *const *linear, size_t n,
                           const char *name)
{
    struct steal_range ranges[8];
    size_t all = 0, item = 0, wrong = 0;
    for (size_t m = 0; m < n; m++)
        all += div_up(linear[m]->weight.out, PACK_OUT);
    steal_begin(ranges, threads, all);
    for (size_t m = 0; m < n; m++) {
        const struct mat *w = &linear[m]->weight;
        const size_t bytes = pack_block_bytes(w->dtype, w->in_padded);
        const unsigned char *node =
            placed->node + ((const unsigned char *)w->data - model->file.map.data);
        for (size_t b = 0; b < div_up(w->out, PACK_OUT); b++, item++) {
            size_t thread = 0, of = 0;
            while (item >= ranges[thread].items >> 32)
                thread++;
            while (thread >= first[of + 1])
                of++;
            for (size_t i = 0; i < bytes; i++)
                wrong += node[b * bytes + i] != 1 + of;
        }
    }
    check(wrong == 0, "%s: %zu bytes are on another node than the threads that read them", name, wrong);
}

static void test_weights(const char *path)
{
    struct model *model;
    struct err err;
    struct numa numa = {.n = 3};
    const size_t cores[] = {1, 2, 1};
    for (size_t i = 0, core = 0; i < 3; i++)
        for (size_t c = 0; c < cores[i]; c++)
            CPU_SET(core++, &numa.node[i].cores);
    if (model_open(&model, path, &err) < 0) {
        check(false, "%s", err.text);
        return;
    }
    for (size_t threads = 1; threads <= 8; threads++) {
        size_t first[NUMA_NODES + 1];
        struct placed placed = {.size = model->file.map.size};
        placed.node = mem_zalloc(placed.size, 1);
        numa_distribute(&numa, threads, first);
        model_place_weights(model, &numa, (int)threads, place, &placed);
        check(placed.overlaps == 0, "%zu bytes are placed twice", placed.overlaps);
        for (size_t i = 0; i < model->config.layers; i++) {
            const struct layer *l = &model->weights.layer[i];
            check_together(model, &placed, first, threads,
                           (const struct linear *[]){&l->q, &l->k, &l->v}, 3, "q, k, v");
            check_together(model, &placed, first, threads, (const struct linear *[]){&l->out}, 1,
                           "out");
            check_together(model, &placed, first, threads, (const struct linear *[]){&l->gate}, 1,
                           "gate");
            check_together(model, &placed, first, threads, (const struct linear *[]){&l->up}, 1, "up");
            check_together(model, &placed, first, threads, (const struct linear *[]){&l->down}, 1,
                           "down");
        }
        free(placed.node);
    }
    model_close(model);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    test_distribution();
    test_nodes(argv[1]);
    test_weights(argv[2]);
    return check_result();
}
