/* doctor: each check over made-up facts of 2 nodes with 2 processes each: a healthy cluster first,
 * then one with a single thing wrong, which must be found with its place and its fix. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"
#include "doctor/doctor.h"

enum { PROCESSES = 4 };
#define GB 1000000000ull

struct cluster {
    struct bl_doctor_facts facts[PROCESSES];
    struct bl_doctor_run run;
    struct bl_doctor_case all;
    struct bl_doctor_finding found;
};

/* Made anew for every test: n1 runs processes 0 and 1, n2 runs 2 and 3; 8 CPUs and 2 GPUs each. */
static struct cluster *healthy(void)
{
    static struct cluster c;
    memset(&c, 0, sizeof c);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        struct bl_doctor_facts *f = &c.facts[p];
        snprintf(f->host, sizeof f->host, "n%u", 1 + p / 2);
        strcpy(f->version, "0.1.0");
        strcpy(f->isa, "avx2, OpenBLAS 0.3.21");
        f->program = 0x11;
        f->config = 0x22;
        f->plugin_count = 2;
        strcpy(f->plugins[0].name, "optimizer.adamw");
        strcpy(f->plugins[1].name, "regularizer.z_loss");
        f->plugins[0].checksum = 0x33;
        f->plugins[1].checksum = 0x44;
        f->has_clock = p == 2;
        f->clock = 0.0001;
        f->clock_error = 0.00005;
        f->cpus[0] = p % 2 == 0 ? 0x0f : 0xf0;
        f->cpus_of_job = 8;
        f->threads = 4;
        f->memory_needed = 3 * GB;
        f->memory_free = 16 * GB;
        f->memory_left = BL_DOCTOR_NO_LIMIT;
        f->gpus = f->gpus_usable = 3;
        f->gpus_of_job = f->gpus_visible_set = 1;
        snprintf(f->gpus_visible, sizeof f->gpus_visible, "%u", p % 2);
        f->file_size = f->locked_memory = BL_DOCTOR_NO_LIMIT;
        f->open_files = 1024;
        f->sight = BL_SIGHT_SEEN;
        f->lock = BL_LOCK_HOLDS;
    }
    c.run = (struct bl_doctor_run){.has_config = 1,
                                   .directory = "/scratch/runs/a",
                                   .checkpoint = GB,
                                   .copies = 4,
                                   .disk_free = 100 * GB,
                                   .inodes_free = 1000000,
                                   .directory_error = "",
                                   .checkpoint_every = 100,
                                   .steps = 10000,
                                   .step_seconds = 1,
                                   .method = "pmi2",
                                   .transport = "UCX 1.13.1 tcp",
                                   .world_error = "",
                                   .step_tasks = 4,
                                   .job_tasks = 4,
                                   .job = 12,
                                   .remaining = 3600,
                                   .requeue = 1,
                                   .batch = 1,
                                   .kill_wait = 30};
    c.all = (struct bl_doctor_case){c.facts, PROCESSES, &c.run};
    return &c;
}

typedef void look_f(const struct bl_doctor_case *c, struct bl_doctor_finding *out);

static void expect(struct cluster *c, look_f *look, int state, const char *seen, const char *fix)
{
    memset(&c->found, 0, sizeof c->found);
    look(&c->all, &c->found);
    if (c->found.state != state || strstr(c->found.seen, seen) == NULL ||
        strstr(c->found.fix, fix) == NULL)
        fail_msg("state %d (want %d): \"%s\" (want \"%s\"), fix \"%s\" (want \"%s\")",
                 c->found.state, state, c->found.seen, seen, c->found.fix, fix);
    /* Whoever is told of something wrong is told what to do, and nobody else is. */
    int wrong = state == BL_DOCTOR_WARNING || state == BL_DOCTOR_FAILED;
    assert_int_equal(*c->found.fix != '\0', wrong);
}

static void finds_nothing(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    for (size_t i = 0; i < bl_doctor_check_count; i++)
        expect(c, bl_doctor_checks[i].look, BL_DOCTOR_OK, "", "");
}

/* Without a config, alone, outside of Slurm: nothing is wrong either. */
static void nothing_to_look_at(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    memset(&c->facts[0].plugins, 0, sizeof c->facts[0].plugins);
    c->all.count = 1;
    c->facts[0].gpus = c->facts[0].gpus_usable = 0;
    c->facts[0].gpus_of_job = c->facts[0].gpus_visible_set = 0;
    *c->facts[0].gpus_visible = '\0';
    c->facts[0].memory_needed = 0;
    c->facts[0].lock = BL_LOCK_UNKNOWN;
    c->run = (struct bl_doctor_run){.directory_error = "",
                                    .method = "alone",
                                    .transport = "",
                                    .world_error = "",
                                    .step_seconds = NAN,
                                    .remaining = NAN,
                                    .kill_wait = NAN,
                                    .requeue = -1,
                                    .batch = -1};
    for (size_t i = 0; i < bl_doctor_check_count; i++) {
        bl_doctor_checks[i].look(&c->all, &c->found);
        if (c->found.state != BL_DOCTOR_OK && c->found.state != BL_DOCTOR_ABSENT)
            fail_msg("%s: %s", bl_doctor_checks[i].name, c->found.seen);
    }
    expect(c, bl_check_processes, BL_DOCTOR_OK, "one, on n1; no Slurm job", "");
}

static void processes(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    expect(c, bl_check_processes, BL_DOCTOR_OK, "4 on 2 hosts, met through pmi2; UCX", "");
    c->all.count = 1;
    expect(c, bl_check_processes, BL_DOCTOR_WARNING, "the job has 4 tasks", "srun --mpi=pmi2");
    c->run.world_error = "each of the 4 tasks is alone";
    c->run.method = "";
    expect(c, bl_check_processes, BL_DOCTOR_FAILED, "each of the 4", "srun --mpi=pmi2");
}

static void setup_of_one_host(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    c->facts[3].setup_code = BL_EXIT_DATA;
    strcpy(c->facts[3].setup_error, "/data/a.bin: no such file");
    expect(c, bl_check_setup, BL_DOCTOR_FAILED, "not on n2: /data/a.bin", "every node sees");
}

static void programs(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    strcpy(c->facts[2].isa, "avx512, OpenBLAS 0.3.21");
    expect(c, bl_check_program, BL_DOCTOR_WARNING, "n2 compute with \"avx512", "BALLAST_ISA");
    c->facts[3].program = 0x12;
    expect(c, bl_check_program, BL_DOCTOR_FAILED, "another file on n2 than on n1", "on n2");
    strcpy(c->facts[2].version, "0.2.0");
    expect(c, bl_check_program, BL_DOCTOR_FAILED, "0.1.0 on n1, but 0.2.0 on n2", "same build");
}

static void configs(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    c->facts[3].config = 0x23;
    expect(c, bl_check_config, BL_DOCTOR_FAILED, "on n2 it is another one than on n1", "KEY=VALUE");
}

static void plugins(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    c->facts[2].plugins[1].checksum = 0x45;
    expect(c, bl_check_plugins, BL_DOCTOR_FAILED, "regularizer.z_loss is another file on n2",
           "copy the file of n1 to n2");
    assert_null(strstr(c->found.seen, "adamw"));
    c->facts[1].plugins[0].checksum = 0x34; /* one node, two files: by a path of its own */
    expect(c, bl_check_plugins, BL_DOCTOR_FAILED, "adamw is another file on n1", "plugin_path");
    assert_non_null(strstr(c->found.seen, "regularizer.z_loss on n2"));
}

static void clocks(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    c->facts[2].clock = -2.5;
    expect(c, bl_check_clock, BL_DOCTOR_WARNING, "n2: up to 2.5 s behind n1", "chronyc");
    c->facts[2].clock = 11;
    expect(c, bl_check_clock, BL_DOCTOR_FAILED, "n2: up to 11.0 s ahead of n1", "chronyc");
    c->facts[2].clock_error = 10.5; /* the answer took 21 s: that says nothing */
    expect(c, bl_check_clock, BL_DOCTOR_OK, "", "");
    c->all.count = 2;
    expect(c, bl_check_clock, BL_DOCTOR_ABSENT, "one host", "");
}

static void cpus(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    expect(c, bl_check_cpus, BL_DOCTOR_OK, "8 threads of 2 processes on 8 CPUs", "");
    for (uint32_t p = 0; p < PROCESSES; p++)
        c->facts[p].threads = 0; /* as many as it may use: 4 */
    expect(c, bl_check_cpus, BL_DOCTOR_OK, "8 threads of 2 processes on 8 CPUs", "");
    c->facts[2].cpus[0] = c->facts[3].cpus[0] = 0xff; /* both take all of n2 */
    expect(c, bl_check_cpus, BL_DOCTOR_WARNING, "n2: 16 threads of 2 processes on 8 CPUs",
           "--cpus-per-task=4");
    c = healthy();
    c->facts[1].cpus[0] = 0x10; /* srun without --cpus-per-task */
    expect(c, bl_check_cpus, BL_DOCTOR_WARNING, "n1: 8 threads of 2 processes on 5 CPUs",
           "--cpus-per-task=4");
    c = healthy();
    c->facts[0].cpus_of_job = c->facts[1].cpus_of_job = 2; /* not bound to what they were given */
    expect(c, bl_check_cpus, BL_DOCTOR_WARNING, "n1: 8 threads of 2 processes on 2 CPUs",
           "run.threads = 1");
    c = healthy();
    c->facts[1].cpus[0] = 0x1; /* room on the node, but not for this one */
    c->facts[0].cpus[0] = 0xff;
    c->facts[0].threads = 2;
    expect(c, bl_check_cpus, BL_DOCTOR_WARNING, "n1: 4 threads on 1 CPU", "--cpus-per-task");
    c = healthy();
    c->facts[0].threads = c->facts[0].cpus_of_job = 1;
    c->all.count = 1;
    expect(c, bl_check_cpus, BL_DOCTOR_OK, "1 thread of 1 process on 1 CPU", "");
    c->facts[0].threads = 0; /* takes the four that nothing keeps it from */
    expect(c, bl_check_cpus, BL_DOCTOR_WARNING, "n1: 4 threads of 1 process on 1 CPU",
           "--cpus-per-task=4");
    c = healthy();
    c->all.count = 1;
    c->facts[0].cpus[0] = 1;
    c->facts[0].threads = 8;
    c->facts[0].cpus_of_job = 0;
    expect(c, bl_check_cpus, BL_DOCTOR_WARNING, "n1: 8 threads of 1 process on 1 CPU",
           "run.threads = 1");
}

static void memory(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    expect(c, bl_check_memory, BL_DOCTOR_OK, "2 processes will take 6.00GB, 16.0GB are free", "");
    c->facts[3].memory_free = 5 * GB;
    expect(c, bl_check_memory, BL_DOCTOR_FAILED, "n2: 2 processes will take 6.00GB",
           "fewer processes a node");
    c->facts[0].memory_left = c->facts[1].memory_left = 4 * GB;
    expect(c, bl_check_memory, BL_DOCTOR_FAILED,
           "n1: 2 processes will take 6.00GB, 4.00GB are "
           "left under the job's limit",
           "--mem=9G");
}

/* Every process sees the same list, as without --gpus-per-task. */
static void see(struct cluster *c, const char *visible, uint64_t usable)
{
    for (uint32_t p = 0; p < PROCESSES; p++) {
        c->facts[p].gpus_visible_set = visible != NULL;
        strcpy(c->facts[p].gpus_visible, visible != NULL ? visible : "");
        c->facts[p].gpus = 3;
        c->facts[p].gpus_usable = usable;
    }
}

static void gpus_shared(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    expect(c, bl_check_gpus, BL_DOCTOR_OK, "each process has its own", "");
    see(c, "0,1", 3); /* two for two: each takes the one at its index */
    expect(c, bl_check_gpus, BL_DOCTOR_OK, "2 visible", "");
    see(c, "1", 3);
    expect(c, bl_check_gpus, BL_DOCTOR_FAILED, "n1: processes 0 and 1 both get GPU 1",
           "--gpus-per-task=1");
    see(c, "GPU-5ebe9f43,-1,0", 3); /* CUDA stops at -1 */
    expect(c, bl_check_gpus, BL_DOCTOR_FAILED, "both get GPU GPU-5ebe9f43", "--ntasks-per-node=1");
    see(c, "0", 3); /* where device files are bound, both 0s are different devices */
    c->facts[0].gpus_usable = c->facts[2].gpus_usable = 1;
    c->facts[1].gpus_usable = c->facts[3].gpus_usable = 2;
    expect(c, bl_check_gpus, BL_DOCTOR_OK, "each process has its own", "");
    c->facts[3].gpus_usable = 1;
    expect(c, bl_check_gpus, BL_DOCTOR_FAILED, "n2: processes 2 and 3 both get GPU 0", "srun");
    c->run.uses_cpu = 1;
    expect(c, bl_check_gpus, BL_DOCTOR_ABSENT, "run.backend", "");
}

static void gpus_hidden(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    see(c, "", 3);
    expect(c, bl_check_gpus, BL_DOCTOR_WARNING, "n1, n2: the node has GPUs, but processes see none",
           "--gpus-per-task=1");
    see(c, "5", 3);
    expect(c, bl_check_gpus, BL_DOCTOR_WARNING, "names none of them", "--gpus-per-task=1");
    see(c, NULL, 0);
    expect(c, bl_check_gpus, BL_DOCTOR_WARNING, "may not be opened", "--gpus-per-task=1");
    see(c, NULL, 3); /* nobody asked, nothing hides them */
    for (uint32_t p = 0; p < PROCESSES; p++)
        c->facts[p].gpus_of_job = 0;
    expect(c, bl_check_gpus, BL_DOCTOR_WARNING, "did not ask", "--gpus-per-task=1");
    see(c, "", 3);
    c->run.job = 0;
    expect(c, bl_check_gpus, BL_DOCTOR_WARNING, "is empty", "unset CUDA_VISIBLE_DEVICES");
}

static void limits(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    c->facts[2].rdma = 1;
    expect(c, bl_check_limits, BL_DOCTOR_OK, "RDMA", "");
    c->facts[2].locked_memory = 8 << 20;
    expect(c, bl_check_limits, BL_DOCTOR_WARNING, "n2: 8.39MB may be locked", "ulimit -l");
    c->facts[1].open_files = 70;
    expect(c, bl_check_limits, BL_DOCTOR_FAILED, "n1: 70 open files", "ulimit -n 1024");
    c->facts[0].file_size = GB / 2;
    expect(c, bl_check_limits, BL_DOCTOR_FAILED, "n1: files may have 500MB", "ulimit -f unlimited");
}

static void directory(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    c->facts[3].write_error = EROFS;
    expect(c, bl_check_directory, BL_DOCTOR_FAILED, "cannot be written from n2: Read-only",
           "run.dir");
    c->facts[2].sight = BL_SIGHT_MISSING;
    expect(c, bl_check_directory, BL_DOCTOR_FAILED, "what n1 writes there is not seen by n2",
           "all nodes share");
    c->run.directory_error = "cannot make the folder /x: Permission denied";
    expect(c, bl_check_directory, BL_DOCTOR_FAILED, "Permission denied", "run.dir");
}

static void locks(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    c->facts[2].lock = BL_LOCK_LOCAL;
    expect(c, bl_check_locks, BL_DOCTOR_WARNING, "a lock of n1 does not keep out n2", "singleton");
    c->facts[0].lock = BL_LOCK_NONE;
    expect(c, bl_check_locks, BL_DOCTOR_WARNING, "has no locks", "flock");
}

static void disk(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    c->run.disk_free = 4 * GB;
    expect(c, bl_check_disk, BL_DOCTOR_OK, "4 checkpoints of 1.00GB take 4.00GB", "");
    c->run.disk_free = 3 * GB;
    expect(c, bl_check_disk, BL_DOCTOR_FAILED, "3.00GB are free", "run.keep = 2");
    c->run.present = GB; /* one is there already */
    expect(c, bl_check_disk, BL_DOCTOR_OK, "", "");
    c->run.disk_free = GB / 2;
    expect(c, bl_check_disk, BL_DOCTOR_FAILED, "500MB are free", "more room");
    c->run.disk_free = 100 * GB;
    c->run.inodes_free = 20;
    expect(c, bl_check_disk, BL_DOCTOR_FAILED, "20 more files", "remove files");
}

static void time_limit(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    expect(c, bl_check_time, BL_DOCTOR_OK, "60 minutes are left, a checkpoint comes every 100 s",
           "");
    c->run.step_seconds = 40;
    expect(c, bl_check_time, BL_DOCTOR_FAILED, "a checkpoint comes every 67 minutes",
           "run.checkpoint_every = 22"); /* four in the hour: 900 s of 40 s each */
    c->run.steps = 50;                   /* the run ends before that */
    expect(c, bl_check_time, BL_DOCTOR_OK, "", "");
    c->run.step_seconds = NAN;
    expect(c, bl_check_time, BL_DOCTOR_OK, "unknown until the first steps", "");
    c->run.checkpoint_every = 0;
    expect(c, bl_check_time, BL_DOCTOR_WARNING, "one checkpoint, at the end", "checkpoint_every");
    c->run.remaining = INFINITY;
    expect(c, bl_check_time, BL_DOCTOR_OK, "no time limit", "");
}

static void requeue(void **state)
{
    struct cluster *c = healthy();
    (void)state;
    expect(c, bl_check_requeue, BL_DOCTOR_OK, "KillWait 30 s", "");
    c->run.step_seconds = 45;
    expect(c, bl_check_requeue, BL_DOCTOR_WARNING, "kills 30 s after TERM", "--signal=B:USR1@180");
    c->run.requeue = 0;
    expect(c, bl_check_requeue, BL_DOCTOR_WARNING, "not started again", "#SBATCH --requeue");
    c->run.batch = 0;
    expect(c, bl_check_requeue, BL_DOCTOR_ABSENT, "not a batch job", "");
}

/* A long list of hosts is counted, and fits. */
static void many_hosts(void **state)
{
    enum { MANY = 300 };
    struct cluster *c = healthy();
    struct bl_doctor_facts *facts = calloc(MANY, sizeof *facts);
    (void)state;
    assert_non_null(facts);
    for (uint32_t p = 0; p < MANY; p++) {
        facts[p] = c->facts[0];
        snprintf(facts[p].host, sizeof facts[p].host, "a-node-with-quite-a-long-name-%u", p);
        facts[p].sight = p > 0 ? BL_SIGHT_MISSING : BL_SIGHT_SEEN;
    }
    c->all = (struct bl_doctor_case){facts, MANY, &c->run};
    expect(c, bl_check_directory, BL_DOCTOR_FAILED, "and 293 more", "all nodes share");
    free(facts);
}

/* ---- facts */

static void put(const char *path, const char *text)
{
    assert_int_equal(bl_write_file(path, text, strlen(text), NULL), 0);
}

static void device_files(void **state)
{
    char root[] = "/tmp/doctor_test.XXXXXX", path[128];
    uint64_t there, usable;
    (void)state;
    assert_non_null(mkdtemp(root));
    for (int i = 0; i < 4; i += 3) {
        snprintf(path, sizeof path, "%s/nvidia%d", root, i);
        put(path, "");
    }
    snprintf(path, sizeof path, "%s/nvidiactl", root);
    put(path, "");
    bl_doctor_look_gpus(root, &there, &usable);
    assert_int_equal(there, 9);
    assert_int_equal(usable, 9);
    snprintf(path, sizeof path, "rm -rf %s", root);
    assert_int_equal(system(path), 0);
}

static void step_seconds(void **state)
{
    char path[] = "/tmp/doctor_test.XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_true(isnan(bl_doctor_step_seconds(path)));
    put(path, "{\"step\":1,\"perf/step_seconds\":90.0}\n{\"step\":2,\"perf/step_seconds\":2.0}\n"
              "{\"step\":2,\"loss/val\":3.0}\n{\"step\":3,\"perf/step_seconds\":2.5}\n"
              "{\"step\":4,\"perf/step_seconds\":\"nan\"}\n{\"step\":5,\"perf/st");
    assert_true(bl_doctor_step_seconds(path) == 2.5); /* of 2.0, 2.5, 90.0 */
    assert_int_equal(unlink(path), 0);
    assert_true(isnan(bl_doctor_step_seconds(path)));
}

static void scontrol(void **state)
{
    static const char job[] = "JobId=12 JobName=Requeue=7 Requeue=1 Restarts=0 BatchFlag=1";
    static const char config[] = "KillOnBadExit           = 0\nKillWait                = 5 sec\n";
    char value[8];
    (void)state;
    assert_int_equal(bl_doctor_scontrol(job, "Requeue", value, sizeof value), 0);
    assert_string_equal(value, "1");
    assert_int_equal(bl_doctor_scontrol(config, "KillWait", value, sizeof value), 0);
    assert_string_equal(value, "5");
    assert_int_equal(bl_doctor_scontrol(job, "Kill", value, sizeof value), -1);
    assert_int_equal(bl_doctor_scontrol("", "Requeue", value, sizeof value), -1);
}

/* In one process: the folder is made, tried and taken away again, what was there before stays. */
static void folder(void **state)
{
    char root[] = "/tmp/doctor_test.XXXXXX", path[128], text[1024];
    struct bl_doctor_facts mine = {0};
    struct bl_doctor_run run = {0};
    struct stat st;
    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof path, "%s/runs/a", root);
    assert_int_equal(bl_doctor_try_folder(NULL, path, 1, &mine, &run, text, sizeof text, NULL), 0);
    assert_string_equal(run.directory_error, "");
    assert_int_equal(mine.sight, BL_SIGHT_SEEN);
    assert_int_equal(mine.lock, BL_LOCK_HOLDS);
    assert_true(run.disk_free > 0 && run.disk_free != BL_DOCTOR_NO_LIMIT);
    snprintf(path, sizeof path, "%s/runs", root);
    assert_int_equal(stat(path, &st), -1);
    put(path, "a file");
    strcat(path, "/a");
    assert_int_equal(bl_doctor_try_folder(NULL, path, 1, &mine, &run, text, sizeof text, NULL), 0);
    assert_non_null(strstr(run.directory_error, root));
    *strrchr(path, '/') = '\0';
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(root), 0); /* nothing is left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_nothing), cmocka_unit_test(nothing_to_look_at),
        cmocka_unit_test(processes),     cmocka_unit_test(setup_of_one_host),
        cmocka_unit_test(programs),      cmocka_unit_test(configs),
        cmocka_unit_test(plugins),       cmocka_unit_test(clocks),
        cmocka_unit_test(cpus),          cmocka_unit_test(memory),
        cmocka_unit_test(gpus_shared),   cmocka_unit_test(gpus_hidden),
        cmocka_unit_test(limits),        cmocka_unit_test(directory),
        cmocka_unit_test(locks),         cmocka_unit_test(disk),
        cmocka_unit_test(time_limit),    cmocka_unit_test(requeue),
        cmocka_unit_test(many_hosts),    cmocka_unit_test(device_files),
        cmocka_unit_test(step_seconds),  cmocka_unit_test(scontrol),
        cmocka_unit_test(folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
