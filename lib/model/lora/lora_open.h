/* Loads LoRA adapters for a model. */
#pragma once

#include "format/lora_file.h"
#include "model/model.h"

/* Reads an adapter and appends it to the model's; B is multiplied by `scale`. The names of the
 * adapter's layers are those of the model's family, whose file is in `models_dir`. Fails, naming the
 * layer, if the model has no such layer, if the sizes differ, or if adapting it is not supported. The
 * model is unchanged then. Open the adapters before sessions. */
int lora_open(struct model *model, const char *path, double scale, const char *models_dir,
              struct err *err) MUST_USE;
