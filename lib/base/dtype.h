/* Element types and layouts of stored tensors, and the matrix that products read. */
#ifndef BMC_DTYPE_H
#define BMC_DTYPE_H

#include <string.h>

#include "base/base.h"

/* Values are part of the file formats. */
enum dtype { DTYPE_F32 = 0, DTYPE_BF16 = 1, DTYPE_COUNT };

/* How a matrix [out][in] lies in memory: row after row, or as base/pack.h says, which is what products read. Values
 * are part of the file format. */
enum layout { LAYOUT_ROWS = 0, LAYOUT_PACKED = 1, LAYOUT_COUNT };

typedef uint16_t bf16;

/* What a type is. To add one: its value above, its row in dtype.c, and the cases that the compiler then misses: switches
 * over types have no default. */
struct dtype_facts {
    const char *name;
    size_t bits;           /* of an element, scales left out */
    size_t group;          /* elements that share a scale; 0: there are none */
    enum dtype scale_type; /* of the scales */
};

extern const struct dtype_facts dtype_facts[DTYPE_COUNT];

static inline const char *dtype_name(enum dtype type) { return dtype_facts[type].name; }

/* Bytes of an element. The switch is for kernels, where the type is a constant. */
static inline size_t dtype_size(enum dtype type)
{
    switch (type) {
    case DTYPE_F32: return 4;
    case DTYPE_BF16: return 2;
    case DTYPE_COUNT: break;
    }
    return 0;
}

/* n elements of a type to f32, and back; these and dtype_size() are all that most code needs to know of types. */
void dtype_widen(float *to, enum dtype type, const void *from, size_t n);
void dtype_narrow(void *to, enum dtype type, const float *from, size_t n);
static inline const char *layout_name(enum layout layout)
{
    return layout == LAYOUT_PACKED ? "packed" : "rows";
}

static inline float bf16_to_f32(bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Rounds to nearest, ties to even. NaN stays NaN. */
static inline bf16 bf16_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (bf16)(bits >> 16 | 0x40);
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A weight matrix [out][in] in place, or a list of `out` rows (an embedding). */
struct mat {
    enum dtype dtype;
    enum layout layout;
    size_t out, in;   /* logical shape */
    size_t in_padded; /* inputs as stored: elements that a row takes */
    const void *data; /* NULL: the model has no such matrix */
};

#endif
