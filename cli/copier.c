/* memcpy by several threads, each of its own share; see copier.h. Threads are started once, because that would take longer than
 * their shares of a copy. */
#include "copier.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

typedef struct helper {
    cli_copier *of;
    uint32_t number;
    pthread_t thread;
} helper;

struct cli_copier {
    helper *helpers;
    uint32_t started; /* helpers that run; share 0 is the caller's */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    uint64_t round; /* copies so far */
    uint32_t busy;  /* helpers that have not finished this one */
    bool ends;
    char *to;
    const char *from;
    size_t len;
};

static void copy_share(const cli_copier *c, uint32_t number)
{
    enum { LINE = 64 };
    size_t lines = c->len / LINE, shares = c->started + 1;
    size_t begin = lines * number / shares * LINE, end = lines * (number + 1) / shares * LINE;
    end = number + 1 == shares ? c->len : end;
    memcpy(c->to + begin, c->from + begin, end - begin);
}

static void *help(void *context)
{
    const helper *h = context;
    cli_copier *c = h->of;
    pthread_mutex_lock(&c->lock);
    for (uint64_t seen = 0; !c->ends;) {
        if (c->round == seen) {
            pthread_cond_wait(&c->wake, &c->lock);
            continue;
        }
        seen = c->round;
        pthread_mutex_unlock(&c->lock);
        copy_share(c, h->number);
        pthread_mutex_lock(&c->lock);
        if (--c->busy == 0) {
            pthread_cond_signal(&c->done);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

int cli_copier_new(cli_copier **out, uint32_t threads)
{
    cli_copier *c = calloc(1, sizeof *c);
    helper *helpers = calloc(threads, sizeof *helpers);
    if (c == NULL || helpers == NULL) {
        free(helpers);
        free(c);
        return cli_fail_memory();
    }
    c->helpers = helpers;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    pthread_cond_init(&c->done, NULL);
    for (uint32_t i = 1; i < threads; i++) {
        helpers[i] = (helper){.of = c, .number = i};
        if (pthread_create(&helpers[i].thread, NULL, help, &helpers[i]) != 0) {
            cli_copier_free(c);
            return cli_fail(CLI_FAILED, "%u threads cannot be started", threads);
        }
        c->started = i;
    }
    *out = c;
    return CLI_OK;
}

void cli_copier_run(cli_copier *c, void *to, const void *from, size_t len)
{
    pthread_mutex_lock(&c->lock);
    c->to = to;
    c->from = from;
    c->len = len;
    c->busy = c->started;
    c->round++;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    copy_share(c, 0);
    pthread_mutex_lock(&c->lock);
    while (c->busy > 0) {
        pthread_cond_wait(&c->done, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

void cli_copier_free(cli_copier *c)
{
    if (c == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->ends = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 1; i <= c->started; i++) {
        pthread_join(c->helpers[i].thread, NULL);
    }
    pthread_cond_destroy(&c->done);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c->helpers);
    free(c);
}
