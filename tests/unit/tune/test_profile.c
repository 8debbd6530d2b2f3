/* Text format of the tuned profile: reading, writing, merging, errors; and the T that it gives. */
#include <string.h>

#include "tests/unit/check.h"
#include "tune/profile.h"

static const char text[] =
    "# comment\nbmc_profile 3\ncpu Test CPU 3000\ncores 2\nthreads 2\nisa ref\npage_size 4096\n"
    "alloc malloc\nmodel 0123ab a tiny one\npolicy 0123ab reserve 0.9 0.8 0.95\n"
    "step_ms 0123ab 1 10\nstep_ms 0123ab 2 10.5\nstep_ms 0123ab 4 30\nmodel other\n"
    "constant copy_elem_s - f32 4096 1 1 1 cold 1048576 1.85e9 0.01 9\n"
    "constant sdpa_mac_s blas f32 4096 1 1 1 cold 1048576 6.35e9 0.01 9\n"
    "constant sdpa_mac_s blas f32 4096 1 1 1 cold 4194304 6.35e9 0.01 9\n"
    "T blas f32 4096 1 32 1 512 32\n"
    "rate avx2 100.5 0 150\nrate bf16 200 90 400\n"
    "spec 0123ab - fused f32 1 512 8 chain 5 0 2.5\nspec 0123ab 45cd blas q8 4 2048 16 tree 12 4 3.25\n"
    "spec 0123ab 45cd blas q8 4 128 4 chain 0 0 1\n";

static size_t T_of(const struct profile *p, size_t N, const char *attn, enum kv_T_from *from)
{
    const struct tune_query q = {.attn = attn,
                                 .type = DTYPE_F32,
                                 .heads = 32,
                                 .kv_heads = 32,
                                 .head_dim = 128,
                                 .layers = 32,
                                 .batch = 1,
                                 .N = N,
                                 .k = 1,
                                 .m = 1};
    return profile_T(p, &q, from);
}

static void test_profile(void)
{
    struct profile p, again;
    struct err err = {0};
    struct buf written = {0}, twice = {0};
    enum kv_T_from from;
    if (!check(profile_parse(&p, text, sizeof text - 1, "t", &err) == 0, "%s", err.text))
        return;
    check(strcmp(p.machine.cpu, "Test CPU 3000") == 0 && p.machine.cores == 2 && p.n_curves == 2 &&
              p.curve[1].n == 2 && p.n_tuned == 1 && p.n_models == 2,
          "what was read");
    const struct tuned_model *one = profile_model(&p, "0123ab"), *none = profile_model(&p, "other");
    check(one && strcmp(one->name, "a tiny one") == 0 && strcmp(one->policy, "reserve") == 0 &&
              near(one->policy_ratio.hi, 0.95, 1e-12) && one->knee.n == 3 && one->knee.tokens == 2,
          "what was read of a model");
    check(none && !none->policy[0] && !none->knee.n && !none->knee.tokens &&
              !profile_model(&p, "0123a"),
          "another model has none of it");
    check(p.n_rates == 2 && strcmp(p.rate[1].isa, "bf16") == 0 &&
              near(p.rate[0].gop_s[PEAK_F32], 100.5, 1e-9) &&
              near(p.rate[1].gop_s[PEAK_BF16], 90, 1e-9),
          "rates");
    struct tuned_spec like = {
        .target = "0123ab", .draft = "-", .attn = "fused", .type = DTYPE_F32, .batch = 1, .N = 4096};
    const struct tuned_spec *found = profile_spec(&p, &like);
    check(p.n_specs == 3 && found && found->T == 8 && found->shape.draft_tokens == 5 &&
              !found->shape.tree,
          "a chain for drafters without a model, in any context");
    like = (struct tuned_spec){.target = "0123ab",
                               .draft = "45cd",
                               .attn = "blas",
                               .type = p.spec[1].type,
                               .batch = 4,
                               .N = 1500};
    found = profile_spec(&p, &like);
    check(found && found->N == 2048 && found->T == 16 && found->shape.tree &&
              found->shape.levels == 4 && near(found->tokens, 3.25, 1e-9),
          "a tree, of the nearest context");
    like.N = 1000;
    check(profile_spec(&p, &like)->N == 128, "of the nearest context");
    struct tuned_spec other_batch = like, other_type = like, other_attn = like, other_target = like;
    other_batch.batch = 1;
    other_type.type = DTYPE_F32;
    strcpy(other_attn.attn, "fused");
    strcpy(other_target.target, "45cd");
    check(!profile_spec(&p, &other_batch) && !profile_spec(&p, &other_type) &&
              !profile_spec(&p, &other_attn) && !profile_spec(&p, &other_target),
          "another batch, cache type, attention or model");
    check(T_of(&p, 512, "blas", &from) == 32 && from == KV_T_PROFILE, "the table's T");
    /* sqrt(4 * 512 * 1.85 / (2 * 6.35)) = 17.3, rounded to 16. */
    check(T_of(&p, 2048, "blas", &from) == 16 && from == KV_T_FORMULA, "the formula's T: %zu",
          T_of(&p, 2048, "blas", &from));
    check(T_of(&p, 2048, "other", &from) == 0, "a backend that was not measured");
    check(T_of(&p, 1, "blas", &from) == 0, "N = 1");
    check(profile_write(&p, &written, &err) == 0 &&
              profile_parse(&again, written.data, written.len, "t", &err) == 0,
          "%s", err.text);
    check(profile_write(&again, &twice, &err) == 0 && strcmp(written.data, twice.data) == 0,
          "written twice:\n%s\n%s", written.data, twice.data);
    struct tuned_T other = p.tuned[0];
    other.T = 4;
    check(profile_put_T(&p, &other, &err) == 0 && p.n_tuned == 1 && T_of(&p, 512, "blas", &from) == 4,
          "a T in place of another");
    struct machine here = p.machine;
    check(profile_check_machine(&p, &here, &err) == 0, "%s", err.text);
    here.cores = 3;
    check(profile_check_machine(&p, &here, &err) < 0 && strstr(err.text, "2 cores"), "%s", err.text);
    here = p.machine;
    here.cpu[0] = 'B';
    check(profile_check_machine(&p, &here, &err) < 0 && strstr(err.text, "Test CPU"), "%s", err.text);
    profile_release(&p);
    profile_release(&again);
    buf_release(&written);
    buf_release(&twice);
}

/* A profile of version 1 keeps its rates and T; entries that do not name a model are dropped. */
static void test_old_profile(void)
{
    static const char old[] =
        "bmc_profile 1\ncpu Test CPU 3000\ncores 2\nthreads 2\nisa ref\npage_size 4096\nalloc "
        "malloc\n"
        "policy reserve\npolicy_ratio 0.9\nstep_model tiny\nstep_ms.1 10\nfree_rows 7\n"
        "constant copy_elem_s - f32 4096 1 1 1 cold 1048576 1.85e9 0.01 9\nT blas f32 4096 1 32 1 "
        "512 "
        "32\n";
    struct profile p;
    struct err err = {0};
    struct buf written = {0};
    if (!check(profile_parse(&p, old, sizeof old - 1, "t", &err) == 0, "%s", err.text))
        return;
    check(p.n_curves == 1 && p.n_tuned == 1 && p.n_models == 0, "what was read");
    check(profile_write(&p, &written, &err) == 0 && strstr(written.data, "bmc_profile 3\n") &&
              !strstr(written.data, "\npolicy"),
          "written as it is now:\n%s", written.data);
    profile_release(&p);
    buf_release(&written);
}

/* Version 2 calls batch_knee free_rows. */
static void test_version_2(void)
{
    static const char old[] =
        "bmc_profile 2\ncpu Test CPU 3000\ncores 2\nthreads 2\nisa ref\npage_size 4096\nalloc "
        "malloc\nmodel 0123ab a tiny one\nstep_ms 0123ab 1 10\nfree_rows 0123ab 7\n";
    struct profile p;
    struct err err = {0};
    struct buf written = {0};
    if (!check(profile_parse(&p, old, sizeof old - 1, "t", &err) == 0, "%s", err.text))
        return;
    check(profile_model(&p, "0123ab")->knee.tokens == 7, "free_rows is read");
    check(profile_write(&p, &written, &err) == 0 && strstr(written.data, "\nbatch_knee 0123ab 7\n") &&
              !strstr(written.data, "free_rows"),
          "batch_knee is written:\n%s", written.data);
    profile_release(&p);
    buf_release(&written);
}

/* Merging replaces what was measured again, model by model, and keeps the rest. */
static void test_merge(void)
{
    struct profile p, newer = {0};
    struct err err = {0};
    if (!check(profile_parse(&p, text, sizeof text - 1, "t", &err) == 0, "%s", err.text))
        return;
    struct tuned_model *one = profile_put_model(&newer, "0123ab", &err);
    snprintf(one->policy, sizeof one->policy, "bmc");
    newer.n_rates = 1;
    newer.rate[0] = (struct tuned_rate){"vnni", {7, 0, 9}};
    struct tuned_model *two = profile_put_model(&newer, "new", &err);
    two->knee = (struct batch_knee){.n = 1, .step_ms = {5}, .tokens = 1};
    check(profile_merge(&p, &newer, &err) == 0 && p.n_models == 3 && p.n_curves == 2, "%s", err.text);
    const struct tuned_model *merged = profile_model(&p, "0123ab");
    check(strcmp(merged->policy, "bmc") == 0 && merged->knee.n == 3 &&
              strcmp(merged->name, "a tiny one") == 0,
          "a policy anew, rows as they were");
    check(p.n_rates == 1 && strcmp(p.rate[0].isa, "vnni") == 0, "rates anew");
    check(profile_model(&p, "new")->knee.tokens == 1 && !profile_model(&p, "new")->policy[0],
          "a new one");
    profile_release(&p);
    profile_release(&newer);
}

static void test_shape_keys(void)
{
    static const char *const keys[][2] = {{"opt-125m", "opt-125m"},
                                          {"./a/tiny.shape", "tiny"},
                                          {"a b\nc\x7f.shape", "a_b_c_"},
                                          {".shape", ".shape"},
                                          {"x.shape.old", "x.shape.old"}};
    char key[16];
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        profile_shape_key(key, sizeof key, keys[i][0]);
        check(strcmp(key, keys[i][1]) == 0, "%s -> %s", keys[i][0], key);
    }
    profile_shape_key(key, sizeof key, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    check(strlen(key) == 15, "what is too long is cut");
}

/* A profile in which `from` is replaced by `to` must give an error that contains `want`. */
static void expect_refusal(const char *from, const char *to, const char *want)
{
    struct profile p;
    struct err err = {0};
    struct buf changed = {0};
    const char *at = strstr(text, from);
    if (!check(at != NULL, "the test's own text lacks %s", from) ||
        buf_add(&changed, text, (size_t)(at - text), &err) < 0 ||
        buf_add(&changed, to, strlen(to), &err) < 0 ||
        buf_add(&changed, at + strlen(from), strlen(at + strlen(from)), &err) < 0)
        return;
    const int rc = profile_parse(&p, changed.data, changed.len, "t", &err);
    check(rc < 0 && strstr(err.text, want), "%s -> %s: %s", from, to, rc < 0 ? err.text : "taken");
    if (rc == 0)
        profile_release(&p);
    buf_release(&changed);
}

/* Without rates of a usable set the profile selects none; otherwise the fastest usable set. */
static void test_kernels(void)
{
    struct profile p = {.n_rates = 0};
    struct kernel_rates rates[RATES_MOST];
    const size_t n = rates_measure(rates, kernel_sets, 0);
    check(profile_kernels(&p) == NULL, "a choice without rates");
    for (size_t i = 0; i < n; i++)
        rates[i].gop_s[PEAK_F32] = rates[i].gop_s[PEAK_INT8] = 10;
    for (size_t i = 0; i < n; i++)
        rates[i].gop_s[PEAK_BF16] = 20;
    profile_put_rates(&p, rates, n);
    check(profile_kernels(&p) == rates[n - 1].kernels, "a tie keeps the last set");
    for (size_t i = 0; i < n; i++)
        rates[i].gop_s[PEAK_BF16] = 9;
    profile_put_rates(&p, rates, n);
    const struct kernels *got = profile_kernels(&p);
    check(got && !got->panel_bf16, "slow products of bf16 are chosen: %s", got ? got->isa : "none");
    p.n_rates--;
    check((profile_kernels(&p) == NULL) == (rates[n - 1].kernels->peak[PEAK_F32] != NULL),
          "a choice with the rates of one set missing");
}

static void test_bad_profiles(void)
{
    expect_refusal("bmc_profile 3", "bmc_profile 4",
                   "version 4, this program reads versions 1 to 3; run bmc-tune again");
    expect_refusal("bmc_profile 3", "bmc_profile 0", "version 0");
    expect_refusal("bmc_profile 3\n", "", "bmc_profile");
    expect_refusal("cores 2\n", "cores 2\ncpu Other\n", "\"cpu\" is on line 3 already");
    expect_refusal("cores 2\n", "cores 2\nisa ref\n", "\"isa\" is on line");
    expect_refusal("cores 2", "cores two", "cores");
    expect_refusal("cpu Test CPU 3000", "", "cpu");
    expect_refusal("1.85e9", "nan", "line 15");
    expect_refusal("1.85e9", "0", "positive");
    expect_refusal("1.85e9", "-1", "positive");
    expect_refusal("cold 4194304", "cold 524288", "ascend");
    expect_refusal("cold 1048576 1.85e9", "warm 1048576 1.85e9", "line 15");
    expect_refusal("copy_elem_s - f32", "copy_elem_s - f64", "line 15");
    expect_refusal("copy_elem_s", "copies", "line 15");
    expect_refusal("512 32\n", "512 513\n", "line 18");
    expect_refusal("512 32\n", "512\n", "line 18");
    expect_refusal("512 32\n", "512 0\n", "line 18");
    expect_refusal("avx2 100.5 0 150", "avx2 100.5 0", "line 19: the rates of a kernel set");
    expect_refusal("avx2 100.5 0 150", "avx2 100.5 0 150 1", "line 19");
    expect_refusal("avx2 100.5 0 150", "avx2 100.5 -1 150", "line 19");
    expect_refusal("avx2 100.5 0 150", "avx2 100.5 nan 150", "line 19");
    expect_refusal("avx2", "a-name-of-sixteen", "line 19");
    expect_refusal("0123ab 2 10.5", "0123ab 2 x", "line 12");
    expect_refusal("0123ab 2 10.5", "0123ab 3 10.5", "line 12");
    expect_refusal("0123ab 2 10.5", "unknown 2 10.5", "line 12");
    expect_refusal("reserve 0.9 0.8 0.95", "reserve", "line 10");
    expect_refusal("reserve 0.9 0.8 0.95", "reserve nan 0.8 0.95", "line 10");
    expect_refusal("reserve 0.9 0.8 0.95", "a-very-long-policy 0.9 0.8 0.95", "line 10");
    expect_refusal("model other", "model", "line 14");
    expect_refusal("model other", "batch_knee other 0", "line 14");
}

int main(void)
{
    kernels_setup();
    test_profile();
    test_kernels();
    test_old_profile();
    test_version_2();
    test_merge();
    test_shape_keys();
    test_bad_profiles();
    return check_result();
}
