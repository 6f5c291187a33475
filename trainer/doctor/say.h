/* What checks share: findings in words, hosts in lists. */
#ifndef BL_DOCTOR_SAY_H
#define BL_DOCTOR_SAY_H

#include "doctor/doctor.h"

void bl_say(struct bl_doctor_finding *out, int state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void bl_say_fix(struct bl_doctor_finding *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Why process 0 knows nothing of the run: no config, or one that failed there. */
const char *bl_doctor_no_config(const struct bl_doctor_case *c);

/* Whether process p is the first of its host, by number. */
int bl_doctor_first_of_host(const struct bl_doctor_case *c, uint32_t p);
uint32_t bl_doctor_hosts(const struct bl_doctor_case *c);

typedef int bl_doctor_is_f(const struct bl_doctor_facts *f, const void *context);
/* Hosts with a process that `is`: how many; their names "n1, n2 and 5 more" in text. */
uint32_t bl_doctor_hosts_where(const struct bl_doctor_case *c, bl_doctor_is_f *is,
                               const void *context, char *text, size_t size);

#endif
