/* Loads OpenBLAS; matrix products. */
#include "kernel/blas/blas.h"

#include <pthread.h>
#include <sys/mman.h>

#include "base/library.h"
#include "base/threads.h"

#define SONAME "libopenblas.so.0"
#ifndef BLAS_FILE /* path of OpenBLAS's OpenMP build; the soname may name another build */
#define BLAS_FILE SONAME
#endif

/* Minimum of address space for OpenBLAS: with less it hangs while it allocates its buffers. */
enum { SPACE_MIB = 256, SPACE_PER_THREAD_MIB = 128 };

enum { PARALLEL_OPENMP = 2 };

/* Values of CBLAS's enumerations. */
enum { BLAS_ROW_MAJOR = 101, BLAS_AS_IS = 111, BLAS_TRANSPOSED = 112 };

struct blas blas;

static const struct library_function functions[] = {
    {"cblas_sgemm", offsetof(struct blas, sgemm)},
    {"cblas_sgemv", offsetof(struct blas, sgemv)},
    {"openblas_get_parallel", offsetof(struct blas, parallel)},
    {"openblas_get_config", offsetof(struct blas, config)},
    {"omp_get_max_threads", offsetof(struct blas, omp_threads)},
    {"omp_set_num_threads", offsetof(struct blas, omp_set_threads)},
};
static const struct library openblas = {"OpenBLAS", "libopenblas0-openmp", functions,
                                        ARRAY_LEN(functions)};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct err failure;
static bool loaded;

static int check_address_space(struct err *err)
{
    const size_t mib = SPACE_MIB + SPACE_PER_THREAD_MIB * (size_t)threads_max();
    void *space = mmap(NULL, mib << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return err_errno(err, "OpenBLAS needs %zu MiB of address space for %d threads", mib,
                         threads_max());
    munmap(space, mib << 20);
    return 0;
}

static int load_file(const char *file, struct err *err)
{
    if (library_load(&openblas, file, &blas, err) < 0)
        return -1;
    if (blas.parallel() != PARALLEL_OPENMP)
        return err_set(
            err,
            "OpenBLAS (%s) is not the OpenMP build, so its threads would compete with ours for cores; "
            "install libopenblas0-openmp",
            blas.config());
    return 0;
}

static void load_once(void)
{
    loaded = check_address_space(&failure) == 0 &&
             (load_file(BLAS_FILE, &failure) == 0 || load_file(SONAME, &failure) == 0);
}

int blas_load(struct err *err)
{
    pthread_once(&once, load_once);
    return loaded ? 0 : err_set(err, "%s", failure.text);
}

void blas_file(char *path, size_t size)
{
    char *file = realpath(BLAS_FILE, NULL);
    snprintf(path, size, "%s", file ? file : SONAME);
    free(file);
}

/* ---- products ---- */

/* Sets OpenMP's thread count to 1, so that products run on the calling thread. Returns the previous
 * count; callers restore it for the host program. */
static int single_thread(void)
{
    const int before = blas.omp_threads();
    blas.omp_set_threads(1);
    return before;
}

void gemm_blas_nt(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate)
{
    const float beta = accumulate ? 1 : 0;
    const int before = single_thread();
    if (m == 1)
        blas.sgemv(BLAS_ROW_MAJOR, BLAS_AS_IS, (int)n, (int)k, 1, b, (int)b_stride, a, 1, beta, c, 1);
    else
        blas.sgemm(BLAS_ROW_MAJOR, BLAS_AS_IS, BLAS_TRANSPOSED, (int)m, (int)n, (int)k, 1, a,
                   (int)a_stride, b, (int)b_stride, beta, c, (int)c_stride);
    blas.omp_set_threads(before);
}

void gemm_blas_nn(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate)
{
    const float beta = accumulate ? 1 : 0;
    const int before = single_thread();
    if (m == 1)
        blas.sgemv(BLAS_ROW_MAJOR, BLAS_TRANSPOSED, (int)k, (int)n, 1, b, (int)b_stride, a, 1, beta, c,
                   1);
    else
        blas.sgemm(BLAS_ROW_MAJOR, BLAS_AS_IS, BLAS_AS_IS, (int)m, (int)n, (int)k, 1, a, (int)a_stride,
                   b, (int)b_stride, beta, c, (int)c_stride);
    blas.omp_set_threads(before);
}
