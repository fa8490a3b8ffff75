/* The calls of NCCL that the link makes, with prototypes of our own. These have been the same since NCCL 2.14; the names of the members of
 * ncclConfig_t after `blocking` do not matter, because NCCL takes a shorter struct of an earlier version. */
#ifndef TG_LINK_NCCL_CALLS_H
#define TG_LINK_NCCL_CALLS_H

#include <stddef.h>

enum { TG_NCCL_SUCCESS = 0, TG_NCCL_IN_PROGRESS = 7, TG_NCCL_UINT8 = 1, TG_NCCL_ID_LEN = 128 };
#define TG_NCCL_MAGIC 0xcafebeefU
#define TG_NCCL_CONFIG_VERSION 21400U

typedef struct tg_nccl_id {
    char bytes[TG_NCCL_ID_LEN];
} tg_nccl_id;

typedef struct tg_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} tg_nccl_config;

/* A communicator is a pointer, and a stream is a cudaStream_t. Each returns a ncclResult_t. */
typedef struct tg_nccl_calls {
    int (*get_version)(int *version);
    int (*get_unique_id)(tg_nccl_id *id);
    int (*comm_init)(void **comm, int world, tg_nccl_id id, int rank, tg_nccl_config *config);
    int (*comm_abort)(void *comm);
    int (*comm_destroy)(void *comm);
    int (*async_error)(void *comm, int *result);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *from, size_t n, int type, int peer, void *comm, void *stream);
    int (*recv)(void *to, size_t n, int type, int peer, void *comm, void *stream);
    const char *(*error_string)(int result);
    const char *(*last_error)(void *comm);
} tg_nccl_calls;

#endif
