/* Predicts the speed of a model from its dimensions and types: measures its first layers, with random weights, and
 * extrapolates to all. */
#pragma once

#include "model/convert/tensor_types.h"
#include "prof/report.h"

struct predict_job {
    const struct report *report; /* run.config: the whole model's */
    struct model *part;          /* the layers that are measured */
    struct op_counts all, own;   /* what all layers do, and those of `part` */
};

enum { PREDICT_BYTES = 256 << 20 }; /* of weights: several times the largest caches */

/* Makes a model of so many of the first layers that they have `bytes` of weights, which then do not stay in the
 * processor's caches, and that every kind of layer is among them. `report` is borrowed, its run.config is that of all
 * layers. *job is to be closed also after an error. */
int predict_open(struct predict_job *job, const struct report *report, size_t bytes,
                 struct err *err) MUST_USE;
void predict_close(struct predict_job *job);

/* Multiplies the times of phases by how much more all layers have to do in a test. Steps take as long as reading
 * weights, prompts as multiplying. */
void predict_scale(const struct predict_job *job, const struct test *test, double ms[FORWARD_PHASES]);

/* Measures a test with those layers, and sets the figures of all of them: a measure_one. */
int measure_prediction(void *job, const struct measurement *measurement, struct figures *figures,
                       struct err *err);
