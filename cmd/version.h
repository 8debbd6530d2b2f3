/* What --version says about the build. BMC_RELEASE and BMC_FLAGS come from the Makefile. */
#ifndef BMC_VERSION_H
#define BMC_VERSION_H

#ifdef __clang__
#define BMC_COMPILER "clang " __clang_version__
#else
#define BMC_COMPILER "gcc " __VERSION__
#endif

#endif
