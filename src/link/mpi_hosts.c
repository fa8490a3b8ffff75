/* How many ranks a host has. Every rank tells all others a hash of the name that MPI has for its machine. Unlike
 * MPI_Comm_split_type, which would find the ranks that share memory, this cannot wait for ever: it is tested until a timeout. */
#include "link/mpi_internal.h"

#include <string.h>

static uint64_t hash_name(void)
{
    char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int len = 0;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    (void)MPI_Get_processor_name(name, &len);
    for (int i = 0; i < len; i++) {
        hash = (hash ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Whether ranks [from, from + size) are on one host, on which no rank before them is. */
static bool is_host(const uint64_t *names, uint32_t from, uint32_t size)
{
    for (uint32_t r = from + 1; r < from + size; r++) {
        if (names[r] != names[from]) {
            return false;
        }
    }
    for (uint32_t r = 0; r < from; r += size) {
        if (names[r] == names[from]) {
            return false;
        }
    }
    return true;
}

/* Ranks of a host, if all hosts have as many, and ranks are numbered host by host; else 0. */
static uint32_t size_of(const uint64_t *names, uint32_t world)
{
    uint32_t size = 1;
    while (size < world && names[size] == names[0]) {
        size++;
    }
    bool is_even = world % size == 0;
    for (uint32_t from = 0; from < world && is_even; from += size) {
        is_even = is_host(names, from, size);
    }
    return is_even ? size : 0;
}

tg_status tg_mpi_find_hosts(tg_mpi *m, tg_detail *why)
{
    /* One more at the end is this rank's own. Where the wait fails, MPI may still use this memory: it is not released then. */
    uint64_t *names = tg_mpi_acquire(&m->allocator, (size_t)m->world + 1, sizeof *names);
    MPI_Request request = MPI_REQUEST_NULL;
    int is_done = 0;
    if (names == NULL) {
        return tg_mpi_fail(TG_E_MEMORY, why, "there is not enough memory for a link of %u ranks", m->world);
    }
    names[m->world] = hash_name();
    if (MPI_Iallgather(&names[m->world], 1, MPI_UINT64_T, names, 1, MPI_UINT64_T, m->comm, &request) != MPI_SUCCESS) {
        return tg_mpi_fail(TG_E_LINK, why, "MPI cannot gather the names of hosts");
    }
    uint64_t until = tg_mpi_now_ms() + m->timeout_ms;
    for (unsigned polls = 0; !is_done; polls++) {
        if (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            return tg_mpi_fail(TG_E_LINK, why, "MPI cannot gather the names of hosts");
        }
        if (!is_done && tg_mpi_now_ms() > until) {
            return tg_mpi_fail(TG_E_LINK, why, "not all %u ranks joined within %u ms", m->world, m->timeout_ms);
        }
        tg_mpi_pause(polls);
    }
    m->link.host_size = size_of(names, m->world);
    tg_mpi_release(&m->allocator, names);
    return TG_OK;
}
