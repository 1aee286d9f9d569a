/* A disk that takes a second for each flush; for LD_PRELOAD. */
#define _GNU_SOURCE
#include <unistd.h>
#include <sys/syscall.h>

int fdatasync(int file) {
    usleep(1000000);
    return syscall(SYS_fdatasync, file);
}
