/* Well-known architectures that no family file can describe, and why. */
#ifndef BMC_FOREIGN_ARCHS_H
#define BMC_FOREIGN_ARCHS_H

/* What a model of that architecture is, for a sentence: its name in config.json or in a GGUF file. NULL: not known. */
const char *foreign_arch(const char *name);

#endif
