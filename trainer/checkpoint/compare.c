#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/strings.h"
#include "checkpoint/internal.h"
#include "checkpoint/merged.h"
#include "checkpoint/safetensors.h"

/* The tensors of a .safetensors file, or of a checkpoint folder's model and optimizer files. */
struct set {
    struct bl_safetensors *file;
    struct bl_merged *merged; /* NULL: a file */
    size_t count;
};

static void close_set(struct set *s)
{
    bl_safetensors_close(s->file);
    bl_merged_close(s->merged);
}

/* A folder that holds no checkpoint: most often the run's is named. */
static int refuse_folder(const char *path, struct bl_error *err)
{
    char *checkpoints = bl_format("%s/checkpoints", path);
    struct stat st;

    if (checkpoints && stat(checkpoints, &st) == 0 && S_ISDIR(st.st_mode))
        bl_error_set(err, BL_EXIT_CHECKPOINT,
                     "%s: a run, not a checkpoint; name one of the folders in %s", path,
                     checkpoints);
    else
        bl_error_set(err, BL_EXIT_CHECKPOINT,
                     "%s: no model.safetensors in it; name a .safetensors file or a checkpoint "
                     "(runs/NAME/checkpoints/STEP)",
                     path);
    free(checkpoints);
    return -1;
}

static int open_folder(const char *path, struct set *s, struct bl_error *err)
{
    char *model = bl_format("%s/%s", path, bl_checkpoint_model);
    uint32_t shards = bl_merged_shards(path);
    struct stat st;
    int opened;

    if (!model)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
    if (stat(model, &st) != 0 && errno == ENOENT)
        opened = refuse_folder(path, err);
    else
        opened = bl_safetensors_open(model, &s->file, err);
    free(model);
    /* Without any it is the error of the file that is not there. */
    return opened == 0 ? bl_merged_open(path, shards ? shards : 1, &s->merged, err) : -1;
}

static int open_set(const char *path, struct set *s, struct bl_error *err)
{
    struct stat st;

    memset(s, 0, sizeof(*s));
    if (stat(path, &st) != 0)
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode) ? open_folder(path, s, err) != 0
                            : bl_safetensors_open(path, &s->file, err) != 0) {
        close_set(s);
        return -1;
    }
    s->count = bl_safetensors_count(s->file) + (s->merged ? bl_merged_count(s->merged) : 0);
    return 0;
}

static const struct bl_tensor *get(const struct set *s, size_t i)
{
    size_t first = bl_safetensors_count(s->file);

    return i < first ? bl_safetensors_tensor(s->file, i) : bl_merged_tensor(s->merged, i - first);
}

static const struct bl_tensor *find(const struct set *s, const char *name)
{
    const struct bl_tensor *t = bl_safetensors_find(s->file, name);

    return t || !s->merged ? t : bl_merged_find(s->merged, name);
}

/* With its numbers in one piece; *own is to be freed after. NULL: no memory. */
static const struct bl_tensor *whole(const struct set *s, const struct bl_tensor *t,
                                     struct bl_tensor *copy, void **own)
{
    *own = NULL;
    if (t->data || t->count == 0)
        return t;
    *own = malloc(t->count * bl_checkpoint_element_bytes(t->dtype));
    if (!*own)
        return NULL;
    bl_merged_read(s->merged, t, 0, t->count, *own);
    *copy = *t;
    copy->data = *own;
    return copy;
}

static double element(const struct bl_tensor *t, uint64_t i)
{
    uint32_t bits;
    float value;

    if (t->dtype == BL_FP64)
        return ((const double *)t->data)[i];
    if (t->dtype == BL_FP32)
        return (double)((const float *)t->data)[i];
    bits = (uint32_t)((const uint16_t *)t->data)[i] << 16;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

static const char *dtype_text(const struct bl_tensor *t)
{
    return t->dtype == BL_FP64 ? "F64" : t->dtype == BL_FP32 ? "F32" : "BF16";
}

static void shape_text(const struct bl_tensor *t, char *buffer, size_t size)
{
    size_t n = (size_t)snprintf(buffer, size, "(");

    for (uint32_t i = 0; i < t->ndim; i++)
        n += (size_t)snprintf(buffer + n, size - n, "%s%" PRIu64, i ? ", " : "", t->dims[i]);
    snprintf(buffer + n, size - n, ")");
}

static int same_shape(const struct bl_tensor *a, const struct bl_tensor *b)
{
    int same = a->ndim == b->ndim;

    for (uint32_t i = 0; same && i < a->ndim; i++)
        same = a->dims[i] == b->dims[i];
    return same;
}

/* Prints one line; 1 when the two differ. A NaN against a number counts apart: no difference of
 * the others must hide in it. */
static int compare_one(const struct bl_tensor *a, const struct bl_tensor *b, int width, FILE *out)
{
    double largest = 0.0, squares = 0.0;
    uint64_t unequal = 0, not_finite = 0;
    char left[100], right[100];

    fprintf(out, "%-*s  ", width, a->name);
    if (!same_shape(a, b)) {
        shape_text(a, left, sizeof(left));
        shape_text(b, right, sizeof(right));
        fprintf(out, "shape %s against %s\n", left, right);
        return 1;
    }
    if (a->dtype == b->dtype &&
        (a->count == 0 ||
         memcmp(a->data, b->data, a->count * bl_checkpoint_element_bytes(a->dtype)) == 0)) {
        fprintf(out, "identical\n");
        return 0;
    }
    for (uint64_t i = 0; i < a->count; i++) {
        double x = element(a, i), y = element(b, i), d;
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        unequal++;
        d = fabs(x - y);
        if (!isfinite(d)) {
            not_finite++;
            continue;
        }
        squares += d * d;
        if (d > largest)
            largest = d;
    }
    if (a->dtype != b->dtype)
        fprintf(out, "%s against %s  ", dtype_text(a), dtype_text(b));
    if (unequal == 0)
        fprintf(out, "equal values, other bits\n");
    else {
        uint64_t finite = a->count - not_finite;
        fprintf(out, "max %.3e  rms %.3e  %" PRIu64 " of %" PRIu64 " elements differ", largest,
                finite ? sqrt(squares / (double)finite) : 0.0, unequal, a->count);
        if (not_finite)
            fprintf(out, ", %" PRIu64 " of them by NaN or infinity", not_finite);
        fprintf(out, "\n");
    }
    return 1;
}

/* compare_one, whatever pieces they are stored in; -1: no memory. */
static int compare_two(const struct set *a, const struct bl_tensor *t, const struct set *b,
                       const struct bl_tensor *u, int width, FILE *out)
{
    struct bl_tensor copies[2];
    void *own[2];
    const struct bl_tensor *x = whole(a, t, &copies[0], &own[0]);
    const struct bl_tensor *y = whole(b, u, &copies[1], &own[1]);
    int different = x && y ? compare_one(x, y, width, out) : -1;

    free(own[0]);
    free(own[1]);
    return different;
}

static int name_width(const struct set *s)
{
    size_t width = 4;

    for (size_t i = 0; i < s->count; i++)
        if (strlen(get(s, i)->name) > width)
            width = strlen(get(s, i)->name);
    return width < 60 ? (int)width : 60;
}

int bl_checkpoint_compare(const char *path_a, const char *path_b, FILE *out, int *different,
                          struct bl_error *err)
{
    size_t differ = 0, total = 0;
    struct set a, b;
    int width, answer = 0;

    if (open_set(path_a, &a, err) != 0)
        return -1;
    if (open_set(path_b, &b, err) != 0) {
        close_set(&a);
        return -1;
    }
    width = name_width(&a) > name_width(&b) ? name_width(&a) : name_width(&b);
    for (size_t i = 0; i < a.count; i++, total++) {
        const struct bl_tensor *t = get(&a, i), *u = find(&b, t->name);
        if (u) {
            int one = compare_two(&a, t, &b, u, width, out);
            if (one < 0) {
                answer = bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path_a);
                goto done;
            }
            differ += (size_t)one;
        } else {
            fprintf(out, "%-*s  only in %s\n", width, t->name, path_a);
            differ++;
        }
    }
    for (size_t i = 0; i < b.count; i++) {
        const struct bl_tensor *u = get(&b, i);
        if (!find(&a, u->name)) {
            fprintf(out, "%-*s  only in %s\n", width, u->name, path_b);
            differ++;
            total++;
        }
    }
    if (differ == 0)
        fprintf(out, "all %zu tensors are identical\n", total);
    else
        fprintf(out, "%zu of %zu tensors differ\n", differ, total);
    *different = differ != 0;
done:
    close_set(&a);
    close_set(&b);
    return answer;
}

int bl_checkpoint_list(const char *path, FILE *out, struct bl_error *err)
{
    uint64_t elements = 0;
    struct set s;
    int width;

    if (open_set(path, &s, err) != 0)
        return -1;
    width = name_width(&s);
    fprintf(out, "%-*s  %-16s  %-5s  %10s  %11s\n", width, "name", "shape", "dtype", "rms", "mean");
    for (size_t i = 0; i < s.count; i++) {
        struct bl_tensor copy;
        void *own;
        const struct bl_tensor *t = whole(&s, get(&s, i), &copy, &own);
        double sum = 0.0, squares = 0.0, n = t ? (double)t->count : 0.0;
        char shape[100];
        if (!t) {
            close_set(&s);
            return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
        }
        for (uint64_t k = 0; k < t->count; k++) {
            double x = element(t, k);
            sum += x;
            squares += x * x;
        }
        shape_text(t, shape, sizeof(shape));
        fprintf(out, "%-*s  %-16s  %-5s", width, t->name, shape, dtype_text(t));
        if (t->count > 0)
            fprintf(out, "  %10.4e  %11.4e", sqrt(squares / n), sum / n);
        fprintf(out, "\n");
        elements += t->count;
        free(own);
    }
    fprintf(out, "%zu tensors, %" PRIu64 " elements\n", s.count, elements);
    close_set(&s);
    return 0;
}
