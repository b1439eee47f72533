/* Preloaded into a broker: moves its wall clock and lets its disk fail, as a control file says.

   Each process maps the file <CHAOS_CONTROLS>/<pid>, which the nemesis writes. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int64_t clock_ns; /* added to the wall clock */
    volatile int64_t disk;     /* 0 works, 1 is full, 2 fails, 3 fails to sync */
    char below[1008];          /* only files whose paths begin with this; empty for all */
};

static struct control none;
static struct control *control = &none;

__attribute__((constructor)) static void map_control(void) {
    const char *folder = getenv("CHAOS_CONTROLS");
    char path[4096];
    if (folder == NULL) return;
    snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    if (ftruncate(fd, sizeof none) == 0) {
        void *at = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) control = at;
    }
    close(fd);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_below(int fd) {
    char link[64], path[4096];
    size_t size = strnlen(control->below, sizeof control->below);
    if (size == 0) return 1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    return length >= (ssize_t)size && memcmp(path, control->below, size) == 0;
}

static int refused(int fd) {
    struct stat status;
    if (fd <= 2) return 0; /* its log, which tells what happened */
    if (control->disk == 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
    if (!is_below(fd)) return 0;
    errno = control->disk == 1 ? ENOSPC : EIO;
    return 1;
}

static int write_refused(int fd) {
    return (control->disk == 1 || control->disk == 2) && refused(fd);
}

static int sync_refused(int fd) {
    return control->disk >= 2 && refused(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static __typeof__(&clock_gettime) real;
    if (real == NULL) real = REAL(clock_gettime);
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME && control->clock_ns != 0) {
        int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec + control->clock_ns;
        now->tv_sec = ns / 1000000000LL;
        now->tv_nsec = ns % 1000000000LL;
    }
    return result;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    static __typeof__(&write) real;
    if (real == NULL) real = REAL(write);
    return write_refused(fd) ? -1 : real(fd, bytes, size);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    static __typeof__(&pwrite64) real;
    if (real == NULL) real = REAL(pwrite64);
    return write_refused(fd) ? -1 : real(fd, bytes, size, at);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    static __typeof__(&pwritev64v2) real;
    if (real == NULL) real = REAL(pwritev64v2);
    return write_refused(fd) ? -1 : real(fd, parts, count, at, flags);
}

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    static __typeof__(&posix_fallocate64) real;
    if (real == NULL) real = REAL(posix_fallocate64);
    return write_refused(fd) ? errno : real(fd, at, size);
}

int fsync(int fd) {
    static __typeof__(&fsync) real;
    if (real == NULL) real = REAL(fsync);
    return sync_refused(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
    static __typeof__(&fdatasync) real;
    if (real == NULL) real = REAL(fdatasync);
    return sync_refused(fd) ? -1 : real(fd);
}

int statvfs64(const char *path, struct statvfs64 *found) {
    static __typeof__(&statvfs64) real;
    if (real == NULL) real = REAL(statvfs64);
    int result = real(path, found);
    if (result == 0 && control->disk == 1) found->f_bavail = 0;
    return result;
}
