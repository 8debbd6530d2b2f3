/* Thread teams. A worker joins a parallel loop only while the loop's gate is open:
 *
 *   caller                                   worker
 *   describes the loop                       spins, then sleeps, until `generation` changes
 *   opens the gate, increments `generation`  enters: increments the gate's count, if it is open
 *   claims iterations and runs them          claims iterations and runs them
 *   closes the gate                          leaves: decrements the count
 *   waits until the count is 0
 *
 * The description of the loop only changes while the gate is closed and its count is 0, so workers
 * inside may read it. A late worker finds the gate closed, or open for a later loop. */
#include "base/threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/mem.h"

int thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg)
{
    enum { STACK = 8 << 20 };
    /* not blocked, as the thread itself causes them: the program's handler must run to clean up */
    static const int synchronous[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGPIPE};
    sigset_t others, before;
    pthread_attr_t attr;
    int error = pthread_attr_init(&attr);
    if (error)
        return error;
    sigfillset(&others);
    for (size_t i = 0; i < ARRAY_LEN(synchronous); i++)
        sigdelset(&others, synchronous[i]);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    error = pthread_attr_setstacksize(&attr, STACK);
    if (!error)
        error = pthread_create(thread, &attr, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error;
}

/* Loops of less estimated work (about 10 us) run on the calling thread alone, since even a team
 * that is awake needs about 1 us to start. */
enum { WORTH_WAKING = 1 << 17 };
enum { CACHE_LINE = 64, MAX_TEAM = 1 << 16 };

/* How long a thread spins before it sleeps: longer than the gaps between the loops of a forward
 * pass, too short to slow down other processes. */
#define SPIN_MS 0.05

/* Claims of a member in a loop of many iterations: a claim takes as long as a cache line needs between cores, which
 * is more than the conversion of a row takes. */
enum { CLAIMS = 32 };

/* Bits of the gate word; the bits below count the workers inside the loop. */
#define GATE_OPEN    (1u << 31)
#define GATE_AWAITED (1u << 30) /* the caller sleeps until the last worker has left */

typedef _Atomic uint32_t futex_word;

struct team_worker {
    struct team *team;
    pthread_t thread;
    int self;
};

struct team {
    /* The current loop. */
    _Alignas(CACHE_LINE) futex_word generation;
    uint32_t number; /* number of the loop, so that a worker joins it only once */
    bool all;        /* every member calls the body once, instead of claiming iterations */
    size_t n;
    size_t claim; /* iterations that a member claims at a time */
    threads_body *body;
    void *arg;
    futex_word size;     /* number of members; workers above it sleep on this word; 0: all exit */
    atomic_bool crowded; /* more members than cores: threads do not spin */
    _Alignas(CACHE_LINE) futex_word gate;
    _Alignas(CACHE_LINE) atomic_size_t claimed;
    _Alignas(CACHE_LINE) atomic_int sleepers;
    /* Used by the caller only. */
    _Alignas(CACHE_LINE) struct team_worker **worker; /* [created]: members 1, 2, ... */
    int created;
};

static _Thread_local struct team *own_team; /* the team of which this thread is the caller */
static _Thread_local int requested = 1;     /* requested team size */
static _Thread_local int self;
static _Thread_local int kept_allowed; /* of threads_keep_allowed(); 0: not called */
static _Thread_local double waited_ms; /* at the ends of loops */
static _Thread_local bool in_loop;     /* nested loops run on the calling thread alone */
static _Thread_local struct {
    void (*body)(void *arg);
    void *arg;
} idle_hook;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t team_key;
static bool no_key;

/* ---- waiting ---- */

static void futex_sleep(futex_word *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(futex_word *word, int max)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, max, NULL, NULL, 0);
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins while *word is `value`, for SPIN_MS at most; not at all in a crowded team. */
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

/* ---- loops ---- */

void threads_idle(void)
{
    if (idle_hook.body)
        idle_hook.body(idle_hook.arg);
}

static void run_iteration(threads_body *body, void *arg, size_t i)
{
    body(arg, i);
    threads_idle();
}

static void run_iterations(struct team *team)
{
    if (team->all) {
        team->body(team->arg, (size_t)self);
        atomic_fetch_add(&team->claimed, 1);
        return;
    }
    const size_t n = team->n;
    size_t from;
    while ((from = atomic_fetch_add_explicit(&team->claimed, team->claim, memory_order_relaxed)) < n)
        for (size_t i = from; i < size_min(from + team->claim, n); i++)
            run_iteration(team->body, team->arg, i);
}

/* Waits until no worker is inside the loop, whose gate is closed. */
static void await_workers(struct team *team)
{
    const double start = clock_ms();
    uint32_t gate;
    while (((gate = atomic_load(&team->gate)) & ~GATE_AWAITED) != 0) {
        if (gate & GATE_AWAITED) {
            futex_sleep(&team->gate, gate);
        } else {
            spin_while(team, &team->gate, gate);
            atomic_compare_exchange_strong(&team->gate, &gate, gate | GATE_AWAITED);
        }
    }
    waited_ms += clock_ms() - start;
}

/* Publishes a loop, wakes up to `helpers` sleeping workers for it, claims iterations like them, and
 * returns when all iterations are done and no worker is inside. */
static void run_loop(struct team *team, bool all, size_t n, threads_body *body, void *arg,
                     size_t helpers)
{
    team->all = all;
    team->n = n;
    team->claim = size_max(1, n / (CLAIMS * (helpers + 1)));
    team->body = body;
    team->arg = arg;
    team->number++;
    atomic_store_explicit(&team->claimed, 0, memory_order_relaxed);
    atomic_store(&team->gate, GATE_OPEN);
    atomic_fetch_add(&team->generation, 1);
    if (atomic_load(&team->sleepers) > 0)
        futex_wake(&team->generation, (int)helpers);
    in_loop = true;
    run_iterations(team);
    if (team->all)
        while (atomic_load(&team->claimed) < team->n)
            sched_yield();
    in_loop = false;
    if (atomic_fetch_and(&team->gate, ~GATE_OPEN) != GATE_OPEN)
        await_workers(team);
}

static bool enter(struct team *team)
{
    uint32_t gate = atomic_load(&team->gate);
    while (gate & GATE_OPEN)
        if (atomic_compare_exchange_weak(&team->gate, &gate, gate + 1))
            return true;
    return false;
}

static void leave(struct team *team)
{
    if (atomic_fetch_sub(&team->gate, 1) == GATE_AWAITED + 1)
        futex_wake(&team->gate, 1);
}

void parallel_for(size_t n, size_t work, threads_body *body, void *arg)
{
    const size_t size = (size_t)threads_now();
    if (size == 1 || n < 2 || work < WORTH_WAKING || in_loop) {
        for (size_t i = 0; i < n; i++)
            run_iteration(body, arg, i);
        return;
    }
    run_loop(own_team, false, n, body, arg, size_min(n, size) - 1);
}

double threads_waited_ms(void) { return waited_ms; }

void threads_idle_hook(void (*body)(void *arg), void *arg)
{
    idle_hook.body = body;
    idle_hook.arg = arg;
}

void threads_all(threads_body *body, void *arg)
{
    const size_t size = (size_t)threads_now();
    if (size == 1 || in_loop)
        body(arg, (size_t)self);
    else
        run_loop(own_team, true, size, body, arg, size - 1);
}

/* ---- workers ---- */

/* Waits for a new loop or team size: until team->generation is no longer `seen`. */
static void await_generation(struct team *team, uint32_t seen)
{
    spin_while(team, &team->generation, seen);
    while (atomic_load(&team->generation) == seen) {
        /* The caller changes `generation`, then reads `sleepers`. A worker first increments
         * `sleepers`, then compares `generation` (in the futex call), so at least one of them sees
         * the other's change. */
        atomic_fetch_add(&team->sleepers, 1);
        futex_sleep(&team->generation, seen);
        atomic_fetch_sub(&team->sleepers, 1);
    }
}

static void *work(void *arg)
{
    const struct team_worker *worker = arg;
    struct team *team = worker->team;
    uint32_t seen = 0, done = 0, size;
    self = worker->self;
    in_loop = true;
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
            run_iterations(team);
        }
        leave(team);
    }
    return NULL;
}

/* Creates a worker thread, with asynchronous signals blocked so that other threads handle them.
 * False on failure. */
static bool add_worker(struct team *team)
{
    struct team_worker **list = realloc(team->worker, ((size_t)team->created + 1) * sizeof *list);
    if (!list)
        return false;
    team->worker = list;
    struct team_worker *worker = malloc(sizeof *worker);
    if (!worker)
        return false;
    *worker = (struct team_worker){.team = team, .self = team->created + 1};
    if (thread_start(&worker->thread, work, worker) != 0) {
        free(worker);
        return false;
    }
    list[team->created++] = worker;
    return true;
}

/* Sets the number of members and wakes all workers. */
static void resize(struct team *team, int size)
{
    atomic_store(&team->size, (uint32_t)size);
    atomic_fetch_add(&team->generation, 1);
    futex_wake(&team->size, MAX_TEAM);
    futex_wake(&team->generation, MAX_TEAM);
}

/* Ends a team and joins its workers. */
static void team_end(void *arg)
{
    struct team *team = arg;
    resize(team, 0);
    for (int i = 0; i < team->created; i++) {
        pthread_join(team->worker[i]->thread, NULL);
        free(team->worker[i]);
    }
    free(team->worker);
    free(team);
    own_team = NULL;
}

static void make_key(void) { no_key = pthread_key_create(&team_key, team_end) != 0; }

/* The calling thread's team, created on first use; NULL: out of memory. */
static struct team *get_team(void)
{
    if (own_team)
        return own_team;
    pthread_once(&once, make_key);
    struct team *team = no_key ? NULL : mem_zalloc(1, sizeof *team);
    if (!team)
        return NULL;
    atomic_store(&team->size, 1);
    pthread_setspecific(team_key, team);
    return own_team = team;
}

/* ---- the team's size ---- */

static pthread_once_t quota_once = PTHREAD_ONCE_INIT;
static size_t quota; /* of control groups; reading it takes longer than a step of a small model */

static void measure_quota(void) { quota = cgroup_cpus(""); }

int threads_allowed(void)
{
    cpu_set_t mask;
    if (kept_allowed)
        return kept_allowed;
    if (sched_getaffinity(0, sizeof mask, &mask) < 0)
        return 1;
    pthread_once(&quota_once, measure_quota);
    const size_t n = size_min((size_t)CPU_COUNT(&mask), quota);
    return n > 0 ? (int)n : 1;
}

void threads_keep_allowed(void) { kept_allowed = threads_allowed(); }

void threads_set(int n)
{
    if (in_loop)
        return;
    struct team *team = get_team();
    const int before = requested;
    requested = n = n < 1 ? 1 : n < MAX_TEAM ? n : MAX_TEAM;
    if (!team || n == before)
        return;
    while (team->created < n - 1 && add_worker(team))
        ;
    const int size = n - 1 <= team->created ? n : team->created + 1;
    atomic_store(&team->crowded, size > threads_allowed());
    resize(team, size);
}

int threads_now(void)
{
    return own_team ? (int)atomic_load_explicit(&own_team->size, memory_order_relaxed) : 1;
}

int threads_max(void) { return requested; }

int threads_self(void) { return self; }
