/* Tests, shared by all workers, and hashes; see evaluate.h. */
#include "evaluate.h"

#include "hash.h"
#include "local.h"
#include "meeting.h"

#include <string.h>

/* Worker 0: the mean of all workers' running statistics, summed in rank order in fp32. */
static int average_buffers(tr_team *t, char why[TR_WHY])
{
    size_t n = 0;
    float *mean = t->workers[0].leading;
    (void)tr_model_buffers(t->workers[0].model, &n);
    (void)why;
    memset(mean, 0, n * sizeof *mean);
    for (uint32_t r = 0; r < t->settings->workers; r++) {
        const float *theirs = t->parts[r].data;
        for (size_t i = 0; i < n; i++) {
            mean[i] += theirs[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        mean[i] /= (float)t->settings->workers;
    }
    return 0;
}

/* The running statistics that all workers test with: those of worker 0 or, with local steps, whose weights differ most of the time,
 * the mean over all workers. NULL if the link fails. */
static const float *leading_buffers(tr_worker *w)
{
    const tr_team *t = w->team;
    size_t n = 0;
    const float *own = tr_model_buffers(w->model, &n);
    int by_mean = tr_is_local(t->settings) && n > 0, by_link = t->settings->link != NULL && n > 0;
    if (by_mean && tr_meet_with(w, own, n * sizeof *own, average_buffers) != 0) {
        return NULL;
    }
    float *leading = by_mean ? t->workers[0].leading : tr_model_buffers(t->workers[0].model, &n);
    if (by_link && w->rank != 0) {
        leading = w->leading;
    }
    return by_link && tr_spread(w, leading, n * sizeof *leading) != 0 ? NULL : leading;
}

/* Each worker tests its share of the samples. All use the same running statistics, so that the result does not depend on how samples
 * are shared out. Workers restore their own afterwards. */
int tr_test_share(tr_worker *w)
{
    const tr_team *t = w->team;
    size_t n = 0, samples = tr_data_count(t->data, TR_TEST);
    float *buffers = tr_model_buffers(w->model, &n), *kept = w->kept;
    const float *leading = leading_buffers(w);
    if (leading == NULL && n > 0) {
        return -1;
    }
    int is_own = leading == buffers || n == 0;
    if (!is_own) {
        memcpy(kept, buffers, n * sizeof *kept);
        memcpy(buffers, leading, n * sizeof *kept);
    }
    size_t batches = (samples + TR_TEST_BATCH - 1) / TR_TEST_BATCH;
    tr_score sum = {0};
    for (size_t b = w->rank; b < batches; b += t->settings->workers) {
        size_t first = b * TR_TEST_BATCH, left = samples - first;
        tr_batch batch = tr_loader_test(w->loader, first, left < TR_TEST_BATCH ? left : TR_TEST_BATCH);
        tr_score score = tr_model_test(w->model, &batch);
        sum.loss += score.loss;
        sum.correct += score.correct;
        sum.count += score.count;
    }
    w->report->score = sum;
    if (!is_own) {
        memcpy(buffers, kept, n * sizeof *kept);
    }
    return 0;
}

void tr_hash_weights(tr_worker *w)
{
    size_t n = 0;
    const float *own = tr_model_weights(w->model, &n), *weights = w->start != NULL ? w->start : own;
    w->report->hash = tr_hash(0, weights, n * sizeof *weights);
}
