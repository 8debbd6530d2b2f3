/* Teams of threads: a door that the caller opens for one loop at a time.
 *
 *   caller                                   worker
 *   describes the loop                       spins, then sleeps, until `generation` moves
 *   opens the door, moves `generation`       enters: adds itself to the door, if that is open
 *   claims iterations and runs them          claims iterations and runs them
 *   shuts the door                           leaves: takes itself off
 *   waits until nobody is inside
 *
 * The description is only written while the door is shut and nobody is inside, so whoever got in may read it. Who comes
 * late finds the door shut, or open for a later loop, which is as good. */
#include "base/threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/* A loop that takes about ten microseconds; a team that is awake costs it one. */
enum { WORTH_WAKING = 1 << 17 };
enum { CACHE_LINE = 64, MAX_TEAM = 1 << 16 };

/* How long a thread spins before it sleeps: longer than the gaps between the loops of a token, shorter than what a busy
 * machine would miss. */
#define SPIN_MS 0.05

/* The door: these bits, and below them the number of workers inside. */
#define DOOR_OPEN    (1u << 31)
#define DOOR_AWAITED (1u << 30) /* the caller sleeps until the last worker has left */

typedef _Atomic uint32_t futex_word;

struct worker {
    struct team *team;
    pthread_t thread;
    int self;
};

struct team {
    /* The loop. */
    _Alignas(CACHE_LINE) futex_word generation;
    uint32_t number; /* of the loop, to take part only once */
    bool all;        /* every member calls once, instead of claiming */
    size_t n;
    threads_body *body;
    void *arg;
    futex_word size;     /* members; workers beyond sleep on it; 0: the team ends */
    atomic_bool crowded; /* more members than cores: spinning would only keep others off */
    _Alignas(CACHE_LINE) futex_word door;
    _Alignas(CACHE_LINE) atomic_size_t claimed;
    _Alignas(CACHE_LINE) atomic_int sleepers;
    /* Only the caller reads and writes these. */
    _Alignas(CACHE_LINE) struct worker **worker; /* [made]: those of members 1, 2, ... */
    int made;
};

static _Thread_local struct team *team_own; /* of a caller */
static _Thread_local int asked = 1;         /* the size that was asked for */
static _Thread_local int self;
static _Thread_local bool inside; /* a loop: those within run on the thread alone */
static _Thread_local struct {
    void (*body)(void *arg);
    void *arg;
} between; /* iterations of a caller */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t team_end;
static bool keyless;

/* ---- waiting ---- */

static void futex_sleep(futex_word *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(futex_word *word, int most)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins while *word is `value`, for SPIN_MS at most. */
static void spin_while(const struct team *team, futex_word *word, uint32_t value)
{
    if (atomic_load_explicit(&team->crowded, memory_order_relaxed))
        return;
    double start = 0;
    for (unsigned i = 0; atomic_load_explicit(word, memory_order_relaxed) == value; i++) {
        pause_briefly();
        if (i % 64 != 63)
            continue;
        const double now = clock_ms();
        if (!(start > 0))
            start = now;
        else if (now - start > SPIN_MS)
            return;
    }
}

/* ---- a loop ---- */

static void run_iteration(threads_body *body, void *arg, size_t i)
{
    body(arg, i);
    if (between.body)
        between.body(between.arg);
}

static void run_share(struct team *team)
{
    if (team->all) {
        team->body(team->arg, (size_t)self);
        atomic_fetch_add(&team->claimed, 1);
        return;
    }
    const size_t n = team->n;
    size_t i;
    while ((i = atomic_fetch_add_explicit(&team->claimed, 1, memory_order_relaxed)) < n)
        run_iteration(team->body, team->arg, i);
}

/* The caller's part. `helpers` is how many workers there is something to do for. */
static void run_loop(struct team *team, size_t helpers)
{
    team->number++;
    atomic_store_explicit(&team->claimed, 0, memory_order_relaxed);
    atomic_store(&team->door, DOOR_OPEN);
    atomic_fetch_add(&team->generation, 1);
    if (atomic_load(&team->sleepers) > 0)
        futex_wake(&team->generation, (int)helpers);
    inside = true;
    run_share(team);
    if (team->all)
        while (atomic_load(&team->claimed) < team->n)
            sched_yield();
    inside = false;
    atomic_fetch_and(&team->door, ~DOOR_OPEN);
    uint32_t door;
    while (((door = atomic_load(&team->door)) & ~DOOR_AWAITED) != 0) {
        if (door & DOOR_AWAITED) {
            futex_sleep(&team->door, door);
        } else {
            spin_while(team, &team->door, door);
            atomic_compare_exchange_strong(&team->door, &door, door | DOOR_AWAITED);
        }
    }
}

/* Only members enter, and only while the door is open. */
static bool enter(struct team *team)
{
    uint32_t door = atomic_load(&team->door);
    while (door & DOOR_OPEN)
        if (atomic_compare_exchange_weak(&team->door, &door, door + 1))
            return true;
    return false;
}

static void leave(struct team *team)
{
    if (atomic_fetch_sub(&team->door, 1) == DOOR_AWAITED + 1)
        futex_wake(&team->door, 1);
}

void threads_each(size_t n, size_t work, threads_body *body, void *arg)
{
    struct team *team = team_own;
    const size_t size = (size_t)threads_now();
    if (size == 1 || n < 2 || work < WORTH_WAKING || inside) {
        for (size_t i = 0; i < n; i++)
            run_iteration(body, arg, i);
        return;
    }
    team->all = false;
    team->n = n;
    team->body = body;
    team->arg = arg;
    run_loop(team, size_min(n, size) - 1);
}

void threads_between(void (*body)(void *arg), void *arg)
{
    between.body = body;
    between.arg = arg;
}

void threads_all(threads_body *body, void *arg)
{
    struct team *team = team_own;
    const size_t size = (size_t)threads_now();
    if (size == 1 || inside) {
        body(arg, (size_t)self);
        return;
    }
    team->all = true;
    team->n = size;
    team->body = body;
    team->arg = arg;
    run_loop(team, size - 1);
}

/* ---- workers ---- */

/* Waits until the generation is no longer `seen`. */
static void await_generation(struct team *team, uint32_t seen)
{
    spin_while(team, &team->generation, seen);
    while (atomic_load(&team->generation) == seen) {
        /* The caller moves the generation, then looks for sleepers: one of both sees the other. */
        atomic_fetch_add(&team->sleepers, 1);
        futex_sleep(&team->generation, seen);
        atomic_fetch_sub(&team->sleepers, 1);
    }
}

static void *work(void *arg)
{
    const struct worker *worker = arg;
    struct team *team = worker->team;
    uint32_t seen = 0, done = 0, size;
    self = worker->self;
    inside = true;
    while ((size = atomic_load(&team->size)) != 0) {
        if ((uint32_t)self >= size) {
            futex_sleep(&team->size, size);
            continue;
        }
        await_generation(team, seen);
        seen = atomic_load(&team->generation);
        if (!enter(team))
            continue;
        if ((uint32_t)self < atomic_load(&team->size) && team->number != done) {
            done = team->number;
            run_share(team);
        }
        leave(team);
    }
    return NULL;
}

/* One more worker, its signals left to the other threads. False when it cannot be had. */
static bool add_worker(struct team *team)
{
    struct worker **list = realloc(team->worker, ((size_t)team->made + 1) * sizeof *list);
    if (!list)
        return false;
    team->worker = list;
    struct worker *worker = malloc(sizeof *worker);
    if (!worker)
        return false;
    *worker = (struct worker){.team = team, .self = team->made + 1};
    /* What comes of a worker's own doing: the program tidies up. */
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGPIPE};
    sigset_t every, before;
    sigfillset(&every);
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        sigdelset(&every, own[i]);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    const bool made = pthread_create(&worker->thread, NULL, work, worker) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!made) {
        free(worker);
        return false;
    }
    list[team->made++] = worker;
    return true;
}

/* Tells all workers, the sleeping too, how many members there are. */
static void resize(struct team *team, int size)
{
    atomic_store(&team->size, (uint32_t)size);
    atomic_fetch_add(&team->generation, 1);
    futex_wake(&team->size, MAX_TEAM);
    futex_wake(&team->generation, MAX_TEAM);
}

/* Ends a team; its workers are gone when this returns. */
static void free_team(void *arg)
{
    struct team *team = arg;
    resize(team, 0);
    for (int i = 0; i < team->made; i++) {
        pthread_join(team->worker[i]->thread, NULL);
        free(team->worker[i]);
    }
    free(team->worker);
    free(team);
    team_own = NULL;
}

static void make_key(void) { keyless = pthread_key_create(&team_end, free_team) != 0; }

/* The calling thread's team, made when it is first needed; NULL: out of memory. */
static struct team *get_team(void)
{
    if (team_own)
        return team_own;
    pthread_once(&once, make_key);
    struct team *team = keyless ? NULL : mem_zalloc(1, sizeof *team);
    if (!team)
        return NULL;
    atomic_store(&team->size, 1);
    pthread_setspecific(team_end, team);
    return team_own = team;
}

/* ---- the team's size ---- */

int threads_allowed(void)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) < 0)
        return 1;
    const int n = CPU_COUNT(&mask);
    return n > 0 ? n : 1;
}

void threads_set(int n)
{
    if (inside)
        return;
    struct team *team = get_team();
    const int asked_before = asked;
    asked = n = n < 1 ? 1 : n < MAX_TEAM ? n : MAX_TEAM;
    if (!team || n == asked_before)
        return;
    while (team->made < n - 1 && add_worker(team))
        ;
    const int size = n - 1 <= team->made ? n : team->made + 1;
    atomic_store(&team->crowded, size > threads_allowed());
    resize(team, size);
}

int threads_now(void)
{
    return team_own ? (int)atomic_load_explicit(&team_own->size, memory_order_relaxed) : 1;
}

int threads_most(void) { return asked; }

int threads_self(void) { return self; }
