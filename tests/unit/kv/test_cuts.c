/* Random programs that extend, truncate, fork and reorder sequences, under every cache policy: see
 * tests/fuzz/support/cuts.h.
 *
 *   test_cuts [PROGRAMS]
 *
 * PROGRAMS are run under each policy. BMC_SEED repeats a run. */
#include "tests/fuzz/support/cuts.h"

#include "base/number.h"
#include "tests/unit/check.h"
#include "decode/sample/rng.h"

enum { PROGRAM_BYTES = CUTS_HEADER + 2 * CUTS_STEPS };

static uint64_t seed;
static uint32_t draws;

static uint8_t draw(void) { return (uint8_t)(rng_uniform(seed, 0, draws++, 0) * 256); }

static void run_policy(size_t policy, size_t programs)
{
    static struct cuts cuts;
    size_t n_cuts = 0, forks = 0, steps = 0;
    for (size_t i = 0; i < programs; i++) {
        uint8_t program[PROGRAM_BYTES];
        for (size_t k = 0; k < sizeof program; k++)
            program[k] = draw();
        program[0] = (uint8_t)policy;
        check(cuts_run(&cuts, program, sizeof program), "program %zu, %s: %s", i, cuts.how,
              cuts.problem);
        n_cuts += cuts.cuts;
        forks += cuts.forks;
        steps += cuts.steps;
    }
    printf("# %s: %zu steps, %zu cuts, %zu forks\n", kv_policies[policy]->name, steps, n_cuts, forks);
    check(programs < 8 || (n_cuts > programs && forks > programs && steps > 8 * programs),
          "%s: hardly anything was run", kv_policies[policy]->name);
}

int main(int argc, char **argv)
{
    size_t programs = 12;
    if (argc > 2 || (argc == 2 && !parse_size(argv[1], &programs)))
        return fprintf(stderr, "usage: test_cuts [PROGRAMS]\n"), 2;
    setvbuf(stdout, NULL, _IOLBF, 0); /* the seed survives a crash */
    seed = check_seed(1);
    for (size_t i = 0; kv_policies[i]; i++)
        run_policy(i, programs);
    model_close(cuts_model(false));
    model_close(cuts_model(true));
    return check_result();
}
