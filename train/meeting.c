/* Synchronises workers; see meeting.h. */
#include "meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int are_processes(const tr_worker *w)
{
    return w->team->settings->link != NULL;
}

void tr_give_up(tr_worker *w, const char *why)
{
    tr_gate_fail(&w->team->gate, why);
    w->link->abort(w->link, why[0] != '\0' ? why : "has failed, and says why itself");
}

/* ---- processes ----------------------------------------------------------------------------------------------------------- */

static int carry(tr_worker *w, tg_op_kind kind, const tg_span *sends, const tg_span *recvs)
{
    tr_team *t = w->team;
    tg_op op = {.kind = kind, .rank = w->rank, .world = t->settings->workers, .sends = sends, .recvs = recvs};
    tg_detail why = {""};
    uint64_t before = w->link->sent_len;
    if (w->link->carry(w->link, &op, &why) != TG_OK) {
        t->lost_link = are_processes(w);
        tr_give_up(w, why.text);
        return -1;
    }
    w->between += w->link->sent_len - before;
    return 0;
}

/* Gathers `len` bytes from every worker at worker 0, contiguous in rank order. */
static int gather(tr_worker *w, void *all, const void *own, size_t len)
{
    tr_team *t = w->team;
    uint32_t n = t->settings->workers;
    for (uint32_t r = 0; r < n; r++) {
        uint8_t *at = (uint8_t *)all + r * len;
        t->sends[r] = (tg_span){(void *)(uintptr_t)own, w->rank != 0 && r == 0 ? len : 0};
        t->recvs[r] = (tg_span){at, w->rank == 0 && r != 0 ? len : 0};
    }
    return carry(w, TG_GATHERV, t->sends, t->recvs);
}

/* Gathers bytes of any length from every worker at worker 0. */
static int gather_parts(tr_worker *w, const void *bytes, size_t len)
{
    tr_team *t = w->team;
    uint32_t n = t->settings->workers;
    t->part_lens[w->rank] = len;
    if (gather(w, t->part_lens, &t->part_lens[w->rank], sizeof *t->part_lens) != 0) {
        return -1;
    }
    for (uint32_t r = 0; r < n; r++) {
        uint64_t recv_len = w->rank == 0 && r != 0 ? t->part_lens[r] : 0;
        t->sends[r] = (tg_span){(void *)(uintptr_t)bytes, w->rank != 0 && r == 0 ? len : 0};
        t->recvs[r] = (tg_span){recv_len == 0 ? NULL : malloc((size_t)recv_len), recv_len};
        if (recv_len != 0 && t->recvs[r].data == NULL) {
            while (r-- > 1) {
                free(t->recvs[r].data);
            }
            tr_give_up(w, "there is not enough memory to save the run");
            return -1;
        }
        t->parts[r] = r == w->rank ? (tg_span){(void *)(uintptr_t)bytes, len} : t->recvs[r];
    }
    return carry(w, TG_GATHERV, t->sends, t->recvs);
}

int tr_vote(tr_worker *w, uint8_t *all, uint8_t own, tg_span *sends, tg_span *recvs)
{
    all[w->rank] = own;
    for (uint32_t r = 0; r < w->team->settings->workers; r++) {
        sends[r] = (tg_span){&all[w->rank], r == w->rank ? 0 : 1};
        recvs[r] = (tg_span){&all[r], r == w->rank ? 0 : 1};
    }
    return carry(w, TG_ALLGATHERV, sends, recvs);
}

int tr_spread(tr_worker *w, void *bytes, size_t len)
{
    tr_team *t = w->team;
    for (uint32_t r = 0; r < t->settings->workers; r++) {
        t->sends[r] = (tg_span){bytes, w->rank == 0 && r != 0 ? len : 0};
        t->recvs[r] = (tg_span){bytes, w->rank != 0 && r == 0 ? len : 0};
    }
    return carry(w, TG_BROADCAST, t->sends, t->recvs);
}

static int work_alone(tr_worker *w, int (*work)(tr_team *t, char why[TR_WHY]))
{
    char why[TR_WHY] = "";
    if (w->rank == 0 && work(w->team, why) != 0) {
        tr_give_up(w, why);
        return -1;
    }
    return 0;
}

/* ---- both ---------------------------------------------------------------------------------------------------------------- */

/* Waits for all workers, lets worker 0 do its work, and waits for all again. */
static int meet_threads(tr_worker *w, int (*work)(tr_team *t, char why[TR_WHY]))
{
    tr_team *t = w->team;
    char why[TR_WHY] = "";
    if (tr_gate_meet(&t->gate) != 0) {
        return -1;
    }
    if (w->rank == 0 && work(t, why) != 0) {
        tr_gate_fail(&t->gate, why);
    }
    return tr_gate_meet(&t->gate);
}

int tr_meet(tr_worker *w, int (*work)(tr_team *t, char why[TR_WHY]))
{
    if (!are_processes(w)) {
        return meet_threads(w, work);
    }
    return gather(w, w->team->reports, w->report, sizeof *w->report) != 0 ? -1 : work_alone(w, work);
}

int tr_meet_with(tr_worker *w, const void *bytes, size_t len, int (*work)(tr_team *t, char why[TR_WHY]))
{
    tr_team *t = w->team;
    if (!are_processes(w)) {
        t->parts[w->rank] = (tg_span){(void *)(uintptr_t)bytes, len};
        return meet_threads(w, work);
    }
    if (gather_parts(w, bytes, len) != 0) {
        return -1; /* the link has failed, and may still write to the receive buffers: they are not freed */
    }
    int code = work_alone(w, work);
    for (uint32_t r = 1; w->rank == 0 && r < t->settings->workers; r++) {
        free(t->parts[r].data);
    }
    return code;
}
