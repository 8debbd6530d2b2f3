/* Well-known architectures that cannot be described by a family file. */
#ifndef BMC_UNSUPPORTED_ARCHS_H
#define BMC_UNSUPPORTED_ARCHS_H

/* The reason, to follow "is", for an architecture name of config.json or GGUF; NULL: not listed. */
const char *unsupported_arch(const char *name);

#endif
