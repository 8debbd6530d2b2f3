/* Well-known architectures that cannot be described by a family file. */
#ifndef BMC_UNSUPPORTED_ARCHS_H
#define BMC_UNSUPPORTED_ARCHS_H

/* Why the architecture called `name` in config.json or GGUF is not supported: "a recurrent model
 * ..", to follow "is". NULL: not listed. */
const char *unsupported_arch(const char *name);

#endif
