/* The tensors of a GGUF file that is made of a planned conversion. */
#pragma once

#include "format/gguf/gguf_write.h"
#include "model/convert/gguf_out.h"
#include "model/convert/tensor_import.h"
#include "model/family/family.h"

/* Where the data of a tensor are from. */
struct gguf_origin {
    struct gguf_part {
        size_t plan; /* index in the plan */
        const struct weight_kind *kind;
        struct tensor_import import; /* how the plan's rows are found in the tensor */
    } part[TRANSFORM_PARTS];
    size_t n_parts;            /* 0: the bytes at `data` */
    const unsigned char *data; /* of the tensor in its source, or NULL */
    size_t stack;              /* matrices, one after the other */
    float *own;                /* freed by gguf_tensors_release() */
};

struct gguf_tensors {
    struct gguf_tensor *tensor;
    struct gguf_origin *origin;
    size_t n, cap, cap_origins;
};

/* Plans all tensors; `names` is the model's family with the names of GGUF (family_take_names()). */
int gguf_tensors_plan(struct gguf_tensors *tensors, const struct gguf_out *out,
                      const struct family *names, struct err *err) MUST_USE;
void gguf_tensors_release(struct gguf_tensors *tensors);

/* Adds a vector of f32 that belongs to the metadata, before all other tensors; its n values are taken over, even after
 * an error. */
int gguf_tensors_add_vector(struct gguf_tensors *tensors, const char *name, float *value, size_t n,
                            struct err *err) MUST_USE;

/* Passes the bytes of a tensor to the sink. */
int gguf_tensors_produce(const struct gguf_tensors *tensors, size_t index, const struct gguf_out *out,
                         struct gguf_sink *sink, struct err *err) MUST_USE;
