/* Checks of what the processes of one node share: processors, memory, GPUs, limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "doctor/say.h"

/* ---- processors */

struct node_cpus {
    uint64_t may[BL_DOCTOR_CPUS / 64]; /* what its processes may use, together */
    int64_t there, all;                /* how many that is, and how many of them Slurm gave */
    int64_t threads, processes;
    int64_t own, wanted; /* of a process with more threads than processors; 0 = none has */
};

static int64_t count_bits(const uint64_t *set, size_t words)
{
    int64_t n = 0;
    for (size_t i = 0; i < words; i++)
        n += __builtin_popcountll(set[i]);
    return n;
}

static struct node_cpus sum_cpus(const struct bl_doctor_case *c, const char *host)
{
    struct node_cpus n = {0};
    const size_t words = BL_DOCTOR_CPUS / 64;
    int64_t given = 0;
    for (uint32_t p = 0; p < c->count; p++) {
        const struct bl_doctor_facts *f = &c->facts[p];
        int64_t own = count_bits(f->cpus, words);
        if (strcmp(f->host, host) != 0)
            continue;
        for (size_t i = 0; i < words; i++)
            n.may[i] |= f->cpus[i];
        n.threads += f->threads > 0 ? f->threads : own;
        n.processes++;
        if (f->threads > own) {
            n.own = own;
            n.wanted = f->threads;
        }
        given = f->cpus_of_job > given ? f->cpus_of_job : given;
    }
    n.there = n.all = count_bits(n.may, words);
    if (given > 0 && given < n.all) /* Slurm gave fewer and does not hold them to it */
        n.all = given;
    return n;
}

void bl_check_cpus(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    struct node_cpus zero = sum_cpus(c, c->facts[0].host);
    bl_say(out, BL_DOCTOR_OK, "%lld thread%s of %lld process%s on %lld CPU%s%s",
           (long long)zero.threads, zero.threads == 1 ? "" : "s", (long long)zero.processes,
           zero.processes == 1 ? "" : "es", (long long)zero.all, zero.all == 1 ? "" : "s",
           bl_doctor_hosts(c) > 1 ? " a node" : "");
    for (uint32_t p = 0; p < c->count; p++) {
        const struct bl_doctor_facts *f = &c->facts[p];
        struct node_cpus n;
        if (!bl_doctor_first_of_host(c, p))
            continue;
        n = sum_cpus(c, f->host);
        if (n.all == 0 || (n.threads <= n.all && n.wanted == 0))
            continue;
        int64_t each = n.all > n.processes ? n.all / n.processes : 1;
        int64_t wanted = f->threads > 0 ? f->threads : n.there / n.processes;
        if (n.threads <= n.all)
            bl_say(out, BL_DOCTOR_WARNING, "%s: %lld threads on %lld CPU%s", f->host,
                   (long long)n.wanted, (long long)n.own, n.own == 1 ? "" : "s");
        else
            bl_say(out, BL_DOCTOR_WARNING, "%s: %lld threads of %lld process%s on %lld CPU%s",
                   f->host, (long long)n.threads, (long long)n.processes,
                   n.processes == 1 ? "" : "es", (long long)n.all, n.all == 1 ? "" : "s");
        if (f->cpus_of_job > 0)
            bl_say_fix(out,
                       "srun --cpus-per-task=%lld ... (srun does not take it over from "
                       "sbatch), or run.threads = %lld",
                       (long long)(wanted > 0 ? wanted : 1), (long long)each);
        else
            bl_say_fix(out, "run.threads = %lld", (long long)each);
        return;
    }
}

/* ---- memory */

void bl_check_memory(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    char a[32], b[32];
    double worst = 0;
    if (c->facts[0].memory_needed == 0) {
        bl_say(out, BL_DOCTOR_ABSENT, "%s", bl_doctor_no_config(c));
        return;
    }
    for (uint32_t p = 0; p < c->count; p++) {
        const char *host = c->facts[p].host;
        uint64_t need = 0, left = BL_DOCTOR_NO_LIMIT, processes = 0;
        int limited = 0;
        if (!bl_doctor_first_of_host(c, p))
            continue;
        for (uint32_t q = 0; q < c->count; q++) {
            const struct bl_doctor_facts *f = &c->facts[q];
            if (strcmp(f->host, host) != 0)
                continue;
            need += f->memory_needed;
            processes++;
            if (f->memory_free > 0 && f->memory_free < left)
                left = f->memory_free, limited = 0;
            if (f->memory_left < left)
                left = f->memory_left, limited = 1;
        }
        if (left == BL_DOCTOR_NO_LIMIT || (double)need / ((double)left + 1) <= worst)
            continue;
        worst = (double)need / ((double)left + 1);
        bl_say(out, need > left ? BL_DOCTOR_FAILED : BL_DOCTOR_OK,
               "%s: %llu process%s will take %sB, %sB %s", host, (unsigned long long)processes,
               processes == 1 ? "" : "es", bl_human((double)need, a), bl_human((double)left, b),
               limited ? "are left under the job's limit" : "are free");
        if (need > left && limited)
            bl_say_fix(out, "#SBATCH --mem=%lluG, or a smaller batch.micro",
                       (unsigned long long)(need / 1000000000 * 5 / 4 + 2));
        else if (need > left)
            bl_say_fix(out, "a smaller batch.micro%s, or nodes with more memory",
                       processes > 1 ? ", fewer processes a node (--ntasks-per-node)" : "");
    }
    if (worst == 0)
        bl_say(out, BL_DOCTOR_ABSENT, "free memory cannot be told here");
}

/* ---- GPUs */

enum { GPU_NAME = 48, GPUS_SEEN = 64 };

struct gpus_seen {
    char names[GPUS_SEEN][GPU_NAME]; /* number of /dev/nvidia<n>, or what the variable says */
    uint32_t count;
};

/* What a process can use. CUDA counts the devices that the process may open, so entry k of
 * CUDA_VISIBLE_DEVICES is the k-th of those; where there are no device files to be seen, entries
 * stand for themselves. An entry that is no device ends the list, as for CUDA. */
static void list_gpus(const struct bl_doctor_facts *f, struct gpus_seen *out)
{
    int devices[64], n = 0;
    char text[sizeof f->gpus_visible], *rest = NULL;
    out->count = 0;
    for (int i = 0; i < 64; i++) {
        if (f->gpus_usable >> i & 1)
            devices[n++] = i;
    }
    if (!f->gpus_visible_set) {
        for (int i = 0; i < n; i++)
            snprintf(out->names[out->count++], GPU_NAME, "%d", devices[i]);
        return;
    }
    snprintf(text, sizeof text, "%s", f->gpus_visible);
    for (char *word = strtok_r(text, ", ", &rest); word != NULL && out->count < GPUS_SEEN;
         word = strtok_r(NULL, ", ", &rest)) {
        int64_t k;
        int number = bl_parse_int(word, &k) == 0;
        if ((number && (k < 0 || (n > 0 && k >= n))) || strcmp(word, "NoDevFiles") == 0)
            return;
        if (number && n > 0)
            snprintf(out->names[out->count++], GPU_NAME, "%d", devices[k]);
        else
            snprintf(out->names[out->count++], GPU_NAME, "%.*s", GPU_NAME - 1, word);
    }
}

static int same_list(const struct gpus_seen *a, const struct gpus_seen *b)
{
    if (a->count != b->count)
        return 0;
    for (uint32_t i = 0; i < a->count; i++) {
        if (strcmp(a->names[i], b->names[i]) != 0)
            return 0;
    }
    return 1;
}

static int hides(const struct bl_doctor_facts *f, const void *context)
{
    struct gpus_seen seen;
    (void)context;
    if (f->gpus == 0 && !f->gpus_of_job)
        return 0;
    list_gpus(f, &seen);
    return seen.count == 0;
}

/* The GPU that process p takes: its own first one where lists of the node differ, else the one at
 * its index on the node. */
static const char *gpu_of(const struct bl_doctor_case *c, uint32_t p, struct gpus_seen *mine)
{
    struct gpus_seen other;
    uint32_t local = 0;
    int same = 1;
    list_gpus(&c->facts[p], mine);
    if (mine->count == 0)
        return NULL;
    for (uint32_t q = 0; q < c->count; q++) {
        if (q == p || strcmp(c->facts[q].host, c->facts[p].host) != 0)
            continue;
        list_gpus(&c->facts[q], &other);
        same &= same_list(mine, &other);
        local += q < p;
    }
    return mine->names[same ? local % mine->count : 0];
}

/* Two processes of a node with one GPU; 1 and a finding when there are such. */
static int shared_gpu(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    struct gpus_seen a, b;
    for (uint32_t p = 0; p < c->count; p++) {
        const struct bl_doctor_facts *f = &c->facts[p];
        const char *mine = gpu_of(c, p, &a);
        for (uint32_t q = p + 1; mine != NULL && q < c->count; q++) {
            if (strcmp(c->facts[q].host, f->host) != 0)
                continue;
            const char *theirs = gpu_of(c, q, &b);
            if (theirs == NULL || strcmp(mine, theirs) != 0)
                continue;
            /* Who asked for GPUs means to use them. */
            int meant = f->gpus_visible_set || f->gpus_of_job;
            bl_say(out, meant ? BL_DOCTOR_FAILED : BL_DOCTOR_WARNING,
                   "%s: processes %u and %u both get GPU %s (CUDA_VISIBLE_DEVICES %s%s)", f->host,
                   p, q, mine, f->gpus_visible_set ? "= " : "is not set",
                   f->gpus_visible_set ? f->gpus_visible : "");
            bl_say_fix(out,
                       "srun --gpus-per-task=1 ..., or no more tasks a node than GPUs "
                       "(--ntasks-per-node=%u)",
                       a.count);
            return 1;
        }
    }
    return 0;
}

void bl_check_gpus(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    const struct bl_doctor_facts *first = NULL;
    struct gpus_seen seen;
    char hosts[256];
    for (uint32_t p = 0; p < c->count && first == NULL; p++) {
        const struct bl_doctor_facts *f = &c->facts[p];
        if (f->gpus != 0 || f->gpus_of_job || (f->gpus_visible_set && *f->gpus_visible != '\0'))
            first = f;
    }
    if (first == NULL) {
        bl_say(out, BL_DOCTOR_ABSENT, "no GPUs here");
    } else if (c->run->uses_cpu) {
        bl_say(out, BL_DOCTOR_ABSENT, "run.backend = \"cpu\"");
    } else if (shared_gpu(c, out)) {
        return;
    } else if (bl_doctor_hosts_where(c, hides, NULL, hosts, sizeof hosts) > 0) {
        const char *why = "CUDA_VISIBLE_DEVICES is empty";
        for (uint32_t p = 0; p < c->count; p++) {
            if (hides(&c->facts[p], NULL) && !c->facts[p].gpus_visible_set)
                why = "its device files may not be opened";
            else if (hides(&c->facts[p], NULL) && *c->facts[p].gpus_visible != '\0')
                why = "CUDA_VISIBLE_DEVICES names none of them";
        }
        bl_say(out, BL_DOCTOR_WARNING, "%s: the node has GPUs, but processes see none: %s", hosts,
               why);
        bl_say_fix(out, c->run->job > 0
                            ? "srun --gpus-per-task=1 ... (and #SBATCH --gpus-per-task=1), or "
                              "run.backend = \"cpu\" to do without"
                            : "unset CUDA_VISIBLE_DEVICES, or run.backend = \"cpu\" to do without");
    } else if (c->run->job > 0 && !first->gpus_visible_set && !first->gpus_of_job) {
        bl_say(out, BL_DOCTOR_WARNING,
               "%s has GPUs, but the job did not ask for any: others may be using them",
               first->host);
        bl_say_fix(out, "#SBATCH --gpus-per-task=1, or run.backend = \"cpu\" to do without");
    } else {
        list_gpus(first, &seen);
        bl_say(out, BL_DOCTOR_OK, "%s: %u visible to process 0 of the node%s", first->host,
               seen.count, c->count > 1 ? ", each process has its own" : "");
    }
}

/* ---- limits */

void bl_check_limits(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    char a[32], b[32];
    /* connections, plugins, data files; two descriptors a peer, and some room */
    uint64_t files = 64 + 2 * (uint64_t)c->count;
    int rdma = 0;
    for (uint32_t p = 0; p < c->count; p++) {
        const struct bl_doctor_facts *f = &c->facts[p];
        rdma |= f->rdma;
        if (f->file_size < c->run->checkpoint) {
            bl_say(out, BL_DOCTOR_FAILED,
                   "%s: files may have %sB (ulimit -f), a checkpoint takes %sB", f->host,
                   bl_human((double)f->file_size, a), bl_human((double)c->run->checkpoint, b));
            bl_say_fix(out, "ulimit -f unlimited (sbatch --propagate=NONE keeps the limits of "
                            "your shell out of the job)");
            return;
        }
        if (f->open_files < files) {
            bl_say(out, BL_DOCTOR_FAILED, "%s: %llu open files (ulimit -n), %llu may be needed",
                   f->host, (unsigned long long)f->open_files, (unsigned long long)files);
            bl_say_fix(out, "ulimit -n %llu", (unsigned long long)(files < 1024 ? 1024 : files));
            return;
        }
    }
    for (uint32_t p = 0; p < c->count; p++) {
        const struct bl_doctor_facts *f = &c->facts[p];
        if (f->rdma && c->count > 1 && f->locked_memory != BL_DOCTOR_NO_LIMIT) {
            bl_say(out, BL_DOCTOR_WARNING,
                   "%s: %sB may be locked (ulimit -l); RDMA needs more, and messages then go "
                   "through TCP",
                   f->host, bl_human((double)f->locked_memory, a));
            bl_say_fix(out, "ulimit -l unlimited; in a job: LimitMEMLOCK=infinity of slurmd, or "
                            "PropagateResourceLimitsExcept=MEMLOCK");
            return;
        }
    }
    bl_say(out, BL_DOCTOR_OK, "%llu open files%s%s", (unsigned long long)c->facts[0].open_files,
           c->facts[0].file_size == BL_DOCTOR_NO_LIMIT ? ", file size unlimited"
                                                       : ", files large enough",
           rdma ? ", RDMA there" : "");
}
