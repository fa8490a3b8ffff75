/* The MPI link's own thread. It runs while the link listens, and then makes all calls to MPI: it posts the operations that were
 * started, tests them, answers probes and sends aborts. Callers only leave tasks and read the states of channels. */
#include "link/mpi_internal.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

void tg_mpi_progress_begin(tg_mpi_progress *progress)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&progress->lock, NULL);
    pthread_cond_init(&progress->wake, &attributes);
    pthread_cond_init(&progress->change, &attributes);
    pthread_condattr_destroy(&attributes);
}

void tg_mpi_progress_end(tg_mpi_progress *progress)
{
    pthread_cond_destroy(&progress->change);
    pthread_cond_destroy(&progress->wake);
    pthread_mutex_destroy(&progress->lock);
}

/* ---- the thread -------------------------------------------------------------------------------------------------------- */

typedef struct tasks {
    uint64_t posts; /* a bit for each channel */
    bool aborts, ends;
} tasks;

static bool has_tasks(const tg_mpi_progress *progress)
{
    return progress->queued != 0 || progress->is_aborting || progress->is_ending;
}

static struct timespec time_after_ns(long ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ns;
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    return t;
}

/* Waits for tasks: until the next poll if operations are under way; otherwise longer, because only probes and aborts of other
 * ranks may arrive. */
static tasks await_tasks(tg_mpi *m, bool is_busy, unsigned polls)
{
    enum { IDLE_NS = 5000000 };
    tg_mpi_progress *progress = &m->progress;
    if (is_busy && polls > 0 && polls < TG_MPI_YIELD_POLLS) {
        (void)sched_yield();
    }
    pthread_mutex_lock(&progress->lock);
    if (m->failed) {
        while (!has_tasks(progress)) {
            pthread_cond_wait(&progress->wake, &progress->lock);
        }
    } else if (!has_tasks(progress) && (!is_busy || polls >= TG_MPI_YIELD_POLLS)) {
        struct timespec until = time_after_ns(is_busy ? TG_MPI_PAUSE_NS : IDLE_NS);
        (void)pthread_cond_timedwait(&progress->wake, &progress->lock, &until);
    }
    tasks found = {progress->queued, progress->is_aborting, progress->is_ending};
    progress->queued = 0;
    pthread_mutex_unlock(&progress->lock);
    return found;
}

/* Tells the caller that the operations on some channels are done, or that the link has failed. */
static void publish(tg_mpi *m, uint64_t done)
{
    tg_mpi_progress *progress = &m->progress;
    pthread_mutex_lock(&progress->lock);
    for (uint32_t c = 0; c < TG_MPI_CHANNELS; c++) {
        if (done >> c & 1) {
            m->channels[c].state = TG_MPI_DONE;
        }
    }
    pthread_cond_broadcast(&progress->change);
    pthread_mutex_unlock(&progress->lock);
    progress->notify(progress->context); /* not changed while the thread runs */
}

static void post_all(tg_mpi *m, uint64_t channels)
{
    for (uint32_t c = 0; c < TG_MPI_CHANNELS && !m->failed; c++) {
        if (channels >> c & 1) {
            (void)tg_mpi_post(m, c);
        }
    }
}

/* Tests the operations under way. Returns those that are done. */
static uint64_t poll_all(bool *moved, tg_mpi *m, uint64_t channels)
{
    uint64_t done = 0;
    *moved = false;
    for (uint32_t c = 0; c < TG_MPI_CHANNELS && !m->failed; c++) {
        bool this_moved = false;
        if ((channels >> c & 1) && tg_mpi_poll(&this_moved, m, c) && m->channels[c].left == 0) {
            done |= UINT64_C(1) << c;
        }
        *moved = *moved || this_moved;
    }
    return done;
}

/* Aborts and probes of other ranks, and timeouts. */
static void check_peers(tg_mpi *m, uint64_t channels)
{
    if (!m->failed && tg_mpi_receive_control(m)) {
        for (uint32_t c = 0; c < TG_MPI_CHANNELS && !m->failed; c++) {
            if (channels >> c & 1) {
                (void)tg_mpi_check_timeout(m, c);
            }
        }
    }
}

static void send_abort(tg_mpi *m)
{
    tg_mpi_progress *progress = &m->progress;
    tg_mpi_send_abort(m, progress->reason.text); /* not changed while is_aborting */
    pthread_mutex_lock(&progress->lock);
    progress->is_aborting = false;
    pthread_cond_broadcast(&progress->change);
    pthread_mutex_unlock(&progress->lock);
}

/* One round of work on the operations under way; *channels loses those that are done. Returns whether anything has moved. */
static bool work(tg_mpi *m, uint64_t *channels, uint64_t posts)
{
    bool moved = false;
    post_all(m, posts);
    uint64_t done = poll_all(&moved, m, *channels);
    if (!moved) {
        check_peers(m, *channels);
    }
    *channels &= ~done;
    if (done != 0 || m->failed) {
        publish(m, done);
    }
    return moved || posts != 0;
}

static void *progress_main(void *argument)
{
    tg_mpi *m = argument;
    MPI_Errhandler kept = MPI_ERRHANDLER_NULL;
    bool returns_errors = false;
    uint64_t channels = m->progress.posted;
    unsigned polls = 0;
    for (bool is_ending = false; !is_ending;) {
        tasks t = await_tasks(m, channels != 0, polls);
        is_ending = t.ends;
        channels |= t.posts;
        if (channels != 0 && !returns_errors) {
            kept = tg_mpi_return_errors();
            returns_errors = true;
        }
        if (!m->failed) {
            polls = work(m, &channels, t.posts) ? 0 : polls + 1;
        }
        if (t.aborts) {
            bool is_news = !m->failed;
            send_abort(m);
            if (is_news) {
                publish(m, 0);
            }
        }
        channels = m->failed ? 0 : channels;
        if (returns_errors && channels == 0) {
            tg_mpi_restore_errors(&kept);
            returns_errors = false;
        }
    }
    if (returns_errors) {
        tg_mpi_restore_errors(&kept);
    }
    return NULL;
}

/* ---- callers ----------------------------------------------------------------------------------------------------------- */

void tg_mpi_enqueue(tg_mpi *m, uint32_t channel)
{
    pthread_mutex_lock(&m->progress.lock);
    m->progress.queued |= UINT64_C(1) << channel;
    pthread_cond_signal(&m->progress.wake);
    pthread_mutex_unlock(&m->progress.lock);
}

void tg_mpi_await(tg_mpi *m, uint32_t channel)
{
    pthread_mutex_lock(&m->progress.lock);
    while (m->channels[channel].state == TG_MPI_UNDER_WAY && !m->failed) {
        pthread_cond_wait(&m->progress.change, &m->progress.lock);
    }
    pthread_mutex_unlock(&m->progress.lock);
}

bool tg_mpi_enqueue_abort(tg_mpi *m, const char *reason)
{
    tg_mpi_progress *progress = &m->progress;
    pthread_mutex_lock(&progress->lock);
    while (progress->is_ending || (progress->runs && progress->is_aborting)) {
        pthread_cond_wait(&progress->change, &progress->lock);
    }
    bool runs = progress->runs;
    if (runs) {
        (void)tg_mpi_fail(TG_E_LINK, &progress->reason, "%s", reason);
        progress->is_aborting = true;
        pthread_cond_signal(&progress->wake);
        while (progress->is_aborting) {
            pthread_cond_wait(&progress->change, &progress->lock);
        }
    }
    pthread_mutex_unlock(&progress->lock);
    return runs;
}

static void end_thread(tg_mpi *m)
{
    tg_mpi_progress *progress = &m->progress;
    pthread_mutex_lock(&progress->lock);
    progress->is_ending = true;
    pthread_cond_signal(&progress->wake);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->thread, NULL);
    pthread_mutex_lock(&progress->lock);
    progress->runs = progress->is_ending = false;
    m->listens = false;
    pthread_cond_broadcast(&progress->change);
    pthread_mutex_unlock(&progress->lock);
}

static uint64_t channels_under_way(const tg_mpi *m)
{
    uint64_t channels = 0;
    for (uint32_t c = 0; c < TG_MPI_CHANNELS; c++) {
        channels |= (uint64_t)(m->channels[c].state == TG_MPI_UNDER_WAY) << c;
    }
    return channels;
}

/* Signals are left to the program's threads. */
static bool start_thread(tg_mpi *m)
{
    sigset_t all, kept;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    pthread_mutex_lock(&m->progress.lock);
    m->progress.posted = channels_under_way(m);
    m->listens = m->progress.runs = pthread_create(&m->progress.thread, NULL, progress_main, m) == 0;
    pthread_mutex_unlock(&m->progress.lock);
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    return m->listens;
}

void tg_mpi_listen(tg_link *self, void (*notify)(void *context), void *context)
{
    tg_mpi *m = (tg_mpi *)(void *)self;
    if (m->listens) {
        end_thread(m);
    }
    m->progress.notify = notify;
    m->progress.context = context;
    if (notify != NULL && !start_thread(m) && !m->failed) {
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %u cannot start a thread for its link", m->rank);
        m->failed = true;
    }
}
