/* Thread teams: every index once, for any team size, nesting and number of callers.
 *
 *   test_threads          the checks
 *   test_threads time     also the overhead of a loop, in microseconds */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/check.h"

enum { MOST = 3000, MUCH = 1 << 30 };

struct test_loop {
    atomic_int calls[MOST];
    atomic_int strangers; /* calls on threads that are not in the team */
    int size;
};

static void count(void *arg, size_t index)
{
    struct test_loop *loop = arg;
    const int who = threads_self();
    atomic_fetch_add_explicit(&loop->calls[index], 1, memory_order_relaxed);
    if (who < 0 || who >= loop->size)
        atomic_fetch_add(&loop->strangers, 1);
}

/* Runs loops of random lengths; false unless every index was called exactly once, and only by
 * threads of the team. */
static bool loops(unsigned *seed, int rounds)
{
    struct test_loop *loop = calloc(1, sizeof *loop);
    bool ok = loop != NULL;
    for (int round = 0; round < rounds && ok; round++) {
        const size_t n = (size_t)rand_r(seed) % (round % 8 ? 17 : MOST);
        memset(loop->calls, 0, sizeof loop->calls);
        loop->size = threads_now();
        parallel_for(n, MUCH, count, loop);
        for (size_t i = 0; i < MOST; i++)
            ok = ok && loop->calls[i] == (i < n);
        ok = ok && loop->strangers == 0;
    }
    free(loop);
    return ok;
}

static unsigned seed;

static void test_sizes(void)
{
    static const int sizes[] = {1, 2, 3, 2, 7, 1, 5, 5, 2, 16, 4};
    check(threads_now() == 1 && threads_max() == 1 && threads_self() == 0, "a thread begins alone");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        threads_set(sizes[i]);
        check(threads_now() == sizes[i] && threads_max() == sizes[i], "a team of %d, not of %d",
              threads_now(), sizes[i]);
        check(loops(&seed, 300), "each index once on %d threads", sizes[i]);
    }
}

/* ---- which threads take part ---- */

struct meeting {
    pthread_t caller;
    atomic_int here, others;
    atomic_size_t last;
    atomic_bool disordered;
    int wanted;
};

/* Waits, up to 20 seconds, until the wanted number of threads are in the loop, so that no thread
 * can run all iterations. */
static void meet(void *arg, size_t index)
{
    struct meeting *m = arg;
    (void)index;
    atomic_fetch_add(&m->here, 1);
    if (!pthread_equal(pthread_self(), m->caller))
        atomic_fetch_add(&m->others, 1);
    for (const double start = clock_ms(); m->here < m->wanted && clock_ms() - start < 20000;)
        sched_yield();
}

static void test_members(void)
{
    threads_set(3);
    struct meeting m = {.caller = pthread_self(), .wanted = 3};
    parallel_for(3, MUCH, meet, &m);
    check(m.here == 3 && m.others == 2, "%d of 3 calls on workers", m.others);
    m.here = m.others = 0;
    usleep(20000); /* the workers sleep */
    parallel_for(3, SIZE_MAX, meet, &m);
    check(m.here == 3 && m.others == 2, "%d of 3 calls on workers that slept", m.others);
    m = (struct meeting){.caller = pthread_self()};
    parallel_for(50, 1000, meet, &m);
    check(m.here == 50 && m.others == 0, "little work wakes the team");
    parallel_for(1, MUCH, meet, &m);
    check(m.here == 51 && m.others == 0, "one index wakes the team");
    parallel_for(0, MUCH, meet, &m);
    check(m.here == 51, "no index is one call");
}

/* ---- signals ---- */

static void look_at_mask(void *arg, size_t index)
{
    atomic_int *wrong = arg;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    *wrong += index > 0 && (sigismember(&blocked, SIGPIPE) || sigismember(&blocked, SIGBUS) ||
                            !sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGINT));
}

/* Workers take synchronous signals, SIGPIPE among them, and block asynchronous ones. */
static void test_signals(void)
{
    atomic_int wrong = 0;
    threads_set(3);
    threads_all(look_at_mask, &wrong);
    check(wrong == 0, "%d of 2 workers have the wrong signal mask", wrong);
}

static void each_once(void *arg, size_t index)
{
    struct test_loop *loop = arg;
    if (index != (size_t)threads_self())
        atomic_fetch_add(&loop->strangers, 1);
    atomic_fetch_add(&loop->calls[index], 1);
}

static void test_all(void)
{
    for (int size = 1; size < 6; size++) {
        struct test_loop *loop = calloc(1, sizeof *loop);
        bool ok = loop != NULL;
        threads_set(size);
        for (int round = 1; round <= 300 && ok; round++) {
            threads_all(each_once, loop);
            for (int i = 0; i < MOST; i++)
                ok = ok && loop->calls[i] == (i < size ? round : 0);
        }
        check(ok && loop->strangers == 0, "all %d members once", size);
        free(loop);
    }
}

/* ---- nested loops ---- */

struct nest {
    atomic_int calls, moved;
};

struct inner {
    struct nest *nest;
    pthread_t thread;
    int self;
};

static void inner_call(void *arg, size_t index)
{
    const struct inner *inner = arg;
    (void)index;
    atomic_fetch_add(&inner->nest->calls, 1);
    if (!pthread_equal(pthread_self(), inner->thread) || threads_self() != inner->self)
        atomic_fetch_add(&inner->nest->moved, 1);
}

static void outer_call(void *arg, size_t index)
{
    struct inner inner = {arg, pthread_self(), threads_self()};
    (void)index;
    threads_set(2); /* ignored within a loop */
    parallel_for(10, MUCH, inner_call, &inner);
    threads_all(inner_call, &inner);
}

static void test_nesting(void)
{
    struct nest nest = {0};
    threads_set(4);
    parallel_for(200, MUCH, outer_call, &nest);
    check(nest.calls == 2200 && nest.moved == 0, "%d of 2200 inner calls, %d on another thread",
          nest.calls, nest.moved);
    check(threads_now() == 4, "the team has %d members", threads_now());
}

/* ---- slow workers and memory order ---- */

struct slow {
    pthread_t caller;
    int written[64]; /* not atomic: ordered by the end of the loop */
    int in;
};

static void be_slow(void *arg, size_t index)
{
    struct slow *slow = arg;
    if (!pthread_equal(pthread_self(), slow->caller))
        usleep(3000);
    slow->written[index] = slow->in + (int)index;
}

static void test_slow(void)
{
    struct slow slow = {.caller = pthread_self()};
    bool ok = true;
    threads_set(3);
    for (slow.in = 0; slow.in < 50; slow.in++) {
        parallel_for(ARRAY_LEN(slow.written), MUCH, be_slow, &slow);
        for (size_t i = 0; i < ARRAY_LEN(slow.written); i++)
            ok = ok && slow.written[i] == slow.in + (int)i;
    }
    check(ok, "a loop ended before a slow worker did");
}

/* ---- several callers ---- */

static void *host_thread(void *arg)
{
    unsigned own = seed + (unsigned)(uintptr_t)arg;
    bool ok = threads_now() == 1;
    for (int i = 0; i < 20 && ok; i++) {
        threads_set(1 + (int)((own + (unsigned)i) % 4));
        ok = loops(&own, 50);
    }
    return ok ? arg : NULL;
}

static int count_tasks(void)
{
    char line[256];
    int n = -1;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "Threads: %d", &n) != 1)
        ;
    if (file)
        fclose(file);
    return n;
}

static void test_hosts(void)
{
    pthread_t thread[4];
    threads_set(1);
    const int tasks = count_tasks();
    for (uintptr_t round = 0; round < 3; round++) {
        int right = 0;
        for (uintptr_t i = 0; i < ARRAY_LEN(thread); i++)
            if (pthread_create(&thread[i], NULL, host_thread, (void *)(10 * round + i + 1)) != 0)
                exit(1);
        for (size_t i = 0; i < ARRAY_LEN(thread); i++) {
            void *result;
            pthread_join(thread[i], &result);
            right += result != NULL;
        }
        check(right == 4, "%d of 4 threads with teams of their own", right);
    }
    const int left = count_tasks() - tasks, emulator = getenv("BMC_EMULATED") != NULL;
    /* qemu starts and ends a thread of its own */
    check(tasks > 0 && left <= emulator && left >= -emulator, "%d threads are left over", left);
}

/* ---- affinity ---- */

struct cores {
    cpu_set_t wanted;
    atomic_int others; /* threads with another affinity mask */
};

static void compare_mask(void *arg, size_t thread)
{
    struct cores *cores = arg;
    cpu_set_t mask;
    (void)thread;
    CPU_ZERO(&mask);
    sched_getaffinity(0, sizeof mask, &mask);
    if (!CPU_EQUAL(&mask, &cores->wanted))
        atomic_fetch_add(&cores->others, 1);
}

static void test_affinity(void)
{
    struct cores cores = {0};
    sched_getaffinity(0, sizeof cores.wanted, &cores.wanted);
    check(threads_allowed() == CPU_COUNT(&cores.wanted), "%d cores allowed", threads_allowed());
    threads_set(threads_allowed());
    threads_all(compare_mask, &cores);
    check(cores.others == 0, "%d members are pinned", cores.others);
}

/* ---- overhead ---- */

static void nothing(void *arg, size_t index)
{
    (void)arg;
    (void)index;
}

/* Times empty loops that begin `gap_us` after the last one: some of a size that the caller may run
 * alone, others that all threads join. */
static void time_loops(int gap_us)
{
    const int rounds = gap_us > 20 ? 1000 : 20000;
    double each = 0, all = 0;
    threads_set(threads_allowed());
    for (int i = 0; i < 2 * rounds; i++) {
        for (const double start = clock_ms(); clock_ms() - start < gap_us / 1e3;)
            ;
        const double begin = clock_ms();
        if (i % 2)
            parallel_for((size_t)threads_now(), MUCH, nothing, NULL);
        else
            threads_all(nothing, NULL);
        *(i % 2 ? &each : &all) += (clock_ms() - begin) * 1e3 / rounds;
    }
    printf("# %d threads, %3d us between loops: %.2f us per loop, %.2f us with all members\n",
           threads_now(), gap_us, each, all);
}

/* ---- the idle hook ---- */

struct hook {
    pthread_t caller;
    int calls, by_others, own; /* own: iterations of the caller */
};

static void on_idle(void *arg)
{
    struct hook *hook = arg;
    hook->calls++;
    hook->by_others += !pthread_equal(pthread_self(), hook->caller);
}

static void count_own(void *arg, size_t i)
{
    struct hook *hook = arg;
    (void)i;
    if (pthread_equal(pthread_self(), hook->caller))
        hook->own++;
}

static void test_idle_hook(void)
{
    struct hook hook = {.caller = pthread_self()};
    threads_idle_hook(on_idle, &hook);
    threads_set(1);
    parallel_for(7, MUCH, nothing, NULL);
    check(hook.calls == 7, "called %d times after 7 iterations of a caller alone", hook.calls);
    threads_set(3);
    for (size_t i = 0; i < 200; i++)
        parallel_for(50, MUCH, count_own, &hook);
    check(hook.calls == 7 + hook.own && hook.by_others == 0,
          "after %d iterations of the caller called %d times, by other threads %d times", hook.own,
          hook.calls - 7, hook.by_others);
    threads_idle_hook(NULL, NULL);
    const int calls = hook.calls;
    check(loops(&seed, 10) && hook.calls == calls, "no calls after the hook is removed");
}

int main(int argc, char **argv)
{
    seed = (unsigned)check_seed(1);
    test_sizes();
    test_members();
    test_signals();
    test_all();
    test_nesting();
    test_slow();
    test_hosts();
    test_affinity();
    test_idle_hook();
    for (int i = 0; i < 4 && argc == 2 && strcmp(argv[1], "time") == 0; i++)
        time_loops((const int[]){0, 5, 20, 500}[i]);
    return check_result();
}
