/* The same for the link over MPI: mpirun -n 1 test_null_mpi. */
#include <tersegrad/mpi.h>

#include "null/fixture.h"

#include <string.h>

void fixture_begin_mpi(fixture *f)
{
    MUST(tg_mpi_new(&f->mpi, MPI_COMM_WORLD, 1000, NULL, why));
}

void fixture_end_mpi(fixture *f)
{
    tg_mpi_free(f->made.mpi);
    tg_mpi_free(f->mpi);
}

static void missing_members_of_arguments(void **state)
{
    fixture *f = *state;
    const tg_allocator half = {f->allocator.acquire, NULL, NULL};
    MUST_FAIL(TG_E_ARGUMENT, "comm", tg_mpi_new(&f->made.mpi, MPI_COMM_NULL, 1000, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "allocator", tg_mpi_new(&f->made.mpi, MPI_COMM_WORLD, 1000, &half, why));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(missing_members_of_arguments, fixture_begin, fixture_end),
    };
    MPI_Init(&argc, &argv);
    int failed_n = cmocka_run_group_tests(tests, NULL, NULL) + run_generated();
    MPI_Finalize();
    return failed_n;
}
