#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/gnuplot.h"
#include "report/plot.h"

/* A page with more than this in one figure would be slow to open. */
#define MOST_BYTES ((size_t)16 << 20)

int bl_image_draw(const struct bl_image *image, const char *path, char **svg, size_t *bytes,
                  struct bl_error *err)
{
    struct bl_text t = {0};
    char *png_part = bl_format("%s.tmp", path), *svg_part = bl_format("%s.svg.tmp", path);
    char *text = NULL;
    size_t n = 0;
    int rc = -1;
    if (bl_check_target(path, err) != 0)
        goto done;
    if (png_part == NULL || svg_part == NULL || image->data->failed || image->body->failed) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path);
        goto done;
    }
    bl_text_add(&t, "set encoding utf8\n%s", image->data->text ? image->data->text : "");
    bl_text_add(&t,
                "set terminal pngcairo size %d,%d fontscale 1.5 linewidth 1.5 pointscale 1.5 "
                "font 'sans,9' background '#ffffff'\nset output ",
                image->width * 3 / 2, image->height * 3 / 2);
    bl_gnuplot_path(&t, png_part);
    bl_text_add(&t, "\n%sunset output\nreset\n", image->body->text);
    if (svg != NULL) {
        bl_text_add(&t,
                    "set terminal svg size %d,%d font 'sans-serif,12' background '#ffffff'\n"
                    "set output ",
                    image->width, image->height);
        bl_gnuplot_path(&t, svg_part);
        bl_text_add(&t, "\n%sunset output\n", image->body->text);
    }
    /* gnuplot goes on after a file it cannot open, and draws to its output. */
    FILE *probe = fopen(png_part, "we");
    if (probe == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "cannot write %s: %s", path, strerror(errno));
        goto done;
    }
    fclose(probe);
    rc = t.failed ? bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path)
                  : bl_gnuplot(&t, err);
    if (rc == 0 && svg != NULL)
        rc = bl_read_file(svg_part, MOST_BYTES, &text, &n, err);
    if (rc == 0 && rename(png_part, path) < 0)
        rc = bl_error_set(err, BL_EXIT_FAILED, "cannot write %s: %s", path, strerror(errno));
    if (rc == 0 && svg != NULL) {
        *svg = text;
        *bytes = n;
        text = NULL;
    }
done:
    if (svg_part != NULL)
        unlink(svg_part);
    if (rc < 0 && png_part != NULL)
        unlink(png_part);
    bl_text_free(&t);
    free(text);
    free(png_part);
    free(svg_part);
    return rc;
}
