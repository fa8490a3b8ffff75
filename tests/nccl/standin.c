/* A test double of NCCL, for machines without a GPU: libnccl.so.2 with the functions that the link calls. It is not NCCL. Ranks are
 * threads of one process, and device memory is that of the emulated GPU.
 *
 * It is as strict as NCCL: a communicator performs groups of calls one after the other in the background, and the nth message from one
 * rank to another belongs to the nth receive there. Where lengths then differ, because ranks have issued operations in different
 * orders, NCCL would hang or mix messages up; the double fails with a sentence. It fails on purpose, too: standin.h. */
#include "standin.h"

#include "exec/cuda/emulate/stream.h"
#include "link/nccl_calls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { RANK_MAX = 8, CALL_MAX = 64, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3 };

typedef struct call {
    void *data;
    size_t len;
    uint32_t peer;
    int sends, is_done;
    struct call *next; /* of messages from one rank to another */
} call;

typedef struct group {
    call calls[CALL_MAX];
    uint32_t call_n;
    tg_emulated_stream *stream;
    struct group *next;
} group;

typedef struct comm comm;

typedef struct world {
    tg_nccl_id id;
    uint32_t n, joined, left;
    comm *comms[RANK_MAX];
    call *mail[RANK_MAX][RANK_MAX]; /* sends of a rank to another that wait, in their order */
    struct world *next;
} world;

struct comm {
    world *world;
    uint32_t rank, group_n; /* groups that were ended */
    group *groups;          /* that are to be performed */
    int error, is_aborted, is_fresh;
    standin_fault fault;
    uint32_t nth;
    char last_error[128];
    pthread_t thread;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static world *worlds;
static int id_n, comm_n;
static struct {
    standin_fault fault;
    uint32_t nth;
} plans[RANK_MAX];

static _Thread_local group *building;
static _Thread_local comm *building_for;

EXPORT standin_plan_fn standin_plan;
int standin_plan(uint32_t rank, standin_fault fault, uint32_t nth)
{
    pthread_mutex_lock(&lock);
    plans[rank].fault = fault;
    plans[rank].nth = nth;
    int n = comm_n;
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- the background; all with the lock held ------------------------------------------------------------------------------- */

static void break_comm(comm *c, int error, const char *why)
{
    if (c->error == TG_NCCL_SUCCESS) {
        c->error = error;
        (void)snprintf(c->last_error, sizeof c->last_error, "%s", why);
    }
}

static void put_mail(world *w, uint32_t from, call *message)
{
    call **at = &w->mail[from][message->peer];
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = message;
}

/* Receives that have their message. Returns whether all calls of the group are done. */
static int perform(comm *c, group *g)
{
    int left = 0;
    for (uint32_t i = 0; i < g->call_n; i++) {
        call *wanted = &g->calls[i], *message = NULL;
        if (!wanted->sends && !wanted->is_done) {
            message = c->world->mail[wanted->peer][c->rank];
        }
        if (message != NULL && message->len != wanted->len) {
            break_comm(c, INTERNAL_ERROR, "a message has another length than its receive");
        } else if (message != NULL) {
            memcpy(wanted->data, message->data, wanted->len);
            c->world->mail[wanted->peer][c->rank] = message->next;
            wanted->is_done = message->is_done = 1;
            pthread_cond_broadcast(&changed);
        }
        left += !wanted->is_done;
    }
    return left == 0;
}

static void *work(void *argument)
{
    comm *c = argument;
    pthread_mutex_lock(&lock);
    for (uint32_t done_n = 0; !c->is_aborted;) {
        group *g = c->groups;
        if (g == NULL || c->error != TG_NCCL_SUCCESS || c->world->joined < c->world->n) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        c->is_fresh = 0;
        if (c->fault == STANDIN_BREAKS && done_n == c->nth) {
            break_comm(c, SYSTEM_ERROR, "the connection was broken on purpose");
            continue;
        }
        for (uint32_t i = 0; i < g->call_n; i++) {
            if (g->calls[i].sends && !(c->fault == STANDIN_HANGS && done_n == c->nth)) {
                put_mail(c->world, c->rank, &g->calls[i]);
            }
        }
        pthread_cond_broadcast(&changed);
        while (!c->is_aborted && c->error == TG_NCCL_SUCCESS && !perform(c, g)) {
            pthread_cond_wait(&changed, &lock);
        }
        if (!c->is_aborted && c->error == TG_NCCL_SUCCESS) {
            c->groups = g->next;
            atomic_fetch_add(&g->stream->done, 1);
            free(g);
            done_n++;
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- communicators ---------------------------------------------------------------------------------------------------------- */

EXPORT int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    *version = 22803;
    return TG_NCCL_SUCCESS;
}

EXPORT int ncclGetUniqueId(tg_nccl_id *id);
int ncclGetUniqueId(tg_nccl_id *id)
{
    pthread_mutex_lock(&lock);
    memset(id, 0, sizeof *id);
    (void)snprintf(id->bytes, sizeof id->bytes, "stand-in %d", ++id_n);
    pthread_mutex_unlock(&lock);
    return TG_NCCL_SUCCESS;
}

static world *find_world(const tg_nccl_id *id, uint32_t n)
{
    for (world *w = worlds; w != NULL; w = w->next) {
        if (memcmp(&w->id, id, sizeof *id) == 0) {
            return w;
        }
    }
    world *w = calloc(1, sizeof *w);
    if (w == NULL) {
        abort();
    }
    w->id = *id;
    w->n = n;
    w->next = worlds;
    worlds = w;
    return w;
}

EXPORT int ncclCommInitRankConfig(void **out, int n, tg_nccl_id id, int rank, tg_nccl_config *config);
int ncclCommInitRankConfig(void **out, int n, tg_nccl_id id, int rank, tg_nccl_config *config)
{
    if (n > RANK_MAX || config->size != 24 || config->magic != 0xcafebeefU || config->blocking != 0) {
        return 4; /* ncclInvalidArgument */
    }
    comm *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return SYSTEM_ERROR;
    }
    pthread_mutex_lock(&lock);
    c->fault = plans[rank].fault;
    c->nth = plans[rank].nth;
    if (c->fault == STANDIN_NO_INIT) {
        pthread_mutex_unlock(&lock);
        free(c);
        return SYSTEM_ERROR;
    }
    c->rank = (uint32_t)rank;
    c->is_fresh = 1;
    c->world = find_world(&id, (uint32_t)n);
    c->world->comms[rank] = c;
    c->world->joined += c->fault == STANDIN_LATE_INIT ? 0 : 1;
    comm_n++;
    if (pthread_create(&c->thread, NULL, work, c) != 0) {
        abort();
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    *out = c;
    return TG_NCCL_IN_PROGRESS;
}

EXPORT int ncclCommGetAsyncError(void *comm_of, int *result);
int ncclCommGetAsyncError(void *comm_of, int *result)
{
    const comm *c = comm_of;
    pthread_mutex_lock(&lock);
    int is_busy = c->world->joined < c->world->n || (c->groups != NULL && c->is_fresh);
    *result = c->error != TG_NCCL_SUCCESS ? c->error : is_busy ? TG_NCCL_IN_PROGRESS : TG_NCCL_SUCCESS;
    pthread_mutex_unlock(&lock);
    return TG_NCCL_SUCCESS;
}

/* Kernels that have not ended end now. */
EXPORT int ncclCommAbort(void *comm_of);
int ncclCommAbort(void *comm_of)
{
    comm *c = comm_of;
    pthread_mutex_lock(&lock);
    c->is_aborted = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(c->thread, NULL);
    pthread_mutex_lock(&lock);
    for (group *g = c->groups; g != NULL; g = g->next) { /* the groups stay: peers may have their messages */
        atomic_fetch_add(&g->stream->done, 1);
    }
    comm_n--;
    pthread_mutex_unlock(&lock);
    return TG_NCCL_SUCCESS;
}

EXPORT int ncclCommDestroy(void *comm_of);
int ncclCommDestroy(void *comm_of)
{
    comm *c = comm_of;
    int is_idle = c->groups == NULL;
    int result = ncclCommAbort(c);
    if (is_idle) {
        free(c);
    }
    return result;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------------ */

EXPORT int ncclGroupStart(void);
int ncclGroupStart(void)
{
    building = calloc(1, sizeof *building);
    building_for = NULL;
    return building == NULL ? SYSTEM_ERROR : TG_NCCL_SUCCESS;
}

static int add(call made, void *comm_of, void *stream)
{
    if (building == NULL || building->call_n == CALL_MAX || made.peer == ((comm *)comm_of)->rank) {
        return 5; /* ncclInvalidUsage */
    }
    building_for = comm_of;
    building->stream = stream;
    building->calls[building->call_n++] = made;
    return TG_NCCL_SUCCESS;
}

EXPORT int ncclSend(const void *from, size_t n, int type, int peer, void *comm_of, void *stream);
int ncclSend(const void *from, size_t n, int type, int peer, void *comm_of, void *stream)
{
    call made = {.len = n, .peer = (uint32_t)peer, .sends = 1};
    memcpy(&made.data, &from, sizeof from);
    return type == TG_NCCL_UINT8 ? add(made, comm_of, stream) : 4;
}

EXPORT int ncclRecv(void *to, size_t n, int type, int peer, void *comm_of, void *stream);
int ncclRecv(void *to, size_t n, int type, int peer, void *comm_of, void *stream)
{
    const call made = {.data = to, .len = n, .peer = (uint32_t)peer};
    return type == TG_NCCL_UINT8 ? add(made, comm_of, stream) : 4;
}

EXPORT int ncclGroupEnd(void);
int ncclGroupEnd(void)
{
    group *g = building;
    comm *c = building_for;
    building = NULL;
    if (g == NULL || c == NULL || g->stream->magic != TG_EMULATED_STREAM) {
        return 5;
    }
    pthread_mutex_lock(&lock);
    int refuses = c->fault == STANDIN_REFUSES && c->group_n == c->nth;
    c->group_n++;
    if (refuses) {
        (void)snprintf(c->last_error, sizeof c->last_error, "refused on purpose");
        free(g);
    } else {
        group **at = &c->groups;
        while (*at != NULL) {
            at = &(*at)->next;
        }
        *at = g;
        atomic_fetch_add(&g->stream->put, 1);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return refuses ? INTERNAL_ERROR : TG_NCCL_IN_PROGRESS;
}

EXPORT const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result)
{
    return result == SYSTEM_ERROR     ? "unhandled system error"
           : result == INTERNAL_ERROR ? "internal error"
                                      : "invalid use";
}

EXPORT const char *ncclGetLastError(void *comm_of);
const char *ncclGetLastError(void *comm_of)
{
    return comm_of == NULL ? "" : ((comm *)comm_of)->last_error;
}
