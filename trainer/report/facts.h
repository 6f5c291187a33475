/* Trees of keys made flat, so that two of them can be compared. 0, or -1 without memory. */
#ifndef BL_REPORT_FACTS_H
#define BL_REPORT_FACTS_H

#include "config/node.h"
#include "report/input.h"

int bl_facts_of_config(const struct bl_node *root, struct bl_facts *out);
int bl_facts_of_json(const json_t *root, struct bl_facts *out);
void bl_facts_free(struct bl_facts *f);

#endif
