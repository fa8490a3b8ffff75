/* Tests of the MPI link: mpirun -n N mpi_link SCENE. Every rank prints "well" if the scene went as expected. Scenes in which the
 * link fails end without MPI_Finalize, as a program would. */
#include "rank.h"

#include <tersegrad/experimental.h>
#include <tersegrad/scatter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMEOUT_MS = 1500, PIECE_LEN = 1 << 24 };

static uint32_t host_size; /* of exchanges; 0: flat */
static tg_mpi *mpi;

static void *room(size_t len)
{
    void *block = calloc(len + 1, 1);
    HOLDS(block != NULL);
    return block;
}

static void open_link(MPI_Comm comm)
{
    tg_detail why = {""};
    int r = 0, n = 0;
    MPI_Comm_rank(comm, &r);
    MPI_Comm_size(comm, &n);
    rank = (uint32_t)r;
    world = (uint32_t)n;
    HOLDS(tg_mpi_new(&mpi, comm, TIMEOUT_MS, NULL, &why) == TG_OK);
    HOLDS(tg_mpi_rank(mpi) == rank && tg_mpi_world(mpi) == world && tg_mpi_awaited(mpi) == -1);
}

/* ---- operations -------------------------------------------------------------------------------------------------------- */

static uint8_t byte_of(uint32_t from, uint32_t to, uint64_t i)
{
    return (uint8_t)(from * 131 + to * 17 + i * 7 + (i >> 20));
}

/* An all-to-all: rank r sends lens[(r + p) % n] bytes to rank p, and `more` bytes than p expects. */
static tg_status talk(const uint64_t *lens, size_t n, int more, tg_detail *why)
{
    tg_span *sends = room(world * sizeof *sends), *recvs = room(world * sizeof *recvs);
    uint64_t before = tg_mpi_link(mpi)->sent_len, total = 0;
    for (uint32_t p = 0; p < world; p++) {
        uint64_t len = p == rank ? 0 : lens[(rank + p) % n];
        sends[p] = (tg_span){room((size_t)len + 100), p == rank ? 0 : (uint64_t)((int64_t)len + more)};
        recvs[p] = (tg_span){room((size_t)len + 100), len};
        total += sends[p].len;
        for (uint64_t i = 0; i < sends[p].len; i++) {
            ((uint8_t *)sends[p].data)[i] = byte_of(rank, p, i);
        }
    }
    tg_op op = {.kind = TG_ALLTOALLV, .rank = rank, .world = world, .sends = sends, .recvs = recvs};
    tg_status status = tg_mpi_link(mpi)->carry(tg_mpi_link(mpi), &op, why);
    if (status != TG_OK) {
        return status; /* MPI may still use the buffers */
    }
    HOLDS(tg_mpi_link(mpi)->sent_len == before + total);
    for (uint32_t p = 0; p < world; p++) {
        for (uint64_t i = 0; i < recvs[p].len; i++) {
            HOLDS(((uint8_t *)recvs[p].data)[i] == byte_of(p, rank, i));
        }
        free(sends[p].data);
        free(recvs[p].data);
    }
    free(sends);
    free(recvs);
    return TG_OK;
}

static void any_length_arrives(void)
{
    static const uint64_t lens[] = {0, 1, 4097, PIECE_LEN - 1, PIECE_LEN, PIECE_LEN + 1, 2 * PIECE_LEN + 12345};
    tg_detail why = {""};
    open_link(MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        HOLDS(talk(lens + i, 1, 0, &why) == TG_OK);
    }
    HOLDS(talk(lens, sizeof lens / sizeof *lens, 0, &why) == TG_OK);
}

/* More than 2^31 bytes, with two ranks; takes 8 GiB. */
static void huge_lengths_arrive(void)
{
    static const uint64_t len = (UINT64_C(1) << 31) + 4711;
    tg_detail why = {""};
    open_link(MPI_COMM_WORLD);
    HOLDS(talk(&len, 1, 0, &why) == TG_OK);
}

/* ---- exchanges --------------------------------------------------------------------------------------------------------- */

enum { N = 3000 };
static const uint64_t dims[1] = {N};
static const tg_tensor tensor = {"weight", dims, 1, TG_DENSE, TG_FP32};

static void fill(float *grad, uint32_t r, uint64_t step)
{
    for (uint32_t i = 0; i < N; i++) {
        grad[i] = (float)((i * 2654435761U + r * 40503U + (uint32_t)step * 977U) % 2000) / 1000.0F - 1.0F;
    }
}

static tg_exchange *exchange_of(const char *recipe, uint32_t r, uint64_t seed)
{
    tg_options opt = TG_OPTIONS_INIT;
    tg_exchange *x = NULL;
    tg_detail why = {""};
    opt.has_seed = 1;
    opt.seed = seed;
    opt.verify_every = 1;
    opt.host_size = host_size;
    HOLDS(tg_exchange_new(&x, recipe, &tensor, 1, r, world, &opt, &why) == TG_OK);
    return x;
}

/* Over a communicator with another order of ranks: the same bits as in lockstep. */
static void exchanges_give_the_same_bits(void)
{
    static const char *const recipes[] = {"ef+topk@0.05", "adacomp", "ef+randomblock@0.1", "orq@9", "powersgd"};
    MPI_Comm comm;
    int r = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -r, &comm);
    open_link(comm);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        tg_exchange **ranks = room(world * sizeof(tg_exchange *)), *own = exchange_of(recipes[i], rank, 1);
        float *grads = room(world * N * sizeof *grads), mine[N];
        void **rows = room(world * sizeof(void *)), ***all = room(world * sizeof(void **));
        for (uint32_t p = 0; p < world; p++) {
            ranks[p] = exchange_of(recipes[i], p, 1);
            rows[p] = grads + p * N;
            all[p] = &rows[p];
        }
        for (uint64_t step = 0; step < 5; step++) {
            tg_detail why = {""};
            void *row = mine;
            for (uint32_t p = 0; p < world; p++) {
                fill(grads + p * N, p, step);
            }
            fill(mine, rank, step);
            HOLDS(tg_reduce(own, tg_mpi_link(mpi), step, &row, &why) == TG_OK);
            HOLDS(tg_lockstep_reduce(NULL, ranks, world, step, (void *const *const *)all, NULL, &why) == TG_OK);
            HOLDS(memcmp(mine, grads + rank * N, sizeof mine) == 0);
        }
        for (uint32_t p = 0; p < world; p++) {
            tg_exchange_free(ranks[p]);
        }
        tg_exchange_free(own);
        free(all);
        free(rows);
        free(grads);
        free(ranks);
    }
    MPI_Comm_free(&comm);
}

/* Reduce-scatter: a slice of the sum, in rank order and in fp32, of what bf16 makes of gradients. */
static void slices_are_summed_in_rank_order(void)
{
    uint64_t first = 0, n = 0;
    tg_exchange *x = NULL;
    tg_detail why = {""};
    float mine[N], other[N], sums[N], slice[N];
    void *out = slice;
    const void *in = mine;
    open_link(MPI_COMM_WORLD);
    tg_slice(&first, &n, N, rank, world);
    HOLDS(tg_scatter_new(&x, "bf16", &tensor, 1, rank, world, NULL, &why) == TG_OK);
    HOLDS(tg_handshake(x, tg_mpi_link(mpi), NULL, &why) == TG_OK);
    for (uint64_t step = 0; step < 5; step++) {
        uint64_t before = tg_mpi_link(mpi)->sent_len;
        fill(mine, rank, step);
        HOLDS(tg_reduce_scatter(x, tg_mpi_link(mpi), step, &out, &in, (float)world, &why) == TG_OK);
        HOLDS(tg_mpi_link(mpi)->sent_len - before == 2 * (N - n) + 56 * (world - 1));
        for (uint32_t p = 0; p < world; p++) {
            uint16_t halves[N];
            fill(other, p, step);
            tg_narrow(halves, other, TG_BF16, N);
            tg_widen(other, halves, TG_BF16, N);
            for (uint32_t i = 0; i < N; i++) {
                sums[i] = p == 0 ? other[i] : sums[i] + other[i];
            }
        }
        for (uint64_t i = 0; i < n; i++) {
            HOLDS(slice[i] == sums[first + i] / (float)world);
        }
    }
    tg_exchange_free(x);
}

/* ---- hosts ------------------------------------------------------------------------------------------------------------- */

/* The host of each rank, a letter; NULL: as it is. */
static const char *placement;

/* In place of MPI's own, by its profiling interface. */
int MPI_Get_processor_name(char *name, int *len)
{
    int r = 0;
    if (placement == NULL) {
        return PMPI_Get_processor_name(name, len);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    name[0] = placement[r];
    name[1] = '\0';
    *len = 1;
    return MPI_SUCCESS;
}

/* With six ranks: the link knows hosts that have as many ranks each, one after the other. */
static void hosts_are_found(void)
{
    static const struct {
        const char *placement;
        uint32_t size;
    } cases[] = {{"aaaaaa", 6}, {"aaabbb", 3}, {"aabbcc", 2}, {"abcdef", 1},
                 {"aabbba", 0}, {"aabbaa", 0}, {"aaaabb", 0}, {"ababab", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        placement = cases[i].placement;
        open_link(MPI_COMM_WORLD);
        HOLDS(world == 6 && tg_mpi_link(mpi)->host_size == cases[i].size);
        tg_mpi_free(mpi);
    }
    placement = NULL;
    open_link(MPI_COMM_WORLD);
    HOLDS(tg_mpi_link(mpi)->host_size == world);
}

static void ranks_that_differ_are_told_apart(void)
{
    tg_detail why = {""};
    open_link(MPI_COMM_WORLD);
    tg_exchange *alike = exchange_of("adacomp", rank, 1), *other = exchange_of("adacomp", rank, rank == 1 ? 7 : 1);
    tg_exchange *recipe = exchange_of(rank == 1 ? "orq@9" : "orq@5", rank, 1);
    HOLDS(tg_handshake(alike, tg_mpi_link(mpi), "colour red\n", &why) == TG_OK);
    HOLDS(tg_handshake(other, tg_mpi_link(mpi), NULL, &why) == (world > 1 ? TG_E_MISMATCH : TG_OK));
    HOLDS(world == 1 || strcmp(why.text, "rank 1 has seed '7', but rank 0 has '1'") == 0);
    HOLDS(tg_handshake(recipe, tg_mpi_link(mpi), NULL, &why) == (world > 1 ? TG_E_MISMATCH : TG_OK));
    HOLDS(world == 1 || strcmp(why.text, "rank 1 has recipe of 'weight' 'orq@9', but rank 0 has 'orq@5'") == 0);
    HOLDS(tg_handshake(alike, tg_mpi_link(mpi), rank == 1 ? "colour blue\n" : "colour red\n", &why) ==
          (world > 1 ? TG_E_MISMATCH : TG_OK));
    HOLDS(world == 1 || strcmp(why.text, "rank 1 has colour 'blue', but rank 0 has 'red'") == 0);
    tg_exchange_free(recipe);
    tg_exchange_free(other);
    tg_exchange_free(alike);
}

/* ---- failures ---------------------------------------------------------------------------------------------------------- */

static void end_failed(void)
{
    tg_mpi_free(mpi); /* must not block */
    printf("rank %u: well\n", rank);
    fflush(stdout);
    const struct timespec moment = {2, 0}; /* so that all have printed before the launcher kills them */
    nanosleep(&moment, NULL);
    MPI_Abort(MPI_COMM_WORLD, 0);
}

/* Rank 1 sends another number of bytes than rank 0 expects. */
static void wrong_lengths_are_refused(int more)
{
    const uint64_t len = 5000;
    tg_detail why = {""};
    open_link(MPI_COMM_WORLD);
    tg_status status = talk(&len, 1, rank == 1 ? more : 0, &why);
    if (rank != 1) {
        HOLDS(status == TG_E_LINK);
        HOLDS(strstr(why.text, "rank 1") != NULL);
        tg_mpi_link(mpi)->abort(tg_mpi_link(mpi), why.text);
    } else if (status == TG_OK) { /* it learns of the failure in its next operation at the latest */
        HOLDS(talk(&len, 1, 0, &why) == TG_E_LINK);
        HOLDS(strstr(why.text, "rank 1 sends") != NULL || strstr(why.text, "rank 1:") != NULL);
    }
    end_failed();
}

static tg_link *honest;

static tg_status carry_garbage(tg_link *self, const tg_op *op, tg_detail *why)
{
    tg_span *sends = room(op->world * sizeof *sends);
    for (uint32_t p = 0; p < op->world; p++) {
        sends[p] = (tg_span){room((size_t)op->sends[p].len), op->sends[p].len};
        for (uint64_t i = 0; i < sends[p].len; i++) {
            ((uint8_t *)sends[p].data)[i] = (uint8_t)(i * 29 + 3);
        }
    }
    tg_op garbage = *op;
    garbage.sends = sends;
    (void)self;
    return honest->carry(honest, &garbage, why);
}

static void abort_honestly(tg_link *self, const char *reason)
{
    (void)self;
    honest->abort(honest, reason);
}

static void garbage_is_refused(void)
{
    open_link(MPI_COMM_WORLD);
    honest = tg_mpi_link(mpi);
    tg_link liar = {.carry = carry_garbage, .abort = abort_honestly};
    tg_exchange *x = exchange_of("adacomp", rank, 1);
    float mine[N];
    void *row = mine;
    tg_detail why = {""};
    fill(mine, rank, 0);
    tg_status status = tg_reduce(x, rank == 1 ? &liar : honest, 0, &row, &why);
    if (rank == 1 && status == TG_OK) {
        status = tg_reduce(x, honest, 1, &row, &why);
    }
    HOLDS(status != TG_OK);
    HOLDS(rank == 1 || strstr(why.text, "rank 1") != NULL);
    end_failed();
}

static void a_rank_that_is_late_is_lost(void)
{
    const uint64_t len = 100;
    tg_detail why = {""};
    open_link(MPI_COMM_WORLD);
    HOLDS(talk(&len, 1, 0, &why) == TG_OK);
    if (rank == 1) {
        const struct timespec long_time = {TIMEOUT_MS / 1000 + 3, 0};
        nanosleep(&long_time, NULL);
        /* It has received the abort by now, or data that were sent before it. */
        HOLDS(talk(&len, 1, 0, &why) == TG_E_LINK || talk(&len, 1, 0, &why) == TG_E_LINK);
    } else {
        HOLDS(talk(&len, 1, 0, &why) == TG_E_LINK);
        tg_mpi_link(mpi)->abort(tg_mpi_link(mpi), why.text);
        const struct timespec as_long = {TIMEOUT_MS / 1000 + 2, 0};
        nanosleep(&as_long, NULL);
    }
    HOLDS(strstr(why.text, "rank 1 is lost") != NULL);
    end_failed();
}

/* Rank 2 is late. Rank 0 waits for it, and rank 1 for rank 0, or for both. The timeout of rank 1 ends first, but the error must not
 * name rank 0. */
static void the_silent_rank_is_named(int awaits_both)
{
    static uint8_t byte[1];
    tg_detail why = {""};
    open_link(MPI_COMM_WORLD);
    tg_span nothing[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}}, expected[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    tg_op op = {.kind = TG_ALLTOALLV, .rank = rank, .world = world, .sends = nothing, .recvs = expected};
    const struct timespec moment = {0, 300000000}, long_time = {TIMEOUT_MS / 1000 + 3, 0};
    HOLDS(world == 3);
    if (rank == 2) {
        nanosleep(&long_time, NULL);
        end_failed();
    }
    expected[rank == 0 ? 2 : 0] = (tg_span){byte, 1};
    if (rank == 0) {
        nanosleep(&moment, NULL);
    } else if (awaits_both) {
        expected[2] = (tg_span){byte, 1};
    }
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    HOLDS(tg_mpi_link(mpi)->carry(tg_mpi_link(mpi), &op, &why) == TG_E_LINK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    HOLDS(strstr(why.text, "rank 2 is lost") != NULL);
    HOLDS(tg_mpi_awaited(mpi) == 2);
    HOLDS((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 < TIMEOUT_MS * 3 / 2);
    tg_mpi_link(mpi)->abort(tg_mpi_link(mpi), why.text);
    nanosleep(&long_time, NULL);
    end_failed();
}

static void a_reason_reaches_all(void)
{
    const uint64_t len = 100;
    tg_detail why = {""};
    open_link(MPI_COMM_WORLD);
    if (rank == 1) {
        tg_mpi_link(mpi)->abort(tg_mpi_link(mpi), "no more");
    }
    HOLDS(talk(&len, 1, 0, &why) == TG_E_LINK);
    HOLDS(strcmp(why.text, "rank 1: no more") == 0);
    HOLDS(talk(&len, 1, 0, &why) == TG_E_LINK); /* permanently */
    end_failed();
}

static int left;

static void *take_some(void *context, size_t len)
{
    (void)context;
    return left-- > 0 ? malloc(len) : NULL;
}

static void give(void *context, void *block)
{
    (void)context;
    free(block);
}

static void too_little_memory_is_an_error(void)
{
    const tg_allocator poor = {take_some, give, NULL};
    tg_detail why = {""};
    int r = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    rank = (uint32_t)r;
    for (int n = 0; n < 3; n++) {
        left = n;
        HOLDS(tg_mpi_new(&mpi, MPI_COMM_WORLD, TIMEOUT_MS, &poor, &why) == TG_E_MEMORY);
    }
    left = 1000;
    HOLDS(tg_mpi_new(&mpi, MPI_COMM_WORLD, TIMEOUT_MS, &poor, &why) == TG_OK);
    world = tg_mpi_world(mpi);
    const uint64_t len = 10;
    left = 2; /* on all ranks, so that none waits */
    HOLDS(talk(&len, 1, 0, &why) == (world > 1 ? TG_E_MEMORY : TG_OK));
    left = 1000;
    HOLDS(talk(&len, 1, 0, &why) == TG_OK);
}

int main(int argc, char **argv)
{
    const char *scene = argc > 1 ? argv[1] : "";
    tg_detail why = {""};
    HOLDS(tg_mpi_new(&mpi, MPI_COMM_WORLD, TIMEOUT_MS, NULL, &why) == TG_E_ARGUMENT); /* before MPI_Init */
    MPI_Init(&argc, &argv);
    int is_known = 1;
    if (strcmp(scene, "lengths") == 0) {
        any_length_arrives();
    } else if (strcmp(scene, "huge") == 0) {
        huge_lengths_arrive();
    } else if (strcmp(scene, "bits") == 0) {
        exchanges_give_the_same_bits();
    } else if (strcmp(scene, "slices") == 0) {
        slices_are_summed_in_rank_order();
    } else if (strcmp(scene, "bits-of-hosts") == 0) {
        host_size = 2;
        exchanges_give_the_same_bits();
    } else if (strcmp(scene, "hosts") == 0) {
        hosts_are_found();
    } else if (strcmp(scene, "handshake") == 0) {
        ranks_that_differ_are_told_apart();
    } else if (strcmp(scene, "memory") == 0) {
        too_little_memory_is_an_error();
    } else if (strcmp(scene, "short") == 0) {
        wrong_lengths_are_refused(-7);
    } else if (strcmp(scene, "long") == 0) {
        wrong_lengths_are_refused(7);
    } else if (strcmp(scene, "garbage") == 0) {
        garbage_is_refused();
    } else if (strcmp(scene, "late") == 0) {
        a_rank_that_is_late_is_lost();
    } else if (strcmp(scene, "silent") == 0) {
        the_silent_rank_is_named(0);
    } else if (strcmp(scene, "silent-both") == 0) {
        the_silent_rank_is_named(1);
    } else if (strcmp(scene, "abort") == 0) {
        a_reason_reaches_all();
    } else {
        is_known = 0;
    }
    HOLDS(is_known);
    tg_mpi_free(mpi);
    printf("rank %u: well\n", rank);
    return MPI_Finalize();
}
