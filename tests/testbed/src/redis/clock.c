/* A wall clock that is off by as many microseconds as a file says, or stands still at the second number
   of that file unless it is 0; at any moment; for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

static volatile int64_t *shift;

enum { SIZE = 2 * sizeof(int64_t) };

__attribute__((constructor)) static void map_shift(void) {
    int file = open(getenv("TESTBED_CLOCK"), O_RDONLY);
    if (file < 0) abort();
    void *mapped = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) abort();
    close(file);
    shift = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && shift && shift[1]) {
        now->tv_sec = shift[1] / 1000000;
        now->tv_nsec = shift[1] % 1000000 * 1000;
    } else if (!failed && clock == CLOCK_REALTIME && shift) {
        int64_t nanos = now->tv_nsec + *shift % 1000000 * 1000;
        now->tv_sec += *shift / 1000000 + nanos / 1000000000;
        now->tv_nsec = nanos % 1000000000;
        if (now->tv_nsec < 0) {
            now->tv_nsec += 1000000000;
            now->tv_sec -= 1;
        }
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
