/* Facts of one process: its node, its limits, its program. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <xxhash.h>

#include "attempts.h"
#include "base/memory.h"
#include "base/strings.h"
#include "doctor/doctor.h"

static uint64_t soft_limit(int which)
{
    struct rlimit l;
    if (getrlimit((__rlimit_resource_t)which, &l) != 0 || l.rlim_cur == RLIM_INFINITY)
        return BL_DOCTOR_NO_LIMIT;
    return l.rlim_cur;
}

void bl_doctor_look_gpus(const char *dev, uint64_t *there, uint64_t *usable)
{
    char path[512];
    *there = *usable = 0;
    for (int i = 0; i < 64; i++) {
        snprintf(path, sizeof path, "%s/nvidia%d", dev, i);
        *there |= (uint64_t)(access(path, F_OK) == 0) << i;
        /* access() asks the control group's list of devices too */
        *usable |= (uint64_t)(access(path, R_OK | W_OK) == 0) << i;
    }
}

static void look_gpus(const char *dev, struct bl_doctor_facts *out)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    bl_doctor_look_gpus(dev, &out->gpus, &out->gpus_usable);
    out->gpus_visible_set = visible != NULL;
    snprintf(out->gpus_visible, sizeof out->gpus_visible, "%s", visible != NULL ? visible : "");
    out->gpus_of_job = bl_environment_number("SLURM_GPUS_ON_NODE") > 0 ||
                       getenv("SLURM_JOB_GPUS") != NULL || getenv("SLURM_STEP_GPUS") != NULL;
}

/* ---- all of it */

static void look_cpus(struct bl_doctor_facts *out)
{
    cpu_set_t *set = CPU_ALLOC(BL_DOCTOR_CPUS);
    size_t size = CPU_ALLOC_SIZE(BL_DOCTOR_CPUS);
    if (set != NULL && sched_getaffinity(0, size, set) == 0) {
        for (size_t i = 0; i < BL_DOCTOR_CPUS; i++)
            out->cpus[i / 64] |= (uint64_t)(CPU_ISSET_S(i, size, set) != 0) << i % 64;
    }
    CPU_FREE(set);
    out->cpus_of_job = bl_environment_number("SLURM_CPUS_ON_NODE");
}

void bl_doctor_look(const char *dev, struct bl_doctor_facts *out)
{
    *out = (struct bl_doctor_facts){0};
    if (gethostname(out->host, sizeof out->host - 1) != 0)
        strcpy(out->host, "localhost");
    snprintf(out->version, sizeof out->version, "%s", BL_VERSION);
    if (bl_checksum_file("/proc/self/exe", &out->program) != 0)
        out->program = 0; /* unknown */
    look_cpus(out);
    out->memory_free = bl_memory_of_system();
    out->memory_left = bl_memory_of_group();
    look_gpus(dev, out);
    out->file_size = soft_limit(RLIMIT_FSIZE);
    out->open_files = soft_limit(RLIMIT_NOFILE);
    out->locked_memory = soft_limit(RLIMIT_MEMLOCK);
    out->rdma = access("/dev/infiniband", F_OK) == 0;
}

static int add_plugin(void *context, const char *key, const struct bl_plugin_instance *plugin)
{
    struct bl_doctor_facts *f = context;
    uint64_t sum = bl_library_checksum(plugin->library);
    if (f->plugin_count == BL_DOCTOR_PLUGINS) {
        struct bl_doctor_plugin *last = &f->plugins[BL_DOCTOR_PLUGINS - 1];
        snprintf(last->name, sizeof last->name, "one of the others");
        last->checksum = last->checksum * 31 + sum;
        return 0;
    }
    struct bl_doctor_plugin *p = &f->plugins[f->plugin_count++];
    snprintf(p->name, sizeof p->name, "%s", key);
    p->checksum = sum;
    return 0;
}

int bl_doctor_look_setup(const struct bl_setup *s, uint32_t processes, struct bl_doctor_facts *out,
                         struct bl_budget *b, struct bl_error *err)
{
    struct bl_text text = {0};
    struct bl_backend *backend;
    if (bl_backend_cpu((uint32_t)s->config->run.threads, "auto", &backend, err) < 0)
        return -1;
    const char *what = strstr(backend->description, ", ");
    snprintf(out->isa, sizeof out->isa, "%s", what != NULL ? what + 2 : backend->description);
    int rc = bl_budget_make(s, backend, processes, b, err);
    bl_backend_destroy(backend);
    if (rc < 0 || bl_setup_config_text(s, &text, err) < 0) {
        bl_text_free(&text);
        return -1;
    }
    out->config = XXH64(text.text, text.length, 0);
    bl_text_free(&text);
    out->memory_needed = b->total;
    out->threads = s->config->run.threads;
    bl_attempts_each_plugin(s, add_plugin, out);
    return 0;
}
