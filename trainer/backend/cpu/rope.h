/* Angles of the rotary embedding, made once per (theta, head size, time) and kept. */
#ifndef BL_BACKEND_CPU_ROPE_H
#define BL_BACKEND_CPU_ROPE_H

#include "backend/cpu/cpu.h"

/* (time, head_dim / 2) cosines and sines of pos theta^(-2i/D), computed in fp64. */
struct bl_rope_table {
    struct bl_rope_table *next;
    double theta;
    uint64_t head_dim, time;
    float *cosine, *sine;
};

/* Ends the process with a log line when there is no memory: ops cannot fail. */
const struct bl_rope_table *bl_rope_table(struct bl_cpu *cpu, const struct bl_rope *a);
void bl_rope_free(struct bl_rope_table *tables); /* the whole list; NULL is fine */

#endif
