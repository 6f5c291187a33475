/* Checks of what all processes must have in common: the job, the program, the config, the clock. */
#include <math.h>
#include <string.h>

#include "doctor/say.h"

#define SKEW_WARNING 1.0 /* seconds: times in logs and in file names get out of order */
#define SKEW_FAILED  10.0

void bl_check_processes(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    const struct bl_doctor_run *r = c->run;
    if (*r->world_error != '\0') {
        int one_each = r->step_tasks > 1 && *r->method == '\0';
        bl_say(out, BL_DOCTOR_FAILED, "%s", r->world_error);
        if (one_each)
            bl_say_fix(out, "srun --mpi=pmi2 ballast ...   (`srun --mpi=list` must name pmi2)");
        else
            bl_say_fix(out, "run the doctor again once that is solved: the rest was looked at in "
                            "one process only");
    } else if (c->count == 1 && r->job_tasks > 1) {
        bl_say(out, BL_DOCTOR_WARNING,
               "one process, but the job has %lld tasks: only %s is looked at",
               (long long)r->job_tasks, c->facts[0].host);
        bl_say_fix(out, "srun --mpi=pmi2 ballast doctor CONFIG");
    } else if (c->count == 1) {
        bl_say(out, BL_DOCTOR_OK, "one, on %s%s", c->facts[0].host,
               r->job > 0 ? "" : "; no Slurm job");
    } else {
        bl_say(out, BL_DOCTOR_OK, "%u on %u host%s, met through %s; %s", c->count,
               bl_doctor_hosts(c), bl_doctor_hosts(c) == 1 ? "" : "s", r->method, r->transport);
    }
}

static int has_error(const struct bl_doctor_facts *f, const void *context)
{
    (void)context;
    return f->setup_code != 0;
}

void bl_check_setup(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    char hosts[256];
    const struct bl_doctor_facts *first = NULL;
    for (uint32_t p = 0; p < c->count && first == NULL; p++)
        first = c->facts[p].setup_code != 0 ? &c->facts[p] : NULL;
    if (first != NULL) {
        bl_doctor_hosts_where(c, has_error, NULL, hosts, sizeof hosts);
        bl_say(out, BL_DOCTOR_FAILED, "not on %s: %s", hosts, first->setup_error);
        bl_say_fix(out, "put the config, its data and its plugins where every node sees them, by "
                        "the same path");
    } else if (!c->run->has_config) {
        bl_say(out, BL_DOCTOR_ABSENT, "%s", bl_doctor_no_config(c));
    } else {
        bl_say(out, BL_DOCTOR_OK, "config, data and %u plugins load%s", c->facts[0].plugin_count,
               c->count > 1 ? " in every process" : "");
    }
}

static int other_program(const struct bl_doctor_facts *f, const void *context)
{
    const struct bl_doctor_facts *zero = context;
    return f->program != zero->program || strcmp(f->version, zero->version) != 0;
}

static int other_isa(const struct bl_doctor_facts *f, const void *context)
{
    const struct bl_doctor_facts *zero = context;
    return *f->isa != '\0' && *zero->isa != '\0' && strcmp(f->isa, zero->isa) != 0;
}

/* Of the first process that `is`: to show what differs. */
static const struct bl_doctor_facts *find(const struct bl_doctor_case *c, bl_doctor_is_f *is)
{
    for (uint32_t p = 0; p < c->count; p++) {
        if (is(&c->facts[p], &c->facts[0]))
            return &c->facts[p];
    }
    return NULL;
}

void bl_check_program(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    const struct bl_doctor_facts *zero = &c->facts[0], *other;
    char hosts[256];
    if ((other = find(c, other_program)) != NULL) {
        bl_doctor_hosts_where(c, other_program, zero, hosts, sizeof hosts);
        if (strcmp(other->version, zero->version) != 0)
            bl_say(out, BL_DOCTOR_FAILED, "ballast %s on %s, but %s on %s", zero->version,
                   zero->host, other->version, hosts);
        else
            bl_say(out, BL_DOCTOR_FAILED,
                   "ballast %s is another file on %s than on %s: XXH64 %016llx, %016llx",
                   zero->version, hosts, zero->host, (unsigned long long)other->program,
                   (unsigned long long)zero->program);
        bl_say_fix(out, "start one file that all nodes share, or install the same build on %s",
                   hosts);
    } else if ((other = find(c, other_isa)) != NULL) {
        bl_doctor_hosts_where(c, other_isa, zero, hosts, sizeof hosts);
        bl_say(out, BL_DOCTOR_WARNING,
               "%s compute with \"%s\", %s with \"%s\": another placement of the processes gives "
               "other bits",
               hosts, other->isa, zero->host, zero->isa);
        bl_say_fix(out, "srun --constraint=FEATURE for nodes of one kind, or export "
                        "BALLAST_ISA=avx2 everywhere");
    } else {
        bl_say(out, BL_DOCTOR_OK, "ballast %s%s%s%s", zero->version,
               c->count > 1 ? ", the same file everywhere" : "", *zero->isa != '\0' ? "; " : "",
               zero->isa);
    }
}

/* What did not load is said by bl_check_setup and counts as no difference here. */
static int other_config(const struct bl_doctor_facts *f, const void *context)
{
    const struct bl_doctor_facts *zero = context;
    return f->setup_code == 0 && zero->setup_code == 0 && f->config != zero->config;
}

void bl_check_config(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    char hosts[256];
    if (!c->run->has_config) {
        bl_say(out, BL_DOCTOR_ABSENT, "%s", bl_doctor_no_config(c));
    } else if (c->count == 1) {
        bl_say(out, BL_DOCTOR_ABSENT, "one process");
    } else if (bl_doctor_hosts_where(c, other_config, &c->facts[0], hosts, sizeof hosts) > 0) {
        bl_say(out, BL_DOCTOR_FAILED, "on %s it is another one than on %s", hosts,
               c->facts[0].host);
        bl_say_fix(out, "name a file that all nodes share, and the same KEY=VALUE in every task");
    } else {
        bl_say(out, BL_DOCTOR_OK, "the same in every process (XXH64 %016llx)",
               (unsigned long long)c->facts[0].config);
    }
}

static const struct bl_doctor_plugin *plugin_of(const struct bl_doctor_facts *f, const char *name)
{
    for (uint32_t i = 0; i < f->plugin_count; i++) {
        if (strcmp(f->plugins[i].name, name) == 0)
            return &f->plugins[i];
    }
    return NULL;
}

static int other_plugin(const struct bl_doctor_facts *f, const void *context)
{
    const struct bl_doctor_plugin *ours = context, *theirs = plugin_of(f, ours->name);
    return theirs != NULL && theirs->checksum != ours->checksum;
}

void bl_check_plugins(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    const struct bl_doctor_facts *zero = &c->facts[0];
    char hosts[256];
    if (!c->run->has_config) {
        bl_say(out, BL_DOCTOR_ABSENT, "%s", bl_doctor_no_config(c));
        return;
    }
    bl_say(out, BL_DOCTOR_OK, "%u%s", zero->plugin_count,
           c->count > 1 ? ", the same files everywhere" : " files");
    for (uint32_t i = 0, differing = 0; i < zero->plugin_count; i++) {
        if (bl_doctor_hosts_where(c, other_plugin, &zero->plugins[i], hosts, sizeof hosts) == 0)
            continue;
        if (differing++ == 0) {
            bl_say(out, BL_DOCTOR_FAILED, "%s is another file on %s than on %s (XXH64 %016llx)",
                   zero->plugins[i].name, hosts, zero->host,
                   (unsigned long long)zero->plugins[i].checksum);
            bl_say_fix(out,
                       "set plugin_path to a folder that all nodes share, or copy the file of "
                       "%s to %s",
                       zero->host, hosts);
        } else {
            size_t used = strlen(out->seen);
            snprintf(out->seen + used, sizeof out->seen - used, "; %s on %s", zero->plugins[i].name,
                     hosts);
        }
    }
}

/* Only what is sure: the difference less its uncertainty. */
static double skew(const struct bl_doctor_facts *f)
{
    return f->has_clock ? fmax(fabs(f->clock) - f->clock_error, 0) : 0;
}

static int is_skewed(const struct bl_doctor_facts *f, const void *context)
{
    (void)context;
    return skew(f) > SKEW_WARNING;
}

void bl_check_clock(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    char hosts[256];
    double most = 0, with = 0;
    if (bl_doctor_hosts(c) == 1) {
        bl_say(out, BL_DOCTOR_ABSENT, c->count == 1 ? "one process" : "one host");
        return;
    }
    for (uint32_t p = 0; p < c->count; p++) {
        if (skew(&c->facts[p]) >= most) {
            most = skew(&c->facts[p]);
            with = c->facts[p].clock;
        }
    }
    if (bl_doctor_hosts_where(c, is_skewed, NULL, hosts, sizeof hosts) > 0) {
        bl_say(out, most > SKEW_FAILED ? BL_DOCTOR_FAILED : BL_DOCTOR_WARNING,
               "%s: up to %.1f s %s %s", hosts, fabs(with), with > 0 ? "ahead of" : "behind",
               c->facts[0].host);
        bl_say_fix(out, "have time synchronization started there (`chronyc tracking` shows its "
                        "state), or leave those nodes out with --exclude");
    } else {
        bl_say(out, BL_DOCTOR_OK, "hosts agree within %.3g s", fmax(most, 0.001));
    }
}
