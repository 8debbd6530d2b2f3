/* Products of eager attention through oneDNN. It creates a primitive for each shape of a product, by choosing an
 * implementation and often generating code, which can take longer than the product (BMC paper, section VIII-E). Primitives
 * are kept as long as attention is open anywhere; oneDNN's own cache of them is off, so that none is created unnoticed. */
#include <pthread.h>

#include "attn/eager_product.h"
#include "base/clock.h"
#include "base/library.h"
#include "base/mem.h"

enum { PRIMITIVES = 1024 }; /* kept at most */

/* The interface of oneDNN 2, as far as it is used here: constants, and structures of no smaller size than its own. */
enum { DNNL_CPU = 1, DNNL_F32 = 3, DNNL_U8 = 6, DNNL_DEFAULT_STREAM = 1 };
enum { DNNL_USER_SCRATCHPAD = 1, DNNL_QUERY_SCRATCHPAD = 136 };
enum { DNNL_SRC = 1, DNNL_DST = 17, DNNL_WEIGHTS = 33, DNNL_SCRATCHPAD = 80 };

struct dnnl_shape { /* dnnl_memory_desc_t */
    _Alignas(16) char opaque[1024];
};

struct dnnl_matmul { /* dnnl_matmul_desc_t */
    _Alignas(16) char opaque[5120];
};

struct dnnl_argument {
    int index;
    void *memory;
};

/* Handles are pointers; functions return 0, or an error's number. */
static struct onednn {
    const int *(*version)(void); /* of which the first three numbers are its own */
    int (*set_cache_capacity)(int capacity);
    int (*engine_create)(void **engine, int kind, size_t index);
    int (*stream_create)(void **stream, void *engine, unsigned flags);
    int (*attr_create)(void **attr);
    int (*attr_set_scratchpad)(void *attr, int mode);
    int (*attr_set_post_ops)(void *attr, const void *post_ops);
    int (*post_ops_create)(void **post_ops);
    int (*post_ops_append_sum)(void *post_ops, float scale);
    int (*post_ops_destroy)(void *post_ops);
    int (*shape_init)(struct dnnl_shape *shape, int n, const int64_t *size, int type,
                      const int64_t *stride);
    size_t (*shape_bytes)(const void *shape);
    int (*matmul_init)(struct dnnl_matmul *matmul, const struct dnnl_shape *src,
                       const struct dnnl_shape *weights, const struct dnnl_shape *bias,
                       const struct dnnl_shape *dst);
    int (*desc_create)(void **desc, const void *operation, void *attr, void *engine, const void *hint);
    int (*desc_destroy)(void *desc);
    const void *(*desc_shape)(const void *desc, int what, int index);
    int (*primitive_create)(void **primitive, const void *desc);
    int (*primitive_destroy)(void *primitive);
    int (*execute)(const void *primitive, void *stream, int n, const struct dnnl_argument *argument);
    int (*memory_create)(void **memory, const void *shape, void *engine, void *data);
    int (*memory_destroy)(void *memory);
    int (*omp_threads)(void);
    void (*omp_set_threads)(int n);
} onednn;

static const struct library_function onednn_functions[] = {
    {"dnnl_version", offsetof(struct onednn, version)},
    {"dnnl_set_primitive_cache_capacity", offsetof(struct onednn, set_cache_capacity)},
    {"dnnl_engine_create", offsetof(struct onednn, engine_create)},
    {"dnnl_stream_create", offsetof(struct onednn, stream_create)},
    {"dnnl_primitive_attr_create", offsetof(struct onednn, attr_create)},
    {"dnnl_primitive_attr_set_scratchpad_mode", offsetof(struct onednn, attr_set_scratchpad)},
    {"dnnl_primitive_attr_set_post_ops", offsetof(struct onednn, attr_set_post_ops)},
    {"dnnl_post_ops_create", offsetof(struct onednn, post_ops_create)},
    {"dnnl_post_ops_append_sum", offsetof(struct onednn, post_ops_append_sum)},
    {"dnnl_post_ops_destroy", offsetof(struct onednn, post_ops_destroy)},
    {"dnnl_memory_desc_init_by_strides", offsetof(struct onednn, shape_init)},
    {"dnnl_memory_desc_get_size", offsetof(struct onednn, shape_bytes)},
    {"dnnl_matmul_desc_init", offsetof(struct onednn, matmul_init)},
    {"dnnl_primitive_desc_create", offsetof(struct onednn, desc_create)},
    {"dnnl_primitive_desc_destroy", offsetof(struct onednn, desc_destroy)},
    {"dnnl_primitive_desc_query_md", offsetof(struct onednn, desc_shape)},
    {"dnnl_primitive_create", offsetof(struct onednn, primitive_create)},
    {"dnnl_primitive_destroy", offsetof(struct onednn, primitive_destroy)},
    {"dnnl_primitive_execute", offsetof(struct onednn, execute)},
    {"dnnl_memory_create", offsetof(struct onednn, memory_create)},
    {"dnnl_memory_destroy", offsetof(struct onednn, memory_destroy)},
    {"omp_get_max_threads", offsetof(struct onednn, omp_threads)},
    {"omp_set_num_threads", offsetof(struct onednn, omp_set_threads)},
};
static const struct library onednn_library = {"oneDNN", "libdnnl2", onednn_functions,
                                              ARRAY_LEN(onednn_functions)};

/* A primitive, in the list of all, the one used last first. */
struct primitive {
    struct primitive *next;
    struct eager_product product;
    size_t users; /* threads that execute it */
    void *handle;
    struct dnnl_shape a, b, c;
    struct dnnl_shape scratch;
    size_t scratch_bytes;
};

static struct {
    pthread_mutex_t lock;
    struct primitive *first;
    size_t n;
    bool loaded;
    size_t opened; /* calls of open_onednn(), less those of close_onednn() */
    void *engine, *stream;
    void *attr[2]; /* of products that are stored, and that are added */
    struct attn_counts counts;
} primitives = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int load_functions(struct err *err)
{
    return library_load(&onednn_library, "libdnnl.so.2", &onednn, err);
}

bool onednn_version(char *text, size_t size)
{
    struct err why;
    if (load_functions(&why) < 0)
        return false;
    const int *version = onednn.version();
    snprintf(text, size, "%d.%d.%d", version[0], version[1], version[2]);
    return true;
}

static int load_library(struct err *err)
{
    void *sum = NULL;
    if (load_functions(err) < 0)
        return -1;
    if (onednn.set_cache_capacity(0) || onednn.engine_create(&primitives.engine, DNNL_CPU, 0) ||
        onednn.stream_create(&primitives.stream, primitives.engine, DNNL_DEFAULT_STREAM) ||
        onednn.post_ops_create(&sum) || onednn.post_ops_append_sum(sum, 1))
        return err_set(err, "oneDNN cannot use this CPU");
    for (size_t i = 0; i < ARRAY_LEN(primitives.attr); i++)
        if (onednn.attr_create(&primitives.attr[i]) ||
            onednn.attr_set_scratchpad(primitives.attr[i], DNNL_USER_SCRATCHPAD) ||
            (i && onednn.attr_set_post_ops(primitives.attr[i], sum)))
            return err_no_memory(err, "oneDNN");
    onednn.post_ops_destroy(sum);
    primitives.loaded = true;
    return 0;
}

struct attn_counts onednn_counts(void)
{
    pthread_mutex_lock(&primitives.lock);
    const struct attn_counts counts = primitives.counts;
    pthread_mutex_unlock(&primitives.lock);
    return counts;
}

/* ---- primitives, with the lock held ---- */

/* A batch of one matrix gets the strides of a whole tensor, for which oneDNN has faster implementations. */
static int init_shape(struct dnnl_shape *shape, const struct eager_product *p, const size_t step[2],
                      size_t rows, size_t row, size_t columns, size_t column)
{
    const size_t matrix = p->batch[1] > 1 ? step[1] : size_max(rows * row, columns * column),
                 sequence = p->batch[0] > 1 ? step[0] : p->batch[1] * matrix;
    const int64_t size[] = {(int64_t)p->batch[0], (int64_t)p->batch[1], (int64_t)rows,
                            (int64_t)columns},
                  stride[] = {(int64_t)sequence, (int64_t)matrix, (int64_t)row, (int64_t)column};
    return onednn.shape_init(shape, ARRAY_LEN(size), size, DNNL_F32, stride);
}

/* Returns 0, or an error's number. */
static int create_handle(struct primitive *to)
{
    const struct eager_product *p = &to->product;
    struct dnnl_matmul matmul;
    void *desc = NULL;
    if (init_shape(&to->a, p, p->a_step, p->m, p->a_row, p->k, 1) ||
        init_shape(&to->b, p, p->b_step, p->k, p->transposed ? 1 : p->b_row, p->n,
                   p->transposed ? p->b_row : 1) ||
        init_shape(&to->c, p, p->c_step, p->m, p->c_row, p->n, 1) ||
        onednn.matmul_init(&matmul, &to->a, &to->b, NULL, &to->c) ||
        onednn.desc_create(&desc, &matmul, primitives.attr[p->accumulate], primitives.engine, NULL))
        return -1;
    const int64_t bytes =
                      (int64_t)onednn.shape_bytes(onednn.desc_shape(desc, DNNL_QUERY_SCRATCHPAD, 0)),
                  stride = 1;
    const int status = onednn.shape_init(&to->scratch, 1, &bytes, DNNL_U8, &stride) ||
                       onednn.primitive_create(&to->handle, desc);
    to->scratch_bytes = (size_t)bytes;
    onednn.desc_destroy(desc);
    return status;
}

static void drop_primitive(struct primitive **at)
{
    struct primitive *old = *at;
    *at = old->next;
    onednn.primitive_destroy(old->handle);
    free(old);
    primitives.n--;
}

static void drop_oldest(void)
{
    struct primitive **oldest = NULL;
    for (struct primitive **at = &primitives.first; *at; at = &(*at)->next)
        if (!(*at)->users)
            oldest = at;
    if (oldest)
        drop_primitive(oldest);
}

static struct primitive *create_primitive(const struct eager_product *product, struct err *err)
{
    struct primitive *new = mem_zalloc(1, sizeof *new);
    if (!new) {
        err_no_memory(err, "a primitive of oneDNN");
        return NULL;
    }
    const double start = clock_ms();
    new->product = *product;
    if (create_handle(new)) {
        err_set(err, "oneDNN cannot multiply %zu x %zu by %zu x %zu matrices", product->m, product->k,
                product->k, product->n);
        free(new);
        return NULL;
    }
    if (++primitives.n > PRIMITIVES)
        drop_oldest();
    primitives.counts.primitives++;
    primitives.counts.primitive_ms += clock_ms() - start;
    return new;
}

/* ---- opening, products ---- */

static int open_onednn(struct err *err)
{
    pthread_mutex_lock(&primitives.lock);
    const int rc = primitives.loaded ? 0 : load_library(err);
    primitives.opened += rc == 0;
    pthread_mutex_unlock(&primitives.lock);
    return rc;
}

static void close_onednn(void)
{
    pthread_mutex_lock(&primitives.lock);
    if (--primitives.opened == 0)
        while (primitives.first)
            drop_primitive(&primitives.first);
    pthread_mutex_unlock(&primitives.lock);
}

/* Finds or creates the primitive of a product, which is not dropped before it is released. NULL: error. */
static struct primitive *acquire_primitive(const struct eager_product *product, struct err *err)
{
    pthread_mutex_lock(&primitives.lock);
    struct primitive **at = &primitives.first;
    while (*at && memcmp(&(*at)->product, product, sizeof *product) != 0)
        at = &(*at)->next;
    struct primitive *found = *at;
    if (found)
        *at = found->next;
    else
        found = create_primitive(product, err);
    if (found) {
        found->next = primitives.first;
        primitives.first = found;
        found->users++;
    }
    pthread_mutex_unlock(&primitives.lock);
    return found;
}

static void release_primitive(struct primitive *primitive)
{
    pthread_mutex_lock(&primitives.lock);
    primitive->users--;
    pthread_mutex_unlock(&primitives.lock);
}

/* Returns 0, or an error's number. */
static int execute(const struct primitive *primitive, float *c, const float *a, const float *b,
                   void *scratch)
{
    const struct {
        int index;
        const struct dnnl_shape *shape;
        const void *data;
    } of[] = {{DNNL_SRC, &primitive->a, a},
              {DNNL_WEIGHTS, &primitive->b, b},
              {DNNL_DST, &primitive->c, c},
              {DNNL_SCRATCHPAD, &primitive->scratch, scratch}};
    struct dnnl_argument argument[ARRAY_LEN(of)] = {0};
    int status = 0, n = 0;
    for (; n < (int)ARRAY_LEN(of) && !status; n++) {
        argument[n].index = of[n].index;
        status = onednn.memory_create(&argument[n].memory, of[n].shape, primitives.engine,
                                      (void *)(uintptr_t)of[n].data);
    }
    if (!status)
        status = onednn.execute(primitive->handle, primitives.stream, n, argument);
    while (n-- > 0)
        onednn.memory_destroy(argument[n].memory);
    return status;
}

static int multiply_onednn(const struct eager_product *product, float *c, const float *a,
                           const float *b, struct err *err)
{
    const int threads = onednn.omp_threads();
    onednn.omp_set_threads(1); /* products run on the calling thread */
    struct primitive *primitive = acquire_primitive(product, err);
    int rc = -1;
    if (primitive) {
        void *scratch = mem_alloc(primitive->scratch_bytes, 1);
        rc = scratch && execute(primitive, c, a, b, scratch) == 0
                 ? 0
                 : err_no_memory(err, "a product of oneDNN");
        free(scratch);
        release_primitive(primitive);
    }
    onednn.omp_set_threads(threads);
    return rc;
}

const struct eager_library eager_onednn = {
    .batched = true, .open = open_onednn, .close = close_onednn, .multiply = multiply_onednn};
