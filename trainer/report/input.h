/* A run as the report sees it: its metrics, its header, its configuration. */
#ifndef BL_REPORT_INPUT_H
#define BL_REPORT_INPUT_H

#include <jansson.h>

#include "report/series.h"
#include "report/spikes.h"

/* "optimizer.lr" -> "0.002". Elements of lists are named by their instance, plugin or number. */
struct bl_fact {
    char *key, *value;
};

struct bl_facts {
    struct bl_fact *items;
    size_t count, capacity;
};

struct bl_input {
    char *directory; /* as it was given, without slashes at the end */
    char *path;      /* absolute */
    char *label;     /* short name; differs from those of the other runs */
    struct bl_series series;
    struct bl_spikes loss_spikes, norm_spikes; /* of loss/ce and optim/grad_norm */
    json_t *header;                            /* an object; NULL when there is none that reads */
    char *config_text;                         /* config.cfg; NULL when it cannot be read */
    struct bl_facts config, facts;             /* config.cfg; header.json */
};

/* What cannot be read beside the metrics is warned about and left out. */
int bl_input_read(const char *directory, struct bl_input *out, struct bl_error *err);
void bl_input_free(struct bl_input *in);
/* Gives all their labels: what differs in their paths. Refuses the same run twice. */
int bl_inputs_label(struct bl_input *in, size_t count, struct bl_error *err);
/* NULL when there is no such key. */
const char *bl_facts_find(const struct bl_facts *f, const char *key);

#endif
