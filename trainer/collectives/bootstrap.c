#include "collectives/bootstrap.h"

#include <stdlib.h>
#include <string.h>

#include "base/strings.h"

int bl_bootstrap_number(const char *name, int64_t least, int64_t most, int64_t *out,
                        struct bl_error *err)
{
    const char *text = getenv(name);
    int64_t value;
    if (text == NULL || *text == '\0')
        return 0;
    if (bl_parse_int(text, &value) != 0 || value < least || value > most)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "%s=%.40s: expected a whole number from %lld to %lld", name, text,
                            (long long)least, (long long)most);
    *out = value;
    return 1;
}

/* The tasks of the Slurm step that this process is a task of, 1 outside of a step. The shell of a
 * batch job is none: it has SLURM_NTASKS, not SLURM_STEP_NUM_TASKS. */
static int64_t step_tasks(void)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *number = getenv("SLURM_PROCID");
    int64_t n;
    if (tasks == NULL || number == NULL || bl_parse_int(tasks, &n) != 0)
        return 1;
    return n;
}

int bl_bootstrap_open(double timeout, struct bl_bootstrap *out, struct bl_error *err)
{
    memset(out, 0, sizeof *out);
    out->timeout = timeout;
    int found = bl_bootstrap_pmi2(out, err);
    if (found == 0)
        found = bl_bootstrap_environment(out, err);
    if (found < 0)
        return -1;
    if (found > 0)
        return 0;
    out->method = "alone";
    out->processes = 1;
    if (step_tasks() > 1)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "task %s of a Slurm step of %lld tasks, but they cannot find each "
                            "other: start it with `srun --mpi=pmi2`",
                            getenv("SLURM_PROCID"), (long long)step_tasks());
    return 0;
}

void bl_bootstrap_close(struct bl_bootstrap *b)
{
    if (b != NULL && b->close != NULL)
        b->close(b);
    if (b != NULL)
        memset(b, 0, sizeof *b);
}
