# bmc: inference of language models on CPUs. `make help` lists the targets.
VERSION = 0.1.0

CC       = gcc
PREFIX   = /usr/local
SANITIZE =
BUILD    = build/$(if $(SANITIZE),sanitize,$(notdir $(CC)))
LIBBMC   = $(if $(SANITIZE)$(filter-out build/%,$(BUILD)),$(BUILD)/libbmc.a,lib/libbmc.a)
BIN      = $(if $(SANITIZE),$(BUILD)/bin,bin)

PROGRAMS = bmc-convert bmc-gen bmc-prof bmc-spec bmc-tune

# The OpenMP build of OpenBLAS by its own path: the system's default may be another one.
ARCH      := $(shell $(CC) -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
BLAS_DIR   = /usr/lib/$(ARCH)/openblas-openmp
BLAS_INC   = /usr/include/$(ARCH)/openblas-openmp

# make V=1 shows the commands.
Q = $(if $(V),,@)

WARN   = -Wall -Wextra -Wshadow -Wcast-qual -Wmissing-prototypes -Wstrict-prototypes -Wvla -Wconversion \
         -Wno-sign-conversion
SAN    = $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
OPT    = $(if $(SANITIZE),-O1 -g,-O3 -g)
CFLAGS = -std=gnu11 $(OPT) -ffp-contract=off -pthread $(WARN) $(SAN)
CPPFLAGS = -D_GNU_SOURCE -Ilib -I$(BLAS_INC) -include lib/base/banned.h
LDFLAGS  = $(SAN) -pthread -Wl,-rpath,$(BLAS_DIR) -L$(BLAS_DIR)
LDLIBS   = -lopenblas -lgomp -lsodium -ljansson -lpcre2-8 -lutf8proc -lm
CMD_CPPFLAGS = -DBMC_RELEASE='"$(VERSION)"' -DBMC_FLAGS='"$(OPT) -ffp-contract=off$(if $(SAN), $(SAN))"'

TEST_ENV = BMC_BIN=$(abspath $(BIN)) BMC_BUILD=$(abspath $(BUILD)) ASAN_OPTIONS=allocator_may_return_null=1

# Files of one instruction set get its flags here and nowhere else.
ISA_FLAGS_avx2   = -mavx2 -mfma
ISA_FLAGS_avx512 = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma
ISA_FLAGS_bf16   = $(ISA_FLAGS_avx512) -mavx512bf16
ISA_FLAGS_amx    = -mamx-tile -mamx-bf16

LIB_SRC = $(wildcard lib/*.c lib/*/*.c)
LIB_OBJ = $(LIB_SRC:%.c=$(BUILD)/%.o)
CMD_OBJ = $(patsubst %.c,$(BUILD)/%.o,$(wildcard cmd/*.c))
CMD_SHARED = $(BUILD)/cmd/cli.o $(BUILD)/cmd/opt.o $(BUILD)/cmd/optdoc.o $(BUILD)/cmd/tuned.o
CORE    = $(BUILD)/libcore.a
UNIT    = $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/*.c))
MODELS  = models.d/grimm.bmc models.d/grimm-draft.bmc

.DELETE_ON_ERROR:
.PHONY: all demo check check-full asan deps docs fuzz warnings format install clean help

## all: the programs, the library, the default models (what plain "make" does)
all: $(PROGRAMS:%=$(BIN)/%) $(LIBBMC) $(MODELS)

## demo: install what is missing, build, and let the default model tell a story
demo: deps
	@$(MAKE) --no-print-directory all
	$(BIN)/bmc-gen -m models.d/grimm.bmc -p "Once upon a time" -n 100 --temp 0.8 --echo

## check: install what is missing, build, and run every test
check: deps
	@$(MAKE) --no-print-directory all tests
	$(TEST_ENV) bats --print-output-on-failure tests

## check-full: the same over the full products of policies, batches and threads (long)
check-full: deps
	@$(MAKE) --no-print-directory all tests
	BMC_FULL=1 $(TEST_ENV) bats --print-output-on-failure tests

## asan: the tests under AddressSanitizer and UndefinedBehaviorSanitizer
asan:
	@$(MAKE) --no-print-directory check SANITIZE=address,undefined

## deps: install the Debian packages that are missing
deps:
	@sh tests/deps.sh

## docs: man page OPTIONS and completions, anew from the option tables
docs: $(PROGRAMS:%=$(BIN)/%)
	@sh tests/docs.sh update

## fuzz: run every fuzz target for FUZZ_SECONDS (60) each; needs clang
fuzz:
	@sh tests/fuzz/run.sh

## warnings: compile everything with clang's warnings, too
warnings:
	@$(foreach f,$(LIB_SRC) $(wildcard cmd/*.c tests/unit/*.c tests/bench/*.c),clang $(CPPFLAGS) $(CMD_CPPFLAGS) -Icmd \
	    -std=gnu11 $(WARN) $(call isa_flags,$f) -fsyntax-only $f &&) true

## format: clang-format over all code
format:
	clang-format -i lib/*.[ch] lib/*/*.[ch] cmd/*.[ch] tests/unit/*.c tests/fuzz/*.c tests/bench/*.[ch]

## install: programs, library, header, man pages, completions, models (PREFIX=/usr/local DESTDIR=)
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include
	install -m 755 $(PROGRAMS:%=$(BIN)/%) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(LIBBMC) $(DESTDIR)$(PREFIX)/lib
	install -m 644 lib/bmc.h $(DESTDIR)$(PREFIX)/include
	for s in 1 5 7; do install -d $(DESTDIR)$(PREFIX)/share/man/man$$s && \
	    install -m 644 man/*.$$s $(DESTDIR)$(PREFIX)/share/man/man$$s || exit 1; done
	install -d $(DESTDIR)$(PREFIX)/share/bmc/families $(DESTDIR)$(PREFIX)/share/bmc/shapes
	install -m 644 $(MODELS) $(DESTDIR)$(PREFIX)/share/bmc
	install -m 644 models.d/families/*.family $(DESTDIR)$(PREFIX)/share/bmc/families
	install -m 644 models.d/shapes/*.shape $(DESTDIR)$(PREFIX)/share/bmc/shapes
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
	    $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	for p in $(PROGRAMS); do \
	    install -m 644 completions/$$p.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$p && \
	    install -m 644 completions/_$$p $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$p && \
	    install -m 644 completions/$$p.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$p.fish || exit 1; done

## clean: remove everything that was built
clean:
	rm -rf build lib/libbmc.a models.d/*.bmc $(PROGRAMS:%=bin/%)

## help: this list
help:
	@sed -n 's/^## //p' Makefile

# Fault injection (tests/inject.bats): the driver, and the library that makes calls fail.
INJECT = $(BUILD)/inject $(BUILD)/inject.so
$(BUILD)/inject: tests/inject/inject.c
$(BUILD)/inject.so: tests/inject/fail.c
$(INJECT):
	@mkdir -p $(@D)
	$(Q)$(CC) -D_GNU_SOURCE -std=gnu11 -O1 -g $(WARN) $(if $(filter %.so,$@),-shared -fPIC) -o $@ $<

.PHONY: tests
tests: $(UNIT) $(if $(SANITIZE),,$(INJECT))

$(CORE): $(LIB_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^

# What users link: one object in which only the functions of bmc.h are visible.
API = $(shell grep -oE '\bbmc_[a-z_]+' lib/bmc.h | sort -u)
$(LIBBMC): $(LIB_OBJ) lib/bmc.h Makefile
	$(Q)ld -r -o $(BUILD)/bmc.o $(LIB_OBJ)
	$(Q)objcopy $(foreach f,$(API),--keep-global-symbol=$(f)) $(BUILD)/bmc.o
	@rm -f $@
	$(Q)ar rcs $@ $(BUILD)/bmc.o

$(BIN)/bmc-gen: $(patsubst cmd/%.c,$(BUILD)/cmd/%.o,$(wildcard cmd/gen_*.c))
$(BIN)/bmc-convert: $(patsubst cmd/%.c,$(BUILD)/cmd/%.o,$(wildcard cmd/convert_*.c))
$(BIN)/bmc-spec: $(patsubst cmd/%.c,$(BUILD)/cmd/%.o,$(wildcard cmd/spec_*.c) $(filter-out %/gen_tools.c,$(wildcard cmd/gen_*.c)))
$(BIN)/bmc-prof: $(patsubst cmd/%.c,$(BUILD)/cmd/%.o,$(wildcard cmd/prof_*.c))
$(BIN)/bmc-tune: $(patsubst cmd/%.c,$(BUILD)/cmd/%.o,$(wildcard cmd/tune_*.c))
$(PROGRAMS:%=$(BIN)/%): $(BIN)/%: $(BUILD)/cmd/%.o $(CMD_SHARED) $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(CORE) $(LDLIBS)
	@test -e $(@D)/../models.d || ln -s $(abspath models.d) $(@D)/../models.d

# The library's own test sees what its users see.
$(BUILD)/tests/test_api: tests/unit/test_api.c $(LIBBMC)
	@mkdir -p $(@D)
	$(Q)$(CC) -Ilib $(CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -o $@ $< $(LIBBMC) $(LDLIBS)

$(BUILD)/tests/%: tests/unit/%.c $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -o $@ $< $(CORE) $(LDLIBS)

# Drivers of the bench scripts: each script asks for its own.
$(BUILD)/bench/%: tests/bench/%.c tests/bench/bench.h $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(CORE) $(LDLIBS)

# A model file is made anew when its folder changes, or the format.
$(foreach m,$(MODELS),$(eval $(m): $(wildcard $(m:.bmc=)/*)))
$(MODELS): models.d/%.bmc: lib/format/bmcfile.h lib/format/bmclayout.h lib/text/tok_tables.h | $(BIN)/bmc-convert
	$(BIN)/bmc-convert models.d/$* -o $@

isa_flags = $(ISA_FLAGS_$(lastword $(subst _, ,$(basename $(notdir $(1))))))
$(BUILD)/lib/%.o: lib/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(call isa_flags,$<) -MMD -MP -c -o $@ $<

$(BUILD)/cmd/%.o: cmd/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CMD_CPPFLAGS) -Icmd $(CFLAGS) -MMD -MP -c -o $@ $<

-include $(LIB_OBJ:.o=.d) $(CMD_OBJ:.o=.d) $(UNIT:=.d)
