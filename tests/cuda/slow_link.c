/* Makes sockets slow, for tests: preloaded into a process (LD_PRELOAD), it lets the process send no more than as many bytes a second as
 * tg_slow_link says, over TCP, all connections together, as a network interface of that rate would. NCCL sends by `send`, gloo by
 * `writev`. A socket that must not block answers EAGAIN while the link is busy, as one whose buffer is full does; another one waits. Short
 * messages pass at once: they count, but do not wait. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

enum { SHORT = 4096, PIECE = 65536, AHEAD_NS = 200000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t free_at;    /* nanoseconds: when the link has sent all that it was given */
static _Atomic double rate; /* bytes a second; 0: any number */

void tg_slow_link(double bytes);

void tg_slow_link(double bytes)
{
    rate = bytes;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int is_tcp(int fd)
{
    int domain = 0;
    socklen_t len = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && (domain == AF_INET || domain == AF_INET6);
}

/* Nanoseconds until the link can be given more; 0: now. */
static uint64_t busy_ns(void)
{
    pthread_mutex_lock(&lock);
    uint64_t now = now_ns(), until = free_at;
    pthread_mutex_unlock(&lock);
    return until > now + AHEAD_NS ? until - now - AHEAD_NS : 0;
}

static void take(ssize_t sent)
{
    double bytes = rate;
    if (bytes > 0) {
        pthread_mutex_lock(&lock);
        uint64_t now = now_ns();
        free_at = (free_at > now ? free_at : now) + (uint64_t)((double)sent / bytes * 1e9);
        pthread_mutex_unlock(&lock);
    }
}

/* Whether a message of `len` bytes may go now; waits for that where the socket may block. */
static int may_send(int fd, size_t len, int flags)
{
    uint64_t left = len > SHORT ? busy_ns() : 0;
    if (left > 0 && ((flags & MSG_DONTWAIT) != 0 || (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0)) {
        errno = EAGAIN;
        return 0;
    }
    for (; left > 0; left = busy_ns()) {
        const struct timespec pause = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        nanosleep(&pause, NULL);
    }
    return 1;
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    static ssize_t (*inner)(int, const void *, size_t, int);
    if (inner == NULL) {
        *(void **)&inner = dlsym(RTLD_NEXT, "send");
    }
    if (rate == 0 || !is_tcp(fd)) {
        return inner(fd, bytes, len, flags);
    }
    if (!may_send(fd, len, flags)) {
        return -1;
    }
    ssize_t sent = inner(fd, bytes, len < PIECE ? len : PIECE, flags);
    if (sent > 0) {
        take(sent);
    }
    return sent;
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    static ssize_t (*inner)(int, const struct iovec *, int);
    if (inner == NULL) {
        *(void **)&inner = dlsym(RTLD_NEXT, "writev");
    }
    if (rate == 0 || !is_tcp(fd)) {
        return inner(fd, parts, n);
    }
    size_t len = 0;
    for (int i = 0; i < n; i++) {
        len += parts[i].iov_len;
    }
    if (!may_send(fd, len, 0)) {
        return -1;
    }
    ssize_t sent = inner(fd, parts, n);
    if (sent > 0) {
        take(sent);
    }
    return sent;
}
