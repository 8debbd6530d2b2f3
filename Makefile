# bmc: inference of language models on CPUs. `make help` lists the targets.
VERSION = 0.1.0

CROSS    =
CC       = $(CROSS)gcc
PREFIX   = /usr/local
# Of the library, relative to PREFIX.
LIBDIR   = lib
SANITIZE =
BUILD    = build/$(if $(SANITIZE),$(if $(findstring thread,$(SANITIZE)),thread,sanitize),$(notdir $(CC)))
LIBBMC   = $(if $(SANITIZE)$(CROSS)$(filter-out build/%,$(BUILD)),$(BUILD)/libbmc.a,lib/libbmc.a)
LIBBMC_SO = $(LIBBMC:.a=.so)
# Raised when a program that was linked before would no longer run.
SONAME   = libbmc.so.0
BIN      = $(if $(SANITIZE)$(CROSS),$(BUILD)/bin,bin)

PROGRAMS = bmc-convert bmc-gen bmc-prof bmc-spec bmc-tune $(if $(HTTP),bmc-serve)

# The OpenMP build of OpenBLAS by its own path: the system's default may be another one.
ARCH      := $(shell $(CC) -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
BLAS_FILE  = /usr/lib/$(ARCH)/openblas-openmp/libopenblas.so.0

# bmc-serve is built where libmicrohttpd is found; HTTP= leaves it out.
HTTP := $(if $(CROSS),,$(shell pkg-config --libs libmicrohttpd 2>/dev/null))

# What the build and tests run does not depend on a user's configuration file.
export BMC_CONFIG = none

# make V=1 shows the commands.
Q = $(if $(V),,@)

WARN   = -Wall -Wextra -Wshadow -Wcast-qual -Wmissing-prototypes -Wstrict-prototypes -Wvla -Wconversion \
         -Wno-sign-conversion
SAN    = $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
OPT    = $(if $(SANITIZE),-O1 -g,-O3 -g1)
CFLAGS = -std=gnu11 $(OPT) -ffp-contract=off -pthread $(WARN) $(SAN)
# Objects of lib/ go into programs and into libbmc.so: hidden symbols are called directly in both.
LIB_CFLAGS = $(CFLAGS) -fPIC -fvisibility=hidden
CPPFLAGS = -D_GNU_SOURCE -Ilib -include lib/base/first.h
LDFLAGS  = $(SAN) -pthread
# Only libraries that a program calls are linked; libzip, which one of the tests calls, is loaded when it is needed.
LDLIBS   = -Wl,--as-needed -lsodium -ljansson -lpcre2-8 -lutf8proc -lzip -lprotobuf-c -luring $(LIBEDIT) -lm
# Line editing in bmc-gen -i and bmc-spec -i, if libedit's header is there; LIBEDIT= leaves it out.
LIBEDIT := $(shell echo '\#include <histedit.h>' | $(CC) -E - >/dev/null 2>&1 && echo -ledit)
CMD_CPPFLAGS = $(if $(LIBEDIT),-DHAVE_LIBEDIT) -DBMC_RELEASE='"$(VERSION)"' -DBMC_FLAGS='"$(OPT) -ffp-contract=off$(if $(SAN), $(SAN))"'

JOBS    := $(shell nproc)
# All cores unless -j says otherwise, but for goals that must not run beside others.
ifeq ($(MAKELEVEL)$(filter clean uninstall,$(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(JOBS)
endif
# Test files run in parallel, two more than cores since some tests wait for processes that they stop, the longest first.
# (Not tests within a file: Bats 1.8 waits a second for each.)
BATS     = bats --print-output-on-failure --jobs $$(($(JOBS) + 2)) --no-parallelize-within-files
LONGEST  = $(foreach f,unit docs spec opencl inject gen prof snapshot arch families tune quantize errors build experts prefix_cache \
               segment ranks headwise fixtures beam model_parallel convert sizes_ranks gguf kv_quant drafters latent conversation requests,$(wildcard tests/*/$f.bats))
TESTS    = $(LONGEST) $(filter-out $(LONGEST),$(wildcard tests/*/*.bats))
TEST_ENV = BMC_BIN=$(abspath $(BIN)) BMC_BUILD=$(abspath $(BUILD)) ASAN_OPTIONS=allocator_may_return_null=1

# The throughput loops are compiled alike in every build, since the default kernel set follows from them.
$(foreach d,ref x86 arm,$(eval $(BUILD)/lib/kernel/$d/peak_%.o: OPT = -O3 -g1)$(eval $(BUILD)/lib/kernel/$d/peak_%.o: SAN =))

# Kernels are no targets of fuzzing, and clang takes half an hour to instrument some of them.
$(if $(findstring fuzzer,$(SANITIZE)),$(eval $(BUILD)/lib/kernel/x86/%.o: SAN =))

# The only flags for instruction sets: by the folder and the suffix of a file, as in lib/kernel/x86/kernels_avx2.c. Folders of
# other processors are left out.
PROCESSOR = $(if $(filter x86_64%,$(ARCH)),x86,$(if $(filter aarch64%,$(ARCH)),arm))
OTHERS    = $(filter-out $(PROCESSOR),x86 arm)
ISAS_x86  = avx2 avxvnni avx512 vnni vbmi bf16 amx
ISAS_arm  = neon dotprod i8mm bfmmla
ISAS      = $(ISAS_$(PROCESSOR))

ISA_FLAGS_x86_avx2    = -mavx2 -mfma -mf16c
ISA_FLAGS_x86_avxvnni = $(ISA_FLAGS_x86_avx2) -mavxvnni
ISA_FLAGS_x86_avx512  = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma
ISA_FLAGS_x86_vnni    = $(ISA_FLAGS_x86_avx512) -mavx512vnni
ISA_FLAGS_x86_vbmi    = $(ISA_FLAGS_x86_vnni) -mavx512vbmi -mgfni
ISA_FLAGS_x86_bf16    = $(ISA_FLAGS_x86_avx512) -mavx512bf16
ISA_FLAGS_x86_amx     = $(ISA_FLAGS_x86_vnni) -mamx-tile -mamx-bf16 -mamx-int8
ISA_FLAGS_arm_neon    = -march=armv8-a
ISA_FLAGS_arm_dotprod = -march=armv8.2-a+dotprod
ISA_FLAGS_arm_i8mm    = -march=armv8.2-a+dotprod+i8mm
ISA_FLAGS_arm_bfmmla  = -march=armv8.2-a+dotprod+i8mm+bf16

isa_flags = $(if $(filter lib/kernel/$(PROCESSOR)/%,$(1)),$(ISA_FLAGS_$(PROCESSOR)_$(lastword $(subst _, ,$(basename $(notdir $(1)))))))

# KERNELS=native compiles the kernel sets of the widest registers of this processor only: a program in half the time, whose other
# sets the next make without it compiles. For them there is ABSENT meanwhile.
KERNELS  =
ABSENT   = $(BUILD)/lib/kernel/absent.o
HAS      = $(shell sed -n '/^flags/{p;q}' /proc/cpuinfo)
UNUSED   = $(if $(KERNELS),$(if $(filter avx512f,$(HAS)),avx2 avxvnni $(if $(filter gfni,$(HAS)),lookup_vnni,vbmi),avx512 vnni lookup_vnni vbmi bf16 amx))
LEFT_OUT = $(foreach i,$(UNUSED),$(foreach f,kernels_$i kernels_int8_$i attend_quant_$i,lib/kernel/x86/$f.c)) \
           $(if $(KERNELS),$(if $(filter fma,$(HAS)),lib/kernel/ref/kernels_ref.c lib/kernel/ref/attend_quant_ref.c))

PROTO   = $(patsubst lib/format/hf/%.proto,$(BUILD)/proto/%.pb-c,$(wildcard lib/format/hf/*.proto))
# Other programs' options, as a string.
FOREIGN = $(BUILD)/proto/foreign_options.inc
# The kernels of OpenCL, as strings.
CL_SOURCE = $(BUILD)/proto/cl_source.inc
# Communication between ranks is a library of its own: nothing else needs MPI.
MPI_SRC = lib/ranks/ranks_mpi.c
MPI_LIB = $(BIN:bin=lib)/bmc-mpi.so
MPICC   = mpicc
MPI_THERE = $(if $(CROSS),,$(if $(shell command -v $(MPICC)),$(MPI_LIB)))
LIB_SRC = $(filter-out $(MPI_SRC) lib/kernel/absent.c $(LEFT_OUT) $(OTHERS:%=lib/kernel/%/%.c),$(wildcard lib/*.c lib/*/*.c lib/*/*/*.c))
LIB_OBJ = $(LIB_SRC:%.c=$(BUILD)/%.o) $(PROTO:=.o)
CMD_SRC = $(filter-out $(if $(HTTP),,cmd/serve/%),$(wildcard cmd/*.c cmd/*/*.c))
CMD_OBJ = $(CMD_SRC:%.c=$(BUILD)/%.o)
# The objects of a folder of cmd/ without that of main().
parts_of = $(patsubst %.c,$(BUILD)/%.o,$(filter-out cmd/$1/bmc-%,$(wildcard cmd/$1/*.c)))
CMD_SHARED = $(BUILD)/commit.o $(addprefix $(BUILD)/cmd/,acceptance_file.o cli.o model_files.o open_model.o tuned.o userdir.o) $(call parts_of,opt)
CORE    = $(BUILD)/libcore.a
UNIT_SRC = $(wildcard tests/unit/*.c tests/unit/*/*.c)
UNIT    = $(foreach f,$(UNIT_SRC),$(BUILD)/tests/$(basename $(notdir $f)))
FUZZ_SRC = $(wildcard tests/fuzz/*/fuzz_*.c)
replay_of = $(BUILD)/fuzz/$(patsubst fuzz_%.c,%,$(notdir $(1)))
REPLAY  = $(foreach f,$(FUZZ_SRC),$(call replay_of,$f))
# Files that clang checks, one group per instruction set; drivers of other engines need headers of these.
WARNED  = $(LIB_SRC) lib/kernel/absent.c $(CMD_SRC) $(UNIT_SRC) $(filter-out tests/bench/engines/%,$(wildcard tests/bench/*.c tests/bench/*/*.c)) $(wildcard tests/fuzz/*/*.c tests/example/*.c)
MODELS  = models.d/grimm.bmc models.d/grimm-draft.bmc models.d/grimm-pard.bmc models.d/grimm-eagle.bmc models.d/grimm-eagle3.bmc models.d/grimm-mtp.bmc

# A real model, which is no part of the repository: tests/real_model.sh fetches it.
REAL    = models.d/real/SmolLM2-135M-Instruct.Q4_1.bmc

# MODE:FILE:to:PATH, relative to PREFIX; LINK:to:TARGET
SHARED    = $(MODELS) $(wildcard models.d/families/*.family models.d/shapes/*.shape models.d/chat/*.jinja models.d/tools/*.tools)
INSTALLED = $(patsubst %,755:%:to:lib/bmc-mpi.so,$(wildcard $(MPI_LIB))) 644:$(LIBBMC):to:$(LIBDIR)/libbmc.a \
            644:$(LIBBMC_SO):to:$(LIBDIR)/libbmc.so.$(VERSION) 644:lib/bmc.h:to:include/bmc.h 644:lib/python/bmc.py:to:$(PYTHON_DIR)/bmc.py 644:$(BUILD)/bmc.pc:to:$(LIBDIR)/pkgconfig/bmc.pc \
            $(foreach f,$(SHARED),644:$f:to:$(f:models.d/%=share/bmc/%)) \
            $(foreach f,$(wildcard man/*),644:$f:to:share/man/man$(subst .,,$(suffix $f))/$(notdir $f)) \
            $(foreach p,$(PROGRAMS),755:$(BIN)/$p:to:bin/$p \
                644:completions/$p.bash:to:share/bash-completion/completions/$p \
                644:completions/_$p:to:share/zsh/site-functions/_$p \
                644:completions/$p.fish:to:share/fish/vendor_completions.d/$p.fish)
# Where Debian's python3 looks for modules, relative to PREFIX.
PYTHON_DIR := lib/python$(shell python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo 3)/dist-packages
LINKS     = $(LIBDIR)/$(SONAME):to:libbmc.so.$(VERSION) $(LIBDIR)/libbmc.so:to:$(SONAME) \
            $(foreach l,$(PAGES),share/man/man3/$(subst =,:to:,$l))
UNINSTALLED = $(foreach f,$(INSTALLED),$(lastword $(subst :to:, ,$f))) $(foreach l,$(LINKS),$(firstword $(subst :to:, ,$l)))
# Folders that are the system's even if they are empty.
KEPT      = $(if $(filter /usr /usr/local,$(PREFIX)),bin include lib share share/man $(PYTHON_DIR))
# NAME.3=PAGE.3 for each function but the one that its page is called after.
PAGES     = $(shell sed -n '/^.SH NAME/,/^.SH SYNOPSIS/s,^\(bmc_[a-z_]*\).*,\1,p; /^.SH NAME/F' man/bmc_*.3 | awk '/\// { sub(".*/", ""); page = $$0; next } $$0 ".3" != page { print $$0 ".3=" page }')

.DELETE_ON_ERROR:
.PHONY: all programs mpi demo demo-real real-model check check-full check-arm asan tsan deps deps-mpi docs fuzz warnings format install uninstall clean help

## all: the programs, the libraries, the default models (what plain "make" does)
all: programs $(LIBBMC) $(LIBBMC_SO) $(MODELS)
programs: $(PROGRAMS:%=$(BIN)/%)

## mpi: lib/bmc-mpi.so, for runs of several processes (needs deps-mpi)
mpi: $(MPI_LIB)

## demo: install missing packages, build, and generate text with the default model
demo:
	@sh tests/deps.sh build
	@$(MAKE) --no-print-directory KERNELS=native $(BIN)/bmc-gen models.d/grimm.bmc
	$(BIN)/bmc-gen -m models.d/grimm.bmc -p "Once upon a time" -n 100 --temp 0.8 --echo

## demo-real: the same with an answer of SmolLM2-135M-Instruct, which is downloaded (98 MB)
# The download comes first, so that it runs beside the compilers.
demo-real:
	@sh tests/deps.sh real
	@$(MAKE) --no-print-directory KERNELS=native $(REAL:.bmc=.gguf) $(BIN)/bmc-gen $(REAL) models.d/grimm.bmc
	$(BIN)/bmc-gen -m $(REAL) --chat --temp 0 -p "What is gravity? Answer in one sentence."

## real-model: download and convert SmolLM2-135M-Instruct, for tests with real models
real-model: $(REAL)

## check: install missing packages, build, and run all tests
check: deps
	@$(MAKE) --no-print-directory all tests
	@$(MAKE) --no-print-directory bats warnings

## check-full: the same over the full products of policies, batches and threads (long)
check-full: deps
	@$(MAKE) --no-print-directory all tests
	@BMC_FULL=1 $(MAKE) --no-print-directory bats warnings

# MAKEFLAGS without the job server, which a make that a test runs must not use.
.PHONY: bats
bats:
	@rm -f $(BUILD)/real-tests
	$(TEST_ENV) MAKEFLAGS='$(if $(MAKEOVERRIDES),-- $(MAKEOVERRIDES))' $(BATS) $(TESTS); status=$$?; cat $(BUILD)/real-tests; exit $$status

## check-arm: tests of an ARM build under qemu-user, with Debian's cross compiler
ARM = CROSS=aarch64-linux-gnu- OPT='-O2 -g' # gcc 12 fails on one of the tests at -O3
check-arm: deps
	@sh tests/deps.sh arm
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory $(ARM) programs tests
	@sh tests/arm.sh build/aarch64-linux-gnu-gcc

## asan: the tests under AddressSanitizer and UndefinedBehaviorSanitizer
asan:
	@$(MAKE) --no-print-directory check SANITIZE=address,undefined

## tsan: tests of thread teams, of growth in advance and of the public library under ThreadSanitizer
TSAN = api api_generate api_draft api_beam api_lora api_threads threads steal prepare replica
tsan: deps
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory SANITIZE=thread $(TSAN:%=build/thread/tests/test_%)
	@BMC_BIN=$(abspath $(BIN)) BMC_BUILD=$(abspath build/thread) setarch -R \
	    bats --print-output-on-failure -f 'teams of threads|growth in advance|a replica refuses|^the public library|through the public library' tests/repo/unit.bats tests/cli/prof.bats

## deps: install missing Debian packages, for building and testing
deps:
	@sh tests/deps.sh

## deps-mpi: install Open MPI, unless there is an MPI
deps-mpi: deps
	@sh tests/deps.sh mpi

## docs: regenerate OPTIONS of man pages, and completions, from the option tables
docs: $(PROGRAMS:%=$(BIN)/%)
	@sh tests/docs.sh update

## papers: remake tables and figures of the papers: build/papers/index.html (BUDGET=30m, ONLY=bmc/fig10); MODEL=any.gguf: a page about it
.PHONY: papers
papers:
	@$(MAKE) --no-print-directory all $(BUILD)/bench/papers/page
	@$(if $(MODEL),sh tests/bench/papers/model.sh "$(MODEL)",sh tests/bench/papers/run.sh "$(BUDGET)" "$(ONLY)")

## fuzz: run every fuzz target for FUZZ_SECONDS (60) each; needs clang
fuzz:
	@sh tests/fuzz/support/run.sh

## warnings: compile all code with clang's warnings as errors
warnings: $(foreach i,none $(ISAS),$(BUILD)/warned.$i)

## format: clang-format over all code
format:
	clang-format -i lib/*.[ch] lib/*/*.[ch] lib/*/*/*.[ch] cmd/*.[ch] cmd/*/*.[ch] tests/unit/*.[ch] tests/unit/*/*.[ch] tests/fuzz/*/*.[ch] tests/bench/*.[ch] tests/bench/*/*.[ch] tests/example/*.c tests/inject/*.c

## install: programs, library, header, man pages, completions, models (PREFIX=/usr/local DESTDIR=)
install: all $(BUILD)/bmc.pc
	$(Q)$(foreach f,$(INSTALLED),install -D -m $(subst :, ,$(subst :to:, $(DESTDIR)$(PREFIX)/,$f)) &&) true
	$(Q)$(foreach l,$(LINKS),ln -sf $(lastword $(subst :to:, ,$l)) $(DESTDIR)$(PREFIX)/$(firstword $(subst :to:, ,$l)) &&) true

## uninstall: remove installed files, and folders that are empty then (with the same PREFIX and DESTDIR)
uninstall:
	$(Q)rm -f $(UNINSTALLED:%=$(DESTDIR)$(PREFIX)/%)
	$(Q)for d in $(patsubst %/,%,$(sort $(dir $(UNINSTALLED)))); do \
	    until case " $(KEPT) " in *" $$d "*) ;; *) rmdir $(DESTDIR)$(PREFIX)/$${d#.} 2>/dev/null; [ $$d = . ] ;; esac; do d=$$(dirname $$d); done; done

## clean: remove all build results
clean:
	rm -rf build lib/libbmc.a lib/libbmc.so lib/$(SONAME) lib/bmc-mpi.so models.d/*.bmc $(REAL) $(PROGRAMS:%=bin/%)

## help: this list
help:
	@sed -n 's/^## //p' Makefile

# Fault injection (tests/repo/inject.bats, tests/decode/opencl.bats): the driver, and the preloaded libraries that make
# calls fail.
INJECT = $(BUILD)/inject $(BUILD)/inject.so $(BUILD)/inject_opencl.so
$(BUILD)/inject: tests/inject/inject.c
$(BUILD)/inject.so: tests/inject/fail.c
$(BUILD)/inject_opencl.so: tests/inject/fail_opencl.c
$(INJECT):
	@mkdir -p $(@D)
	$(Q)$(CC) -D_GNU_SOURCE -std=gnu11 -O1 -g $(WARN) -I. $(if $(filter %.so,$@),-shared -fPIC) -o $@ $<

.PHONY: tests always
tests: $(UNIT) $(REPLAY) $(BUILD)/bench/papers/page $(if $(SANITIZE),,$(INJECT) $(MPI_THERE))

of_isa = $(if $(ISA_FLAGS_$(PROCESSOR)_$(1)),$(filter %_$(1).c,$(2)),$(foreach f,$(2),$(if $(call isa_flags,$f),,$f)))

# Checks changed files; all of them after a change of a header or of flags.
$(BUILD)/warned.%: $(WARNED) $(wildcard lib/*.h lib/*/*.h lib/*/*/*.h cmd/*.h cmd/*/*.h tests/*/*.h tests/unit/*/*.h) $(PROTO:=.h) $(FOREIGN) $(CL_SOURCE) $(BUILD)/flags tests/warn.sh
	$(Q)sh tests/warn.sh $(CPPFLAGS) $(CMD_CPPFLAGS) -Icmd -I. -I$(BUILD)/proto -std=gnu11 $(WARN) -Werror $(ISA_FLAGS_$(PROCESSOR)_$*) -- \
	    $(call of_isa,$*,$(filter %.c,$(if $(filter-out %.c,$?),$^,$?)))
	@touch $@

$(CORE): $(LIB_OBJ) $(BUILD)/flags
	@rm -f $@
	$(Q)$(CROSS)ar rcs $@ $(LIB_OBJ)

# The public library: one object that exports the functions of bmc.h only.
API = $(shell grep -oP '\bbmc_[a-z_]+(?=\x28)' lib/bmc.h | sort -u)
$(LIBBMC): $(CORE) lib/bmc.h $(BUILD)/flags
	$(Q)$(CROSS)ld -r -o $(BUILD)/bmc.o $(foreach f,$(API),-u $(f)) $(CORE)
	$(Q)$(CROSS)objcopy $(foreach f,$(API),--keep-global-symbol=$(f)) $(BUILD)/bmc.o
	@rm -f $@
	$(Q)$(CROSS)ar rcs $@ $(BUILD)/bmc.o

# The same as a shared library. Threads of its own may outlive dlclose(), so that it is never unloaded.
$(LIBBMC_SO): $(LIBBMC)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,-z,nodelete $(if $(SANITIZE),,-Wl,-z,defs) -o $@ $(BUILD)/bmc.o $(LDLIBS)
	@ln -sf $(@F) $(@D)/$(SONAME)

$(BIN)/bmc-gen: $(call parts_of,gen) $(call parts_of,chat)
$(BIN)/bmc-convert: $(call parts_of,convert)
GEN_PARTS = $(filter-out %/gen_tokenize.o %/gen_score.o,$(call parts_of,gen)) $(call parts_of,chat)
SPEC_PARTS = $(call parts_of,spec) $(GEN_PARTS)
$(BIN)/bmc-spec: $(SPEC_PARTS)
$(BIN)/bmc-serve: $(call parts_of,serve) $(GEN_PARTS)
$(BIN)/bmc-serve: private LDLIBS += $(HTTP)
$(BIN)/bmc-prof: $(call parts_of,prof) $(BUILD)/cmd/plot.o
$(BIN)/bmc-tune: $(call parts_of,tune) $(BUILD)/cmd/plot.o
$(foreach p,$(PROGRAMS),$(eval $(BIN)/$p: $(BUILD)/cmd/$(p:bmc-%=%)/$p.o))
$(PROGRAMS:%=$(BIN)/%): $(CMD_SHARED) $(CORE) $(if $(KERNELS),$(ABSENT))
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter-out $(ABSENT),$(filter %.o,$^)) $(CORE) $(if $(KERNELS),$(ABSENT)) $(LDLIBS)
	@test -e $(@D)/../models.d || ln -s $(abspath models.d) $(@D)/../models.d

$(MPI_LIB): $(MPI_SRC) lib/base/err.c lib/ranks/ranks.h lib/ranks/ranks.h lib/base/err.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(MPICC) $(CPPFLAGS) $(filter-out -Wcast-qual,$(CFLAGS)) $(LDFLAGS) -fPIC -fvisibility=hidden -shared -Wl,--as-needed \
	    -o $@ $(filter %.c,$^) -lutf8proc

# C tests, as objects that a compiler cache knows. Those of PUBLIC link the public library, test_abi the shared one.
UNIT_OBJ   = $(UNIT_SRC:%.c=$(BUILD)/%.o)
REPLAY_OBJ = $(FUZZ_SRC:%.c=$(BUILD)/%.o) $(BUILD)/tests/fuzz/support/replay.o
object_of  = $(filter %/$1.o,$(UNIT_OBJ))
TEST_CPPFLAGS = $(CPPFLAGS) -I. -Icmd
$(UNIT_OBJ) $(REPLAY_OBJ) $(BUILD)/tests/inject/fail.o: $(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CPPFLAGS) $(CFLAGS:-O%=-O1) -MMD -MP -c -o $@ $<

PUBLIC = test_api test_api_generate test_api_draft test_api_beam test_api_threads test_api_faults
$(foreach t,$(PUBLIC),$(call object_of,$t)) $(BUILD)/tests/inject/fail.o: private TEST_CPPFLAGS = -D_GNU_SOURCE -Ilib -I.
$(PUBLIC:%=$(BUILD)/tests/%): $(LIBBMC)
$(BUILD)/tests/test_api_faults: $(BUILD)/tests/inject/fail.o
$(call object_of,test_abi): private TEST_CPPFLAGS = -I.
$(BUILD)/tests/test_abi: $(LIBBMC_SO)
$(BUILD)/tests/test_abi: private LDFLAGS += -Wl,-rpath,$(abspath $(dir $(LIBBMC_SO)))

# Test parts of programs, all objects but main(); bmc-spec with another backend.
$(BUILD)/tests/test_tune_report: $(call parts_of,tune) $(BUILD)/cmd/plot.o $(CMD_SHARED)
$(BUILD)/tests/test_tune_report: private LDFLAGS += -Wl,--wrap=sweep_plan
$(BUILD)/tests/test_files: $(CMD_SHARED)
$(BUILD)/tests/test_sandbox: $(addprefix $(BUILD)/cmd/chat/,sandbox.o sandbox_filter.o)
$(BUILD)/tests/poisoned_spec: $(SPEC_PARTS) $(BUILD)/cmd/spec/bmc-spec.o $(CMD_SHARED) | $(BUILD)/models.d
$(BUILD)/tests/poisoned_spec: private LDFLAGS += -rdynamic -Wl,--wrap=cpu_backend
$(BUILD)/models.d:
	@ln -sfn $(abspath models.d) $@

# Counts every copy of the library, to compare with its own counters.
$(BUILD)/tests/test_copies: private LDFLAGS += $(foreach f,memcpy memmove vm_get vm_free vm_reserve vm_release,-Wl,--wrap=$f)
$(BUILD)/tests/test_prepare: private LDFLAGS += -Wl,--wrap=vm_get -Wl,--wrap=vm_commit

# Parts of programs that read files have fuzz targets, too.
$(BUILD)/libcmd.a: $(CMD_SHARED) $(call parts_of,gen) $(call parts_of,chat)
	@rm -f $@
	$(Q)$(CROSS)ar rcs $@ $^
$(REPLAY): $(BUILD)/libcmd.a

# Fuzz targets run over the files of a corpus.
$(foreach f,$(FUZZ_SRC),$(eval $(call replay_of,$f): $(BUILD)/$(f:.c=.o) $(BUILD)/tests/fuzz/support/replay.o))
$(foreach o,$(UNIT_OBJ),$(eval $(BUILD)/tests/$(basename $(notdir $o)): $o))
$(filter-out $(addprefix $(BUILD)/tests/,test_abi $(PUBLIC)),$(UNIT)) $(REPLAY): $(CORE)
# Two hundred links: by the faster linker, if it is there.
GOLD := $(if $(shell command -v $(CROSS)ld.gold),-fuse-ld=gold)
$(UNIT) $(REPLAY):
	@mkdir -p $(@D)
	$(Q)$(CC) $(GOLD) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a %.so,$^) $(LDLIBS)

# Drivers of the bench scripts, built by these.
$(BUILD)/bench/%: tests/bench/%.c tests/bench/bench.h $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(CORE) $(LDLIBS)

# The page of make papers.
PAPERS_SRC = $(wildcard tests/bench/papers/*.c)
$(BUILD)/bench/papers/page: $(PAPERS_SRC) $(wildcard tests/bench/papers/*.h) $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(PAPERS_SRC) $(CORE) $(LDLIBS)

# Model files are converted again when their folder or the format changes.
$(foreach m,$(MODELS),$(eval $(m): $(wildcard $(m:.bmc=)/*)))
$(MODELS): models.d/%.bmc: lib/format/bmc/bmcfile.h lib/format/bmc/bmclayout.h lib/text/tokenizer/tok_tables.h | $(BIN)/bmc-convert
	$(BIN)/bmc-convert -q models.d/$* -o $@

$(REAL): $(REAL:.bmc=.gguf) lib/format/bmc/bmcfile.h lib/format/bmc/bmclayout.h lib/text/tokenizer/tok_tables.h | $(BIN)/bmc-convert
	$(BIN)/bmc-convert -q $< -o $@
$(REAL:.bmc=.gguf):
	@sh tests/real_model.sh $@

# Changes with the compiler flags; all objects depend on it.
quoted = '$(subst ','\'',$(1))'
FLAGS  = $(CC) $(CPPFLAGS) $(CMD_CPPFLAGS) $(BLAS_FILE) $(LIB_CFLAGS) $(foreach i,$(ISAS),$(ISA_FLAGS_$(PROCESSOR)_$i)) \
         $(LDFLAGS) $(LDLIBS)
$(BUILD)/flags: always
	@mkdir -p $(@D)
	@echo $(call quoted,$(FLAGS)) | cmp -s - $@ || echo $(call quoted,$(FLAGS)) >$@

# The git commit, with "-dirty" if tracked files differ, in an object of its own, so that a new commit only relinks the
# programs. Empty outside git; the check of the prefix keeps a source archive unpacked inside another repository from
# using that one's commit.
COMMIT = $(shell [ -z "$$(git rev-parse --show-prefix 2>&1)" ] && git describe --always --dirty --abbrev=12 2>/dev/null)
$(BUILD)/commit.c: always
	@mkdir -p $(@D)
	@echo 'extern const char cli_commit[]; const char cli_commit[] = "$(COMMIT)";' | \
	    { read -r line; echo "$$line" | cmp -s - $@ || echo "$$line" >$@; }

$(BUILD)/commit.o: $(BUILD)/commit.c $(BUILD)/flags
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<

$(FOREIGN): cmd/opt/foreign_options.list
	@mkdir -p $(@D)
	@sed 's/["\\]/\\&/g; s/.*/"&\\n"/' $< >$@

$(CL_SOURCE): lib/opencl/cl_args.h $(wildcard lib/opencl/*.cl)
	@mkdir -p $(@D)
	@for f in $^; do echo "{\"$${f##*/}\","; sed 's/["\\]/\\&/g; s/.*/"&\\n"/' $$f; echo '},'; done >$@

$(BUILD)/lib/opencl/cl_source.o: $(CL_SOURCE)
$(BUILD)/lib/opencl/cl_source.o: private CPPFLAGS += -I$(BUILD)/proto

$(BUILD)/cmd/opt/opt_hint.o: $(FOREIGN)
$(BUILD)/cmd/opt/opt_hint.o: private CPPFLAGS += -I$(BUILD)/proto

$(BUILD)/bmc.pc: lib/bmc.pc.in always
	@mkdir -p $(@D)
	@sed 's,@PREFIX@,$(PREFIX),; s,@LIBDIR@,$(LIBDIR),; s,@VERSION@,$(VERSION),' $< >$@

$(BUILD)/lib/%.o: lib/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(LIB_CFLAGS) $(call isa_flags,$<) -MMD -MP -c -o $@ $<

# Protocol buffers: NAME.proto is compiled to <NAME.pb-c.h>, which NAME.c includes.
$(BUILD)/proto/%.pb-c.c $(BUILD)/proto/%.pb-c.h: lib/format/hf/%.proto
	@mkdir -p $(@D)
	$(Q)protoc-c --c_out=$(@D) -Ilib/format/hf $<

$(PROTO:=.o): %.o: %.c $(BUILD)/flags
	$(Q)$(CC) $(CPPFLAGS) $(LIB_CFLAGS) -MMD -MP -c -o $@ $<

OF_PROTO = $(patsubst $(BUILD)/proto/%.pb-c,%,$(PROTO))
$(foreach n,$(OF_PROTO),$(eval $(BUILD)/lib/format/hf/$n.o: $(BUILD)/proto/$n.pb-c.h))
$(OF_PROTO:%=$(BUILD)/lib/format/hf/%.o): private CPPFLAGS += -I$(BUILD)/proto

$(BUILD)/lib/kernel/blas/blas.o: CPPFLAGS += -DBLAS_FILE='"$(BLAS_FILE)"'

$(BUILD)/lib/api/%.o: private CPPFLAGS += -DBMC_RELEASE='"$(VERSION)"' -DBMC_FLAGS='"$(OPT) -ffp-contract=off$(if $(SAN), $(SAN))"'

$(BUILD)/cmd/%.o: cmd/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CMD_CPPFLAGS) -Icmd $(CFLAGS) -MMD -MP -c -o $@ $<

-include $(LIB_OBJ:.o=.d) $(CMD_OBJ:.o=.d) $(UNIT_OBJ:.o=.d) $(REPLAY_OBJ:.o=.d)
