/* The functions of tg_link over MPI. While the link listens, they leave all calls of MPI to the link's own thread
 * (mpi_progress.c). */
#include "link/mpi_internal.h"

static tg_status check_channel(uint32_t channel, tg_detail *why)
{
    if (channel >= TG_MPI_CHANNELS) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "channel %u does not exist: there are %d", channel, TG_MPI_CHANNELS);
    }
    return TG_OK;
}

static tg_status fail_link(const tg_mpi *m, tg_detail *why)
{
    return tg_mpi_fail(TG_E_LINK, why, "%s", m->why.text);
}

/* Tests an operation, and what concerns all: aborts, probes, the timeout. */
static void make_progress(bool *moved, tg_mpi *m, uint32_t channel)
{
    tg_mpi_channel *ch = &m->channels[channel];
    *moved = false;
    if (tg_mpi_poll(moved, m, channel) && ch->left == 0) {
        ch->state = TG_MPI_DONE;
    } else if (!m->failed && !*moved && tg_mpi_receive_control(m)) {
        (void)tg_mpi_check_timeout(m, channel);
    }
}

/* The status of an operation. One that is done becomes history. */
static tg_status conclude(tg_mpi *m, uint32_t channel, tg_detail *why)
{
    tg_mpi_channel *ch = &m->channels[channel];
    if (ch->state == TG_MPI_DONE) {
        ch->state = TG_MPI_IDLE;
        m->link.sent_len += ch->sent_len;
        return TG_OK;
    }
    if (m->failed) {
        return fail_link(m, why);
    }
    return ch->state == TG_MPI_IDLE ? TG_OK : TG_MORE;
}

tg_status tg_mpi_start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why)
{
    tg_mpi *m = (tg_mpi *)(void *)self;
    if (op->world != m->world || op->rank != m->rank) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "an operation of rank %u of %u was given to the link of rank %u of %u",
                           op->rank, op->world, m->rank, m->world);
    }
    tg_status status = check_channel(channel, why);
    if (status != TG_OK) {
        return status;
    }
    tg_mpi_channel *ch = &m->channels[channel];
    if (m->failed || (!m->listens && !tg_mpi_receive_control(m))) {
        return fail_link(m, why);
    }
    if (ch->state != TG_MPI_IDLE) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "an operation is already under way on channel %u", channel);
    }
    status = tg_mpi_reserve(m, channel, op, why);
    if (status != TG_OK) {
        return status;
    }
    ch->op = op;
    ch->sent_len = 0;
    for (uint32_t p = 0; p < op->world; p++) {
        ch->sent_len += op->sends[p].len;
    }
    ch->state = TG_MPI_UNDER_WAY;
    if (m->listens) {
        tg_mpi_enqueue(m, channel);
        return TG_OK;
    }
    MPI_Errhandler kept = tg_mpi_return_errors();
    bool is_posted = tg_mpi_post(m, channel);
    tg_mpi_restore_errors(&kept);
    return is_posted ? TG_OK : fail_link(m, why);
}

tg_status tg_mpi_test(tg_link *self, uint32_t channel, tg_detail *why)
{
    tg_mpi *m = (tg_mpi *)(void *)self;
    tg_status status = check_channel(channel, why);
    if (status != TG_OK) {
        return status;
    }
    if (!m->listens && !m->failed && m->channels[channel].state == TG_MPI_UNDER_WAY) {
        bool moved = false;
        MPI_Errhandler kept = tg_mpi_return_errors();
        make_progress(&moved, m, channel);
        tg_mpi_restore_errors(&kept);
    }
    return conclude(m, channel, why);
}

tg_status tg_mpi_carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    tg_mpi *m = (tg_mpi *)(void *)self;
    tg_status status = tg_mpi_start(self, 0, op, why);
    if (status != TG_OK) {
        return status;
    }
    if (m->listens) {
        tg_mpi_await(m, 0);
        return conclude(m, 0, why);
    }
    MPI_Errhandler kept = tg_mpi_return_errors();
    for (unsigned polls = 0; !m->failed && m->channels[0].state == TG_MPI_UNDER_WAY;) {
        bool moved = false;
        make_progress(&moved, m, 0);
        polls = moved ? 0 : polls + 1;
        if (!moved && m->channels[0].state == TG_MPI_UNDER_WAY) {
            tg_mpi_pause(polls);
        }
    }
    tg_mpi_restore_errors(&kept);
    return conclude(m, 0, why);
}

void tg_mpi_abort(tg_link *self, const char *reason)
{
    tg_mpi *m = (tg_mpi *)(void *)self;
    if (!tg_mpi_enqueue_abort(m, reason)) {
        tg_mpi_send_abort(m, reason);
    }
}
