/* Facts of the run and of its job, as process 0 learns them. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/strings.h"
#include "doctor/doctor.h"
#include "job.h"

enum { ROWS = 256, TAIL = 1 << 20 };
#define PATIENCE 5.0 /* seconds for an answer of Slurm's controller */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bl_doctor_step_seconds(const char *path)
{
    FILE *f = fopen(path, "re");
    double values[ROWS];
    size_t n = 0, seen = 0;
    char *line = NULL;
    size_t room = 0;
    if (f == NULL)
        return NAN;
    if (fseek(f, -(long)TAIL, SEEK_END) != 0)
        rewind(f);
    /* A line that is cut at either end of the file is no JSON and is passed over. */
    while (getline(&line, &room, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        const json_t *v = json_object_get(row, "perf/step_seconds");
        if (json_is_number(v) && json_number_value(v) > 0)
            values[seen++ % ROWS] = json_number_value(v);
        json_decref(row);
    }
    free(line);
    fclose(f);
    n = seen < ROWS ? seen : ROWS;
    qsort(values, n, sizeof *values, compare);
    return n > 0 ? values[n / 2] : NAN;
}

uint64_t bl_doctor_folder_bytes(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *e;
    uint64_t bytes = 0;
    while (d != NULL && (e = readdir(d)) != NULL) {
        struct stat st;
        char *entry;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            (entry = bl_format("%s/%s", path, e->d_name)) == NULL)
            continue;
        if (lstat(entry, &st) == 0)
            bytes += S_ISDIR(st.st_mode)   ? bl_doctor_folder_bytes(entry)
                     : S_ISREG(st.st_mode) ? (uint64_t)st.st_size
                                           : 0;
        free(entry);
    }
    if (d != NULL)
        closedir(d);
    return bytes;
}

int bl_doctor_scontrol(const char *text, const char *key, char *out, size_t size)
{
    size_t n = strlen(key);
    for (const char *at = text; (at = strstr(at, key)) != NULL; at += n) {
        const char *value = at + n;
        if (at > text && strchr(" \n\t", at[-1]) == NULL)
            continue;
        value += strspn(value, " ");
        if (*value++ != '=')
            continue;
        value += strspn(value, " ");
        snprintf(out, size, "%.*s", (int)strcspn(value, " \n"), value);
        return 0;
    }
    return -1;
}

/* What a command prints, "" when there is none of it. `timeout`: a controller that does not answer
 * must not hold the doctor up. */
static void ask(const char *command, char *out, size_t size)
{
    char line[256];
    out[0] = '\0';
    snprintf(line, sizeof line, "timeout %.0f %s 2>/dev/null", PATIENCE, command);
    FILE *f = popen(line, "re");
    size_t n = f != NULL ? fread(out, 1, size - 1, f) : 0;
    out[n] = '\0';
    if (f != NULL)
        pclose(f);
}

static double remaining(void)
{
    struct bl_job *job = bl_job_make();
    double begun = bl_clock(), left = NAN;
    while (job != NULL && isnan(left = bl_job_remaining(job)) && bl_clock() - begun < PATIENCE)
        nanosleep(&(struct timespec){0, 20 * 1000000}, NULL);
    bl_job_free(job);
    return left;
}

void bl_doctor_look_job(struct bl_doctor_run *out)
{
    char command[128], text[1 << 14], value[64];
    out->job = bl_environment_number("SLURM_JOB_ID");
    out->step_tasks = bl_environment_number("SLURM_STEP_NUM_TASKS");
    out->job_tasks = bl_environment_number("SLURM_NTASKS");
    out->requeue = out->batch = -1;
    out->kill_wait = out->remaining = NAN;
    if (out->job == 0)
        return;
    out->remaining = remaining();
    snprintf(command, sizeof command, "scontrol show job -o %lld", (long long)out->job);
    ask(command, text, sizeof text);
    if (bl_doctor_scontrol(text, "Requeue", value, sizeof value) == 0)
        out->requeue = strcmp(value, "0") != 0;
    if (bl_doctor_scontrol(text, "BatchFlag", value, sizeof value) == 0)
        out->batch = strcmp(value, "0") != 0;
    ask("scontrol show config", text, sizeof text);
    if (bl_doctor_scontrol(text, "KillWait", value, sizeof value) == 0)
        out->kill_wait = strtod(value, NULL);
}
