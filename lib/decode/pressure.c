/* Memory pressure: measures what is left, and takes the steps of --kv-pressure. */
#include "decode/pressure.h"

#include <errno.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/file_head.h"
#include "base/mem.h"
#include "base/number.h"
#include "decode/loop.h"
#include "kv/offload/offload.h"
#include "quant/cache_types.h"

static const char *const step_names[N_STEPS] = {"offload", PRESSURE_TYPE, "refuse"};

/* ---- opening ---- */

static int parse_steps(struct pressure *p, const char *text, struct err *err)
{
    for (const char *at = text; at; at = *at ? at + 1 : NULL) {
        const size_t len = strcspn(at, ",");
        size_t s = 0;
        while (s < N_STEPS && (strlen(step_names[s]) != len || strncmp(at, step_names[s], len) != 0))
            s++;
        for (size_t i = 0; i < p->n_steps && s < N_STEPS; i++)
            if (p->step[i] == (enum pressure_step)s)
                return err_code(err, ERR_INVALID,
                                "--kv-pressure %s: %s is given twice, once is expected", text,
                                step_names[s]);
        if (s == N_STEPS)
            return err_code(err, ERR_INVALID,
                            "--kv-pressure %.80s: \"%.*s\" is no step: offload, %s and refuse are "
                            "expected, in the order wanted, with commas between them",
                            text, (int)size_min(len, 40), at, PRESSURE_TYPE);
        p->step[p->n_steps++] = (enum pressure_step)s;
        at += len;
    }
    return 0;
}

/* The bytes that the file has; false: none, with errno if it cannot be read, else 0. */
static bool read_limit(const char *path, size_t *bytes)
{
    char text[64];
    errno = 0;
    const size_t len = file_head(path, text, sizeof text - 1);
    const int reason = len ? 0 : errno;
    text[len] = 0;
    text[strcspn(text, "\n")] = 0;
    const bool is_number = parse_bytes(text, bytes);
    errno = reason;
    return is_number;
}

int pressure_open(struct pressure **out, const struct pressure_options *options, struct err *err)
{
    struct pressure *p = *out = mem_zalloc(1, sizeof *p);
    if (!p)
        return err_no_memory(err, "memory pressure");
    p->options = *options;
    p->log.out.fd = -1;
    int rc = options->steps ? parse_steps(p, options->steps, err) : 0;
    if (rc == 0 && options->limit && !read_limit(options->limit, &p->limit))
        rc =
            errno
                ? err_errno(err, "--kv-pressure-limit %s: cannot open", options->limit)
                : err_set(err,
                          "--kv-pressure-limit %s: a file with a number of bytes, as 512M, is expected",
                          options->limit);
    if (rc == 0)
        rc = pressure_log_open(&p->log, options->log, options->replay, err);
    if (rc == 0)
        return 0;
    pressure_close(p);
    *out = NULL;
    return -1;
}

int pressure_end(struct pressure *p, struct err *err)
{
    return p ? pressure_log_commit(&p->log, err) : 0;
}

size_t pressure_to_replay(const struct pressure *p) { return p ? p->log.n_events : 0; }

void pressure_close(struct pressure *p)
{
    if (!p)
        return;
    pressure_log_close(&p->log);
    free(p);
}

/* True if the strategy takes up a sequence that was computed again, or converted. */
static bool allows_changes(const struct step_strategy *s)
{
    return !s || (s->width == 1 && !s->drain && !s->draft_session && !s->prefilled);
}

/* Whether the cache has the means for a step; else *err says why. */
static int prepare_step(struct pressure *p, struct session *session,
                        const struct step_strategy *strategy, enum pressure_step step, struct err *err)
{
    struct kv *kv = session_kv(session);
    enum dtype type;
    p->suspends = p->suspends || step == STEP_REFUSE;
    if (step == STEP_OFFLOAD && !kv_offload(kv).ram)
        return err_set(err, "cache policy %s keeps all heads in memory, only headwise offloads some",
                       kv_setup(kv)->policy);
    if (step != STEP_CONVERT)
        return 0;
    if (!allows_changes(strategy))
        return err_set(err, "%s decoding with a draft model or several processes keeps its cache",
                       strategy->name);
    if (!cache_type_find(PRESSURE_TYPE, &type) || kv_open_smaller(kv, type, err) < 0)
        return -1;
    p->converts = true;
    p->smaller = (double)kv_shape_row_bytes(kv_smaller_shape(kv)) /
                 (double)kv_shape_row_bytes(&kv_setup(kv)->shape);
    return 0;
}

int pressure_bind(struct pressure *p, struct session *session, const struct step_strategy *strategy,
                  struct buf *notes, struct err *err)
{
    size_t n = 0;
    struct err why;
    if (session_options(session)->leader)
        return err_set(err, "--kv-pressure is for a single process: leave mpirun out");
    if (p->log.n_events && prepare_step(p, session, strategy, STEP_CONVERT, err) < 0)
        return err_prefix(err, "%s", p->options.replay);
    for (size_t i = 0; i < p->n_steps; i++) {
        if (prepare_step(p, session, strategy, p->step[i], &why) == 0)
            p->step[n++] = p->step[i];
        else if (buf_addf(notes, err, "--kv-pressure %s is not possible: %s\n", step_names[p->step[i]],
                          why.text) < 0)
            return -1;
    }
    p->n_steps = n;
    if (!p->options.limit && n)
        p->strain = cgroup_memory_strain("");
    return 0;
}

/* ---- measuring ---- */

static long long measure_room(struct pressure *p)
{
    enum { SPARE = 96 << 20 }; /* for what else allocates */
    if (p->options.limit) {
        (void)read_limit(p->options.limit,
                         &p->limit); /* else the last one stays, as while it is written */
        return (long long)size_min(p->limit, SIZE_MAX / 4) - (long long)p->used;
    }
    const size_t left = vm_available(), strain = cgroup_memory_strain("");
    const long long room = left ? (long long)size_min(left, SIZE_MAX / 4) : LLONG_MAX / 4;
    p->margin = size_min(SPARE, left / 8);
    if (strain == p->strain)
        return room;
    p->strain = strain;
    if (p->measured_ms < p->calm_ms) /* it was reacted to lately */
        return room;
    return room < 0 ? room : -(long long)(p->used / 8);
}

/* Bytes left, measured now and then; meanwhile only the cache's own memory counts. */
static long long room_of(struct pressure *p, const struct kv *kv)
{
    enum { EVERY_MS = 20, CALM_MS = 1000 };
    const double now = clock_ms();
    const size_t used = kv_stats(kv).resident_bytes, strain = p->strain;
    if (p->measured_ms == 0 || now - p->measured_ms >= EVERY_MS) {
        p->used = used;
        p->room = measure_room(p);
        p->measured_ms = now;
        if (strain != p->strain)
            p->calm_ms = now + CALM_MS;
    }
    return p->room + (long long)p->used - (long long)used;
}

/* Bytes in memory of the KV entries of a sequence of `rows` rows in this cache. */
static size_t entries_at(const struct kv *kv, const struct kv_footprint *one, size_t rows)
{
    return kv_offload(kv).ram ? offload_floor(kv, rows, 1) : one->total;
}

/* The same with the most that its recurrent states may have; *transient: more while it grows to that length. */
static size_t bytes_at(const struct kv *kv, size_t rows, size_t *transient)
{
    const struct kv_footprint one = kv_footprint(kv, 0, rows, 1);
    *transient = one.transient;
    return size_plus(one.state, entries_at(kv, &one, rows));
}

static size_t entries_of(const struct loop *loop, const struct slot *slot)
{
    const struct kv *kv = session_kv(loop->session), *own = kv_of_seq(kv, slot->seq);
    const size_t rows = kv_storage_rows(kv, slot->seq);
    const struct kv_footprint one = kv_footprint(own, 0, rows, 1);
    return entries_at(own, &one, rows);
}

/* Bytes that a sequence has now. Its states come with its first pass, and each pass writes another one. */
static size_t bytes_of(const struct loop *loop, const struct slot *slot)
{
    return size_plus(entries_of(loop, slot), kv_state_held_bytes(session_kv(loop->session), slot->seq));
}

/* Rows of the slot's sequence after a pass, and during the passes until a conversion, if there may be one. */
static size_t rows_soon(const struct loop *loop, const struct slot *slot)
{
    const struct session_options *o = session_options(loop->session);
    const size_t processed = loop_processed(loop, slot),
                 prompt = slot->n_prompt - size_min(slot->n_prompt, processed),
                 step = prompt ? size_min(prompt, o->chunk) : size_max(o->rows / o->batch, 1),
                 ahead = o->pressure->converts ? 2 * TILE_ROWS : 0;
    return size_min(session_length(loop->session, slot->seq) + step + ahead, o->context);
}

/* Bytes that the slot's next pass allocates. */
static size_t growth_of(const struct loop *loop, const struct slot *slot, size_t *transient)
{
    const struct kv *kv = session_kv(loop->session);
    const size_t now = bytes_of(loop, slot),
                 soon = bytes_at(kv_of_seq(kv, slot->seq), rows_soon(loop, slot), transient);
    *transient = soon > now ? *transient : 0;
    return soon > now ? soon - now : 0;
}

/* Bytes that the conversion of a slot's sequence frees: of its KV entries. */
static size_t savings_of(const struct loop *loop, const struct slot *slot)
{
    const size_t bytes = entries_of(loop, slot);
    return bytes - (size_t)((double)bytes * pressure_of(loop)->smaller);
}

/* Bytes that are missing for the next step; negative: left over. Conversions that are due soon count as done. */
static long long shortage(const struct loop *loop, struct pressure *p)
{
    size_t need = p->margin, transient = 0, saved = 0;
    for (const struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++) {
        size_t own;
        if (!slot->busy)
            continue;
        need = size_plus(need, growth_of(loop, slot, &own));
        transient = size_max(transient, own);
        if (p->n_steps && pressure_left(loop, slot) <= TILE_ROWS)
            saved += savings_of(loop, slot);
    }
    return (long long)size_min(size_plus(need, transient), SIZE_MAX / 4) - (long long)saved -
           room_of(p, session_kv(loop->session));
}

/* ---- converting ---- */

static int convert_due(struct loop *loop, struct err *err)
{
    for (struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++)
        if (slot->busy && pressure_convert(loop, slot, err) < 0)
            return -1;
    return 0;
}

/* True if the slot's sequence is in a state that can be reached again by computing its tokens. */
static bool is_plain(const struct loop *loop, const struct slot *slot)
{
    const size_t processed = loop_processed(loop, slot);
    return slot->busy && allows_changes(loop->strategy) &&
           !session_has_foreign(loop->session, slot->seq) &&
           (processed + 1 == slot->ids->len || processed < slot->n_prompt);
}

/* Lets the largest sequences be converted at their next block boundaries; returns what is still missing. */
static long long convert_largest(struct loop *loop, long long missing)
{
    while (missing > 0) {
        struct slot *best = NULL;
        for (struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++)
            if (is_plain(loop, slot) && slot->convert_at == SIZE_MAX &&
                slot->converted_at == SIZE_MAX && session_length(loop->session, slot->seq) &&
                (!best || bytes_of(loop, slot) > bytes_of(loop, best)))
                best = slot;
        if (!best)
            return missing;
        best->convert_at =
            best->n_discarded + round_up(session_length(loop->session, best->seq), TILE_ROWS);
        missing -= (long long)savings_of(loop, best);
    }
    return missing;
}

/* ---- suspending ---- */

static int suspend(struct loop *loop, struct slot *slot, struct err *err)
{
    struct pressure *p = pressure_of(loop);
    if (pressure_log_add(&p->log, "suspend", slot->number, loop_processed(loop, slot), err) < 0)
        return -1;
    prefix_store_unclaim(loop, slot);
    if (slot->converted_at != SIZE_MAX)
        slot->convert_at = slot->converted_at;
    slot->resumes_prompt = loop_processed(loop, slot) < slot->n_prompt;
    session_clear(loop->session, slot->seq);
    slot->footprint = (struct loop_footprints){0};
    slot->busy = false;
    slot->suspended = true;
    loop->stats->suspended++;
    return 0;
}

static size_t n_suspended(const struct loop *loop)
{
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        n += loop->slot[i].suspended;
    return n;
}

/* Suspends requests, the latest first, but not the last one; *missing is what is still missing. */
static int suspend_latest(struct loop *loop, long long *missing, struct err *err)
{
    while (*missing > 0 && loop_in_flight(loop) > 1) {
        struct slot *latest = NULL;
        size_t transient;
        for (struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++)
            if (is_plain(loop, slot) && (!latest || slot->number > latest->number))
                latest = slot;
        if (!latest)
            return 0;
        *missing -= (long long)(bytes_of(loop, latest) + growth_of(loop, latest, &transient));
        if (suspend(loop, latest, err) < 0)
            return -1;
    }
    return 0;
}

/* Drops KV entries that free slots retain for later requests, the first retained first. */
static bool evict_retained(struct loop *loop)
{
    struct slot *first = NULL;
    for (struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++)
        if (!slot->busy && slot->cached.len && (!first || slot->retained_at < first->retained_at))
            first = slot;
    if (!first)
        return false;
    prefix_cache_evict(loop, first);
    kv_give_back(session_kv(loop->session));
    return true;
}

/* True if more than `need` bytes are left, if need be without entries that are retained. */
static bool make_room(struct loop *loop, long long need)
{
    while (-shortage(loop, pressure_of(loop)) <= need)
        if (!evict_retained(loop))
            return false;
    return true;
}

static struct slot *first_suspended(const struct loop *loop)
{
    struct slot *first = NULL;
    for (struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++)
        if (slot->suspended && (!first || slot->number < first->number))
            first = slot;
    return first;
}

/* Ends suspended requests that were cancelled. */
static int end_cancelled(struct loop *loop, struct err *err)
{
    for (struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++) {
        if (!slot->suspended || !loop_is_cancelled(slot->request))
            continue;
        slot->suspended = false;
        slot->busy = true;
        if (loop_finish(loop, slot, FINISHED_CANCELLED, NULL, err) < 0)
            return -1;
    }
    return 0;
}

static int resume(struct loop *loop, struct slot *slot, struct err *err)
{
    slot->suspended = false;
    slot->busy = true;
    if (!slot->resumes_prompt)
        return loop_compute_again(loop, slot, err);
    session_begin(loop->session, slot->seq, slot->n_prompt, loop_planned(loop, slot));
    prefix_store_start(loop, slot);
    prefix_cache_mark(loop, slot);
    return 0;
}

/* Bytes that a suspended request needs to go on, and a quarter more, so that it is not suspended again soon. */
static long long needs_to_resume(const struct loop *loop, const struct slot *slot)
{
    size_t transient;
    const size_t context = session_options(loop->session)->context, ahead = 4 * TILE_ROWS,
                 rows = size_min(slot->ids->len - slot->n_discarded + ahead, context),
                 bytes = bytes_at(session_kv(loop->session), rows, &transient);
    return (long long)size_plus(size_plus(bytes, bytes / 4), transient);
}

/* Resumes suspended requests, the first one first, as far as memory is left; one in any case if none is in flight. */
static int resume_first(struct loop *loop, struct pressure *p, struct err *err)
{
    for (struct slot *slot; (slot = first_suspended(loop));) {
        const bool others = loop_in_flight(loop) > 0;
        if (others && clock_ms() < p->calm_ms)
            return 0;
        if (!make_room(loop, needs_to_resume(loop, slot)) && others)
            return 0;
        if (resume(loop, slot, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- between steps ---- */

/* Lowers or raises the memory of a cache that offloads heads; returns what is still missing. */
static long long limit_offload(struct loop *loop, long long missing)
{
    struct kv *kv = session_kv(loop->session);
    const long long used = (long long)kv_stats(kv).resident_bytes, wanted = used - missing;
    size_t floor = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy)
            floor = size_plus(floor, bytes_of(loop, &loop->slot[i]));
    const long long least = (long long)size_min(floor, SIZE_MAX / 4),
                    next = wanted > least ? wanted : least;
    offload_limit(kv, (size_t)next);
    return missing - (used > next ? used - next : 0);
}

static int take_step(struct loop *loop, enum pressure_step step, long long *missing, struct err *err)
{
    switch (step) {
    case STEP_OFFLOAD: *missing = limit_offload(loop, *missing); return 0;
    case STEP_CONVERT: *missing = convert_largest(loop, *missing); return convert_due(loop, err);
    case STEP_REFUSE: return suspend_latest(loop, missing, err);
    case N_STEPS: break;
    }
    return 0;
}

static bool any_cancelled(const struct loop *loop)
{
    for (const struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++)
        if ((slot->busy || slot->suspended) && loop_is_cancelled(slot->request))
            return true;
    return false;
}

/* The last request in flight waits for memory that others hold, in all for a minute at most until there is enough. */
static void wait_for_memory(struct loop *loop, struct pressure *p)
{
    enum { MOST_MS = 60000, PAUSE_NS = 20000000 };
    if (p->waits_until_ms == 0)
        p->waits_until_ms = clock_ms() + MOST_MS;
    while (!p->options.limit && p->suspends && loop_in_flight(loop) == 1 &&
           shortage(loop, p) > (long long)p->margin && !any_cancelled(loop) &&
           !__atomic_load_n(loop->interrupted, __ATOMIC_RELAXED) && clock_ms() < p->waits_until_ms)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

int pressure_relieve(struct loop *loop, struct err *err)
{
    struct pressure *p = pressure_of(loop);
    if (convert_due(loop, err) < 0)
        return -1;
    if (!p->n_steps)
        return 0;
    long long missing = shortage(loop, p);
    if (missing > 0) {
        kv_give_back(session_kv(loop->session));
        while ((missing = shortage(loop, p)) > 0 && evict_retained(loop))
            continue;
    }
    for (size_t i = 0; i < p->n_steps && missing > 0; i++)
        if (take_step(loop, p->step[i], &missing, err) < 0)
            return -1;
    if (missing > 0) {
        wait_for_memory(loop, p);
    } else {
        p->waits_until_ms = 0;
        if (p->step[0] == STEP_OFFLOAD || (p->n_steps > 1 && p->step[1] == STEP_OFFLOAD))
            limit_offload(loop, missing);
    }
    return end_cancelled(loop, err) < 0 ? -1 : resume_first(loop, p, err);
}

bool pressure_admits(struct loop *loop, const struct gen_request *request)
{
    struct pressure *p = pressure_of(loop);
    size_t transient;
    if (!p || !p->suspends || (!loop_in_flight(loop) && !n_suspended(loop)))
        return true;
    if (n_suspended(loop) || clock_ms() < p->calm_ms)
        return false;
    const struct session_options *o = session_options(loop->session);
    const size_t rows = size_min(request->ids->len + 4 * TILE_ROWS, o->context),
                 bytes = bytes_at(session_kv(loop->session), rows, &transient);
    const long long need = (long long)size_times(size_plus(bytes, transient), loop->strategy->width);
    return make_room(loop, need);
}
