#include "backend_ref.h"

#include <math.h>
#include <stddef.h>

double ref_bf16(double x)
{
    int e;
    double unit;

    if (x == 0.0 || !isfinite(x))
        return x;
    frexp(x, &e);
    unit =
        ldexp(1.0, (e < -125 ? -125 : e) - 8); /* 8 significant bits; subnormals share one unit */
    return nearbyint(x / unit) * unit;         /* the default rounding is to even */
}

void ref_linear(uint64_t rows, uint64_t in, uint64_t out, const double *x, const double *w,
                const double *bias, const double *residual, double *y, double *size)
{
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t j = 0; j < out; j++) {
            double sum = 0.0, all = 0.0;
            for (uint64_t k = 0; k < in; k++) {
                sum += x[r * in + k] * w[j * in + k];
                all += fabs(x[r * in + k] * w[j * in + k]);
            }
            if (bias) {
                sum += bias[j];
                all += fabs(bias[j]);
            }
            if (residual) {
                sum += residual[r * out + j];
                all += fabs(residual[r * out + j]);
            }
            y[r * out + j] = sum;
            if (size)
                size[r * out + j] = all;
        }
    }
}

/* c (m, n) = op(a) b; a_row, a_col: strides of op(a). */
static void product(uint64_t m, uint64_t n, uint64_t k, const double *a, uint64_t a_row,
                    uint64_t a_col, const double *b, double *c, double *size)
{
    for (uint64_t i = 0; i < m; i++) {
        for (uint64_t j = 0; j < n; j++) {
            double sum = 0.0, all = 0.0;
            for (uint64_t l = 0; l < k; l++) {
                double t = a[i * a_row + l * a_col] * b[l * n + j];
                sum += t;
                all += fabs(t);
            }
            c[i * n + j] = sum;
            if (size)
                size[i * n + j] = all;
        }
    }
}

void ref_linear_grad(uint64_t rows, uint64_t in, uint64_t out, const double *dy, const double *x,
                     const double *w, double *dx, double *dx_size, double *dw, double *dw_size,
                     double *dbias, double *dbias_size)
{
    if (dx)
        product(rows, in, out, dy, out, 1, w, dx, dx_size);
    if (dw)
        product(out, in, rows, dy, 1, out, x, dw, dw_size);
    for (uint64_t j = 0; dbias && j < out; j++) {
        double sum = 0.0, all = 0.0;
        for (uint64_t r = 0; r < rows; r++) {
            sum += dy[r * out + j];
            all += fabs(dy[r * out + j]);
        }
        dbias[j] = sum;
        if (dbias_size)
            dbias_size[j] = all;
    }
}

static void statistics(uint64_t width, int layer, double eps, const double *x, double *mean,
                       double *rstd)
{
    double m = 0.0, v = 0.0;

    if (layer) {
        for (uint64_t i = 0; i < width; i++)
            m += x[i];
        m /= (double)width;
    }
    for (uint64_t i = 0; i < width; i++)
        v += (x[i] - m) * (x[i] - m);
    *mean = m;
    *rstd = 1.0 / sqrt(v / (double)width + eps);
}

void ref_norm(uint64_t n, uint64_t width, int layer, int bf16, double eps, const double *x,
              const double *weight, const double *bias, double *y, double *mean, double *rstd)
{
    for (uint64_t r = 0; r < n; r++) {
        double m, s;
        statistics(width, layer, eps, x + r * width, &m, &s);
        for (uint64_t i = 0; i < width; i++) {
            double hat = (x[r * width + i] - m) * s;
            if (bf16)
                hat = ref_bf16(hat);
            y[r * width + i] = hat * weight[i] + (bias ? bias[i] : 0.0);
        }
        if (mean)
            mean[r] = m;
        if (rstd)
            rstd[r] = s;
    }
}

void ref_norm_grad(uint64_t n, uint64_t width, int layer, double eps, const double *dy,
                   const double *x, const double *weight, double *dx, double *dx_size,
                   double *dweight, double *dweight_size, double *dbias, double *dbias_size)
{
    for (uint64_t i = 0; i < width; i++)
        dweight[i] = dbias[i] = dweight_size[i] = dbias_size[i] = 0.0;
    for (uint64_t r = 0; r < n; r++) {
        const double *g = dy + r * width, *v = x + r * width;
        double m, s, h = 0.0, hx = 0.0, h_all = 0.0, hx_all = 0.0;
        statistics(width, layer, eps, v, &m, &s);
        for (uint64_t i = 0; i < width; i++) {
            double hat = (v[i] - m) * s;
            h += g[i] * weight[i];
            h_all += fabs(g[i] * weight[i]);
            hx += g[i] * weight[i] * hat;
            hx_all += fabs(g[i] * weight[i] * hat);
            dweight[i] += g[i] * hat;
            dweight_size[i] += fabs(g[i] * hat);
            dbias[i] += g[i];
            dbias_size[i] += fabs(g[i]);
        }
        h /= (double)width;
        hx /= (double)width;
        h_all /= (double)width;
        hx_all /= (double)width;
        if (!layer)
            h = h_all = 0.0;
        for (uint64_t i = 0; i < width; i++) {
            double hat = (v[i] - m) * s;
            dx[r * width + i] = s * (g[i] * weight[i] - h - hat * hx);
            dx_size[r * width + i] = s * (fabs(g[i] * weight[i]) + h_all + fabs(hat) * hx_all);
        }
    }
}

void ref_rope(uint64_t head_dim, uint64_t position, double theta, int direction, double *x)
{
    uint64_t half = head_dim / 2;

    for (uint64_t i = 0; i < half; i++) {
        double angle =
            (double)direction * (double)position * pow(theta, -2.0 * (double)i / (double)head_dim);
        double u = x[i], v = x[i + half];
        x[i] = u * cos(angle) - v * sin(angle);
        x[i + half] = v * cos(angle) + u * sin(angle);
    }
}

static const double root = 0.79788456080286535588; /* sqrt(2/pi) */

double ref_gelu(double x)
{
    /* (1 + tanh u) / 2 = 1 / (1 + e^-2u) without the cancellation at negative u */
    return x / (1.0 + exp(-2.0 * root * (x + 0.044715 * x * x * x)));
}

double ref_gelu_slope(double x)
{
    double u = root * (x + 0.044715 * x * x * x), t = tanh(u);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
}

double ref_silu(double x)
{
    return x / (1.0 + exp(-x));
}

double ref_silu_slope(double x)
{
    double s = 1.0 / (1.0 + exp(-x));
    return s * (1.0 + x * (1.0 - s));
}

double ref_difference(uint64_t n, double *x, double (*f)(void *context), void *context,
                      const double *gradient)
{
    double worst = 0.0, largest = 0.0;

    for (uint64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(gradient[i]));
    for (uint64_t i = 0; i < n; i++) {
        double keep = x[i], h = 1e-5 * (1.0 + fabs(keep)), up, down, error;
        x[i] = keep + h;
        up = f(context);
        x[i] = keep - h;
        down = f(context);
        x[i] = keep;
        error = fabs((up - down) / (2.0 * h) - gradient[i]) / (1.0 + largest);
        if (!(error <= worst))
            worst = isnan(error) ? INFINITY : error;
    }
    return worst;
}
