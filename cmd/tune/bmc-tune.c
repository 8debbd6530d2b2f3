/* bmc-tune: finds the best T, the number of allocations, for a machine, by formula and
 * measurement. */
#include "cli.h"
#include "opt/opt_files.h"
#include "opt/opt.h"
#include "opt/opt_hint.h"
#include "plot.h"
#include "tune/tune.h"
#include "tuned.h"
#include "base/file.h"
#include "userdir.h"

static int run_tune(struct tune *tune, struct err *err)
{
    const struct tune_options *o = tune->options;
    if (tune_calibrate(tune, err) < 0 || tune_points(tune, err) < 0 ||
        (tune->plan_spec && tune_spec(tune, err) < 0) || (!o->no_knee && tune_knee(tune, err) < 0) ||
        tune_print(tune, err) < 0)
        return -1;
    if (o->plot && tune_plot(tune, &tune->point[0], err) < 0)
        return -1;
    if (tune_warnings(tune, err) < 0)
        return -1;
    return o->dry_run ? tune_say_end(tune, NULL, err) : tune_save(tune, err);
}

/* Checks, before measuring, that the profile and other outputs can be written. */
static int check_outputs(const struct tune *tune, struct err *err)
{
    const struct tune_options *o = tune->options;
    static char path[8192];
    if (opt_files_check(&tune_program, o, err) < 0)
        return -1;
    if (o->check || o->dry_run)
        return 0;
    if (!tuned_path(o->profile, tune->run.backend, path, sizeof path))
        return err_set(err, "no folder for the profile: neither XDG_CONFIG_HOME nor HOME is set; give "
                            "--profile FILE or --dry-run");
    if (!o->profile)
        file_make_parents(path);
    return opt_files_output(&tune_program, "profile", path, OPT_WRITES_PROFILE, err) < 0
               ? -1
               : tune_check_room(tune, path, err);
}

int main(int argc, char **argv)
{
    struct tune_options o = {.batch = "1",
                             .type = -1,
                             .rounds = 7,
                             .seconds = 60,
                             .megabytes = 1024,
                             .format = TUNE_SUMMARY};
    struct operands operands;
    struct tune tune;
    struct err err;
    cli_begin(tune_program.name);
    opt_parse(&tune_program, argc, argv, &o, &operands);
    if (operands.n)
        opt_unexpected(&tune_program, operands.text[0], o.numa, "a model is given with -m");
    if (o.model && o.shape)
        opt_usage_error(&tune_program, "-m and --shape exclude each other");
    opt_type_check(&tune_program, o.type, o.shape);
    o.type = o.type < 0 ? DTYPE_BF16 : o.type;
    if (o.format == TUNE_SUMMARY && (o.verbose || o.check))
        o.format = TABLE_TEXT;
    plot_check_usage(&tune_program, o.plot);
    if (o.check && (o.dry_run || o.constants || o.plot || o.spec || o.context))
        opt_usage_error(&tune_program,
                        "--check takes none of --dry-run, --constants, --plot, --spec and -N");
    const bool plan_spec = o.spec && strncmp(o.spec, "auto", 4) == 0;
    if (plan_spec && !o.model)
        opt_usage_error(&tune_program, "--spec auto times passes of a model: give it with -m");
    if (!plan_spec && (o.draft || o.acceptance))
        opt_usage_error(&tune_program, "%s goes with --spec auto",
                        o.draft ? "--draft" : "--acceptance");
    if (plan_spec && o.acceptance && o.spec[4])
        opt_usage_error(&tune_program, "--acceptance and the rate of --spec %s exclude each other",
                        o.spec);
    if (o.profile && strcmp(o.profile, "none") == 0 && !o.dry_run)
        opt_usage_error(&tune_program,
                        "--profile: \"none\" means no profile, but one is %s: give another name "
                        "(./none for a file of that name)%s",
                        o.check ? "checked" : "written", o.check ? "" : ", or --dry-run");
    if ((o.hugepages || o.numa) && !o.model)
        opt_usage_error(&tune_program, "%s copies a model file: give it with -m",
                        o.numa ? "--numa" : "--hugepages");
    opt_cores_check(&tune_program, o.cpu_mask, o.cores);
    opt_device_check(&tune_program, &operands, o.backend);
    opt_names_check(&tune_program, NULL, o.attn, o.isa, o.precision);
    if (o.shape)
        opt_files_input_shape("--shape", o.shape);
    int rc = tune_open(&tune, &o, &err);
    if (rc == 0)
        rc = check_outputs(&tune, &err);
    if (rc == 0 && tune.plan_spec)
        rc = tune_spec_open(&tune, &err);
    if (rc == 0)
        rc = o.check ? tune_check(&tune, &err) : run_tune(&tune, &err);
    tune_close(&tune);
    if (rc < 0 && cli_interrupted)
        return cli_end(tune_program.name, CLI_FAILED);
    return cli_end(tune_program.name, rc < 0 ? cli_fail(tune_program.name, &err)
                                      : rc   ? CLI_FAILED
                                             : CLI_OK);
}
