/* Measured costs and how they are found; see probe_data.h. */
#include "probe_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

void cli_probe_data_free(cli_probe_data *p)
{
    free(p->machine.costs.rows);
    free(p->gpu.costs.rows);
    *p = (cli_probe_data){0};
}

int cli_costs_add(cli_costs *c, const cli_recipe_cost *row)
{
    if (c->n == c->cap) {
        size_t cap = c->cap == 0 ? 32 : 2 * c->cap;
        cli_recipe_cost *rows = realloc(c->rows, cap * sizeof *rows);
        if (rows == NULL) {
            return cli_fail_memory();
        }
        c->rows = rows;
        c->cap = cap;
    }
    c->rows[c->n++] = *row;
    return CLI_OK;
}

/* The most threads that were measured, up to `threads`; 0: the recipe was not measured. */
static uint32_t threads_of(const cli_costs *c, const char *recipe, uint32_t threads)
{
    uint32_t most = 0;
    for (size_t i = 0; i < c->n; i++) {
        const cli_recipe_cost *r = &c->rows[i];
        if (strcmp(r->recipe, recipe) == 0 && r->threads <= threads && r->threads > most) {
            most = r->threads;
        }
    }
    return most;
}

static double between(double a, double b, double share)
{
    return a + share * (b - a);
}

int cli_costs_find(cli_recipe_cost *out, const cli_costs *c, const char *recipe, uint32_t threads, uint64_t n)
{
    const cli_recipe_cost *below = NULL, *above = NULL;
    uint32_t of = threads_of(c, recipe, threads);
    for (size_t i = 0; i < c->n; i++) {
        const cli_recipe_cost *r = &c->rows[i];
        if (r->threads != of || strcmp(r->recipe, recipe) != 0) {
            continue;
        }
        if (r->n <= n && (below == NULL || r->n > below->n)) {
            below = r;
        }
        if (r->n >= n && (above == NULL || r->n < above->n)) {
            above = r;
        }
    }
    if (below == NULL && above == NULL) {
        return 0;
    }
    const cli_recipe_cost *low = below != NULL ? below : above, *high = above != NULL ? above : below;
    double share = low->n < high->n ? log((double)n / (double)low->n) / log((double)high->n / (double)low->n) : 0;
    *out = *low;
    for (int p = 0; p < TG_PASS_N; p++) {
        out->passes[p].element = between(low->passes[p].element, high->passes[p].element, share);
        out->passes[p].chunk = between(low->passes[p].chunk, high->passes[p].chunk, share);
        out->passes[p].call = between(low->passes[p].call, high->passes[p].call, share);
    }
    out->bits = between(low->bits, high->bits, share);
    out->conv_bits = between(low->conv_bits, high->conv_bits, share);
    return 1;
}

double cli_network_seconds(const cli_network *n, const double *column, double bytes, double beyond)
{
    size_t i = 1;
    double last = n->sizes[CLI_SIZE_N - 1];
    if (bytes >= last) {
        double before = n->sizes[CLI_SIZE_N - 2],
               slope = (column[CLI_SIZE_N - 1] - column[CLI_SIZE_N - 2]) / (last - before);
        return column[CLI_SIZE_N - 1] + (bytes - last) * fmax(slope, beyond);
    }
    while (i + 1 < CLI_SIZE_N && bytes > n->sizes[i]) {
        i++;
    }
    double share = (bytes - n->sizes[i - 1]) / (n->sizes[i] - n->sizes[i - 1]);
    return between(column[i - 1], column[i], fmax(0, share));
}

double cli_network_slowdown(const cli_network *n, cli_talk talk, double bytes)
{
    const cli_column *c = &n->talks[talk];
    double known = fmin(bytes, n->sizes[CLI_SIZE_N - 1]), idle = cli_network_seconds(n, c->idle, known, 0);
    return idle > 0 ? fmax(1, cli_network_seconds(n, c->busy, known, 0) / idle) : 1;
}

double cli_network_load(const cli_network *n, cli_talk talk, double bytes)
{
    return cli_network_seconds(n, n->talks[talk].load, fmin(bytes, n->sizes[CLI_SIZE_N - 1]), 0);
}

/* The processor's name as the system tells it. */
static void read_cpu(char *out, size_t cap)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(out, cap, "unknown CPU");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (colon != NULL && (strncmp(line, "model name", 10) == 0 || strncmp(line, "CPU part", 8) == 0)) {
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(out, cap, "%.100s", colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

void cli_machine_kind(char out[160])
{
    char cpu[112];
    read_cpu(cpu, sizeof cpu);
    snprintf(out, 160, "%s, %s", cpu, tg_simd());
}
