/* The memory of the device: blocks of shared virtual memory, which kernels find by their addresses. Only commands read and
 * write it. */
#include "opencl/cl_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "cpu/cpu_memory.h"
#include "opencl/opencl.h"
#include "quant/kv_entries.h"

static struct cl_kernel *copy_ranges, *store_rows, *quantize_rows;
_Static_assert(CL_STORE_ELEMENTS == MEMORY_STORE_ELEMENTS, "elements of a row that is converted");
static cl_address overflowed; /* a flag that store_rows sets */

static struct {
    atomic_uint_least64_t copied_bytes, zeroed_bytes, allocations, frees;
} counts;

struct opencl_counts opencl_counts(void)
{
    return (struct opencl_counts){counts.copied_bytes, counts.zeroed_bytes, counts.allocations,
                                  counts.frees};
}

int cl_memory_open(struct err *err)
{
    static const uint32_t zero;
    if (cl_kernel_open(&copy_ranges, "rows.cl", "copy_ranges", "", err) < 0 ||
        cl_kernel_open(&store_rows, "rows.cl", "store_rows", "", err) < 0 ||
        cl_kernel_open(&quantize_rows, "rows.cl", "quantize_rows", "", err) < 0)
        return -1;
    cl_enter();
    if (!overflowed && (overflowed = cl_alloc(sizeof zero)))
        cl_write(overflowed, &zero, sizeof zero);
    cl_leave();
    return overflowed ? 0 : err_no_memory(err, "a flag on the device");
}

/* ---- blocks ---- */

static struct device_addr alloc(enum vm_alloc how, size_t bytes)
{
    (void)how;
    counts.allocations++;
    return cl_addr(cl_alloc(bytes));
}

static void free_block(enum vm_alloc how, struct device_addr block, size_t bytes)
{
    (void)how;
    (void)bytes;
    counts.frees += !addr_is_null(block);
    cl_free(block.device_address);
}

/* The device has no address space without memory: all of it is taken at once. */
static struct device_addr reserve(enum vm_alloc how, size_t bytes)
{
    const struct device_addr block = alloc(how, bytes);
    if (!addr_is_null(block))
        cl_zero(block.device_address, bytes);
    return block;
}

static void release(struct device_addr block, size_t bytes) { free_block(VM_MMAP, block, bytes); }

static bool commit(struct device_addr from, size_t bytes)
{
    (void)from;
    (void)bytes;
    return true;
}

static void drop(struct device_addr from, size_t bytes)
{
    const size_t page = 4096, first = round_up(from.device_address, page),
                 end = (from.device_address + bytes) / page * page;
    if (first < end)
        cl_zero(first, end - first);
}

/* ---- weights ---- */

/* Memory of the process and its copies, found again by address and size. */
static struct {
    pthread_mutex_t lock;
    struct adopted_memory {
        const void *memory;
        size_t bytes, users;
        struct device_addr copy;
    } * list;
    size_t n, cap;
} adopted = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The index of the copy of such memory; adopted.n: there is none. */
static size_t find_adopted(const void *memory, size_t bytes)
{
    size_t i = 0;
    while (i < adopted.n && (adopted.list[i].memory != memory || adopted.list[i].bytes != bytes))
        i++;
    return i;
}

static struct device_addr adopt(const void *memory, size_t bytes)
{
    struct device_addr at = {0};
    struct err ignored;
    pthread_mutex_lock(&adopted.lock);
    const size_t i = find_adopted(memory, bytes);
    if (i < adopted.n) {
        adopted.list[i].users++;
        at = adopted.list[i].copy;
    } else if (mem_grow(&adopted.list, &adopted.cap, adopted.n, sizeof *adopted.list, &ignored) == 0 &&
               (at = cl_addr(cl_alloc(bytes))).device_address) {
        cl_write(at.device_address, memory, bytes);
        adopted.list[adopted.n++] = (struct adopted_memory){memory, bytes, 1, at};
    }
    pthread_mutex_unlock(&adopted.lock);
    return at;
}

static void disown(struct device_addr block, size_t bytes)
{
    (void)bytes;
    pthread_mutex_lock(&adopted.lock);
    for (size_t i = 0; i < adopted.n; i++) {
        if (!addr_equal(adopted.list[i].copy, block) || --adopted.list[i].users)
            continue;
        cl_free(block.device_address);
        adopted.list[i] = adopted.list[--adopted.n];
        break;
    }
    pthread_mutex_unlock(&adopted.lock);
}

/* ---- copies ---- */

static void read_bytes(void *to, struct device_addr from, size_t bytes)
{
    cl_read(to, from.device_address, bytes);
}

static void write_bytes(struct device_addr to, const void *from, size_t bytes)
{
    cl_write(to.device_address, from, bytes);
}

/* A range that overlaps with where it goes: through a block of its own. */
static void move_range(const struct memory_copy *c)
{
    const cl_address between = cl_alloc(c->bytes);
    if (!between) {
        cl_fail_memory();
        return;
    }
    cl_copy_block(between, c->from.device_address, c->bytes);
    cl_copy_block(c->to.device_address, between, c->bytes);
    cl_free(between);
    cl_zero(c->to.device_address + c->bytes, c->zeros);
}

static bool overlaps(const struct memory_copy *c)
{
    const uintptr_t to = c->to.device_address, from = c->from.device_address;
    return c->bytes && to < from + c->bytes && from < to + c->bytes;
}

/* Starts a kernel that copies list[n]. */
static void copy_list(const struct cl_copy *list, size_t n, size_t most)
{
    enum { PART = 1 << 14, MOST_GROUPS = 1024 };
    if (!n)
        return;
    uint64_t all = 0;
    for (size_t i = 0; i < n; i++)
        all |= list[i].to | list[i].from | list[i].bytes | list[i].zeros;
    cl_stage_room(round_up(n * sizeof *list, CL_STAGE_ALIGN));
    const struct cl_list_args args = {.list = cl_stage(list, n * sizeof *list),
                                      .n = (cl_number)n,
                                      .unit = all % 16 == 0  ? 16
                                              : all % 4 == 0 ? 4
                                                             : 1};
    if (args.list)
        cl_launch(copy_ranges, &args, sizeof args,
                  (size_t[]){size_min(div_up(most, PART), MOST_GROUPS), n, 1},
                  (size_t[]){CL_LANES, 1, 1});
}

static void copy(const struct memory_copy *list, size_t n)
{
    enum { MOST = 1024 };
    struct cl_copy some[MOST];
    size_t many = 0, most = 0;
    cl_enter();
    for (size_t i = 0; i < n; i++) {
        const struct memory_copy *c = &list[i];
        counts.copied_bytes += c->bytes;
        counts.zeroed_bytes += c->zeros;
        if (overlaps(c)) {
            if (c->to.device_address != c->from.device_address)
                move_range(c);
            else
                cl_zero(c->to.device_address + c->bytes, c->zeros);
            continue;
        }
        some[many++] =
            (struct cl_copy){c->to.device_address, c->from.device_address, c->bytes, c->zeros};
        most = size_max(most, size_max(c->bytes, c->zeros));
        if (many == MOST) {
            copy_list(some, many, most);
            many = most = 0;
        }
    }
    copy_list(some, many, most);
    cl_leave();
}

/* ---- KV entries ---- */

int cl_type_of(enum dtype type)
{
    if (type == DTYPE_KV8)
        return CL_Q8_TURN;
    switch (type) {
    case DTYPE_F32: return CL_F32;
    case DTYPE_BF16: return CL_BF16;
    case DTYPE_F16: return CL_F16;
    case DTYPE_Q8_CHANNEL: return CL_Q8;
    default: return -1;
    }
}

/* A conversion that no kernel knows, as of the types of a snapshot: the CPU converts copies. */
static bool store_on_host(const struct memory_store *s)
{
    const size_t from_bytes = s->from_stride * (s->rows - 1) + dtype_row_bytes(s->from_type, s->d),
                 to_bytes = dtype_row_bytes(s->type, s->d);
    AUTO(free_auto) char *from = mem_alloc(from_bytes, 1);
    AUTO(free_auto) char *to = mem_alloc(s->rows, to_bytes);
    if (!from || !to) {
        cl_fail_memory();
        return true;
    }
    read_bytes(from, s->from, from_bytes);
    struct memory_store own = *s;
    own.from = cpu_addr(from);
    own.to = cpu_addr(to);
    own.to_stride = to_bytes;
    own.n_queries = 0;
    const bool fits = cpu_memory.store(&own, 1);
    for (size_t i = 0; i < s->rows; i++)
        write_bytes(addr_add(s->to, i * s->to_stride), to + i * to_bytes, to_bytes);
    return fits;
}

/* A conversion by a kernel; false: it knows none. Rows of one type are bytes or words. */
static bool store_of(const struct memory_store *s, struct cl_store *to)
{
    const int type = cl_type_of(s->type), from_type = cl_type_of(s->from_type);
    const size_t bytes = dtype_row_bytes(s->type, s->d);
    *to = (struct cl_store){s->to.device_address,    s->from.device_address,   (cl_number)type,
                            (cl_number)from_type,    (cl_number)s->rows,       (cl_number)s->d,
                            (cl_number)s->to_stride, (cl_number)s->from_stride};
    if (s->type == s->from_type && bytes % 4 == 0 && bytes / 4 <= MEMORY_STORE_ELEMENTS) {
        to->type = to->from_type = CL_F32;
        to->d = (cl_number)(bytes / 4);
        return !s->ranged;
    }
    return type >= 0 && from_type >= 0 && from_type < CL_Q8 && !s->ranged &&
           s->d <= MEMORY_STORE_ELEMENTS && (type < CL_Q8 || s->d % 4 == 0);
}

static bool read_overflow(void)
{
    static const uint32_t zero;
    uint32_t flag = 0;
    cl_read(&flag, overflowed, sizeof flag);
    if (flag)
        cl_write(overflowed, &zero, sizeof zero);
    return flag;
}

/* Conversions by one kernel, as many at a time. */
struct store_list {
    struct cl_store store[256];
    size_t n;
};

/* Starts the kernel for those that were collected. */
static void launch_stores(struct cl_kernel *kernel, struct store_list *list)
{
    const size_t bytes = list->n * sizeof *list->store;
    size_t rows = 0;
    for (size_t i = 0; i < list->n; i++)
        rows = size_max(rows, list->store[i].rows);
    if (rows) {
        cl_stage_room(round_up(bytes, CL_STAGE_ALIGN));
        const struct cl_list_args args = {
            .list = cl_stage(list->store, bytes), .overflowed = overflowed, .n = (cl_number)list->n};
        if (args.list)
            cl_launch(kernel, &args, sizeof args, (size_t[]){rows, list->n, 1},
                      (size_t[]){CL_LANES, 1, 1});
    }
    list->n = 0;
}

/* Whether values fit is known once they are converted, so an f16 cache waits for that. */
static bool store(const struct memory_store *list, size_t n)
{
    struct store_list of[2]; /* [1]: of rows that become q8 */
    struct cl_kernel *const kernel[2] = {store_rows, quantize_rows};
    bool fits = true, narrow = false;
    of[0].n = of[1].n = 0;
    cl_enter();
    for (size_t i = 0; i < n; i++) {
        struct cl_store one;
        if (!list[i].rows)
            continue;
        if (!store_of(&list[i], &one)) {
            fits = store_on_host(&list[i]) && fits;
            continue;
        }
        const bool quantized = one.type >= CL_Q8;
        of[quantized].store[of[quantized].n++] = one;
        narrow = narrow || one.type == CL_F16;
        if (of[quantized].n == ARRAY_LEN(of->store))
            launch_stores(kernel[quantized], &of[quantized]);
    }
    for (size_t i = 0; i < 2; i++)
        launch_stores(kernel[i], &of[i]);
    if (narrow)
        fits = !read_overflow() && fits;
    cl_leave();
    return fits;
}

/* ---- files, through memory of the process ---- */

static void file_read(struct async_file *file, struct async_ticket *ticket, struct device_addr to,
                      size_t offset, size_t bytes)
{
    char *between = cpu_at(cpu_memory.alloc(VM_MMAP, bytes));
    if (!between) {
        ticket->error = ENOMEM;
        return;
    }
    async_file_read(file, ticket, between, offset, bytes);
    while (ticket->pending)
        async_file_progress(file);
    write_bytes(to, between, bytes);
    cpu_memory.free(VM_MMAP, cpu_addr(between), bytes);
}

static void file_write(struct async_file *file, struct async_ticket *ticket, struct device_addr from,
                       size_t offset, size_t bytes)
{
    char *between = cpu_at(cpu_memory.alloc(VM_MMAP, bytes));
    if (!between) {
        ticket->error = ENOMEM;
        ticket->wrote = true;
        return;
    }
    read_bytes(between, from, bytes);
    async_file_write(file, ticket, between, offset, bytes);
    while (ticket->pending)
        async_file_progress(file);
    cpu_memory.free(VM_MMAP, cpu_addr(between), bytes);
}

/* ---- copies beside operations ---- */

static void exchange(struct async_ticket *ticket, void *host, struct device_addr at, size_t bytes,
                     bool to_host)
{
    cl_exchange(&ticket->copies, host, at.device_address, bytes, to_host);
}

static void wait_exchange(struct async_ticket *ticket) { cl_wait_event(&ticket->copies); }

static bool owns(struct device_addr at) { return cl_owns(at.device_address); }

const struct backend_memory cl_memory = {
    .name = "opencl",
    .alloc = alloc,
    .free = free_block,
    .reserve = reserve,
    .release = release,
    .commit = commit,
    .drop = drop,
    .adopt = adopt,
    .disown = disown,
    .read = read_bytes,
    .write = write_bytes,
    .copy = copy,
    .owns = owns,
    .store = store,
    .file_read = file_read,
    .file_write = file_write,
    .exchange = exchange,
    .wait_exchange = wait_exchange,
    .failed = cl_failed,
};
