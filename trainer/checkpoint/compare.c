#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/strings.h"
#include "checkpoint/internal.h"
#include "checkpoint/safetensors.h"

/* The tensors of a .safetensors file, or of a checkpoint folder's model and optimizer files. */
struct set {
    struct bl_safetensors *files[2];
    size_t count;
};

static void close_set(struct set *s)
{
    bl_safetensors_close(s->files[0]);
    bl_safetensors_close(s->files[1]);
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

static int open_set(const char *path, struct set *s, struct bl_error *err)
{
    static const int wanted[2] = {BL_FILE_MODEL, BL_FILE_OPTIMIZER};
    struct stat st;

    memset(s, 0, sizeof(*s));
    if (stat(path, &st) != 0)
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        if (bl_safetensors_open(path, &s->files[0], err) != 0)
            return -1;
        s->count = bl_safetensors_count(s->files[0]);
        return 0;
    }
    for (int f = 0; f < 2; f++) {
        char *file = bl_format("%s/%s", path, bl_checkpoint_files[wanted[f]]);
        int opened = !file ? bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path)
                     : f == 0 && stat(file, &st) != 0 && errno == ENOENT
                         ? refuse_folder(path, err)
                         : bl_safetensors_open(file, &s->files[f], err);
        free(file);
        if (opened != 0) {
            close_set(s);
            return -1;
        }
        s->count += bl_safetensors_count(s->files[f]);
    }
    return 0;
}

static const struct bl_tensor *get(const struct set *s, size_t i)
{
    size_t first = bl_safetensors_count(s->files[0]);

    return i < first ? bl_safetensors_tensor(s->files[0], i)
                     : bl_safetensors_tensor(s->files[1], i - first);
}

static const struct bl_tensor *find(const struct set *s, const char *name)
{
    const struct bl_tensor *t = bl_safetensors_find(s->files[0], name);

    return t || !s->files[1] ? t : bl_safetensors_find(s->files[1], name);
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

static uint64_t element_bytes(const struct bl_tensor *t)
{
    return t->dtype == BL_FP64 ? 8 : t->dtype == BL_FP32 ? 4 : 2;
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
        (a->count == 0 || memcmp(a->data, b->data, a->count * element_bytes(a)) == 0)) {
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
    int width;

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
            differ += (size_t)compare_one(t, u, width, out);
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
    close_set(&a);
    close_set(&b);
    *different = differ != 0;
    return 0;
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
        const struct bl_tensor *t = get(&s, i);
        double sum = 0.0, squares = 0.0, n = (double)t->count;
        char shape[100];
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
    }
    fprintf(out, "%zu tensors, %" PRIu64 " elements\n", s.count, elements);
    close_set(&s);
    return 0;
}
