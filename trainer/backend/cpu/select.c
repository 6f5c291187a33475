/* Which copy of the CPU ops runs on this processor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/ops.h"
#include "base/memory.h"

struct choice {
    const char *name;
    const struct bl_backend_ops *ops;
    int usable;
};

#define CHOICES 3

/* Best first. */
static void choices(struct choice c[CHOICES])
{
    memset(c, 0, CHOICES * sizeof *c);
    c[0].name = "avx512";
    c[1].name = "avx2";
    c[2] = (struct choice){"scalar", &bl_cpu_ops_scalar, 1};
#if defined(__x86_64__)
    __builtin_cpu_init();
    c[0].ops = &bl_cpu_ops_avx512;
    c[1].ops = &bl_cpu_ops_avx2;
    c[1].usable = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    c[0].usable = c[1].usable && __builtin_cpu_supports("avx512f") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
#endif
}

static int choose(const char *isa, struct choice *out, struct bl_error *err)
{
    struct choice c[CHOICES];
    const char *forced = getenv("BALLAST_ISA"), *from = "isa";

    if (forced && *forced) {
        isa = forced;
        from = "BALLAST_ISA";
    }
    if (!isa || !*isa)
        isa = "auto";
    choices(c);
    for (int i = 0; i < CHOICES; i++) {
        if (strcmp(isa, "auto") == 0 ? c[i].usable : strcmp(isa, c[i].name) == 0) {
            if (!c[i].usable)
                return bl_error_set(err, BL_EXIT_USAGE,
                                    "%s = \"%s\": this processor does not have it; use \"auto\"",
                                    from, isa);
            *out = c[i];
            return 0;
        }
    }
    return bl_error_set(err, BL_EXIT_USAGE,
                        "%s = \"%s\": use \"auto\", \"scalar\", \"avx2\" or \"avx512\"", from, isa);
}

int bl_backend_cpu(uint32_t threads, const char *isa, struct bl_backend **out, struct bl_error *err)
{
    struct choice chosen = {NULL, NULL, 0};
    struct bl_backend *b = NULL;
    struct bl_cpu *cpu = NULL;
    char name[64];

    if (choose(isa, &chosen, err) != 0 || bl_cpu_gemm_check(bl_pool_wanted(threads), err) != 0)
        return -1;
    b = bl_alloc(1, sizeof *b);
    cpu = bl_alloc(1, sizeof *cpu);
    if (!b || !cpu) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory for the CPU backend");
        goto fail;
    }
    if (bl_pool_make(threads, &cpu->pool, err) != 0)
        goto fail;
    snprintf(cpu->isa, sizeof cpu->isa, "%s", chosen.name);
    b->ops = chosen.ops;
    b->device = BL_DEVICE_CPU;
    b->state = cpu;
    snprintf(b->description, sizeof b->description, "cpu: %u thread%s, %s, %s",
             bl_pool_threads(cpu->pool), bl_pool_threads(cpu->pool) == 1 ? "" : "s", cpu->isa,
             bl_cpu_gemm_name(name));
    *out = b;
    return 0;

fail:
    if (cpu)
        bl_pool_free(cpu->pool);
    bl_free(cpu);
    bl_free(b);
    return -1;
}

void bl_backend_destroy(struct bl_backend *b)
{
    if (b)
        b->ops->destroy(b);
}
