/* A clock that is wrong: in every program of a machine that lists this in /etc/ld.so.preload, the
 * time of day is ahead by the seconds in /etc/lab-clock (behind, when negative). It jumps when other
 * digits are written into that file, in place.
 *
 * Only what asks for the time of day is changed. CLOCK_MONOTONIC and sleeps are as they were, and
 * so are the times of files, which the kernel writes; a wait until a time of day (a timed wait of
 * pthread on CLOCK_REALTIME) ends early or late by the offset, as nothing in Python or c10d does. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char *ahead;

__attribute__((constructor)) static void read_offset(void)
{
    int file = open("/etc/lab-clock", O_RDONLY | O_CLOEXEC);

    if (file < 0)
        return;
    if (lseek(file, 0, SEEK_END) > 0) {
        /* zeros behind its end: a text that ends */
        void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
        ahead = page == MAP_FAILED ? NULL : page;
    }
    close(file);
}

static long long ahead_ns(void)
{
    return ahead ? (long long)(strtod(ahead, NULL) * 1e9) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, out);

    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long now = out->tv_sec * 1000000000LL + out->tv_nsec + ahead_ns();
        out->tv_sec = now / 1000000000LL;
        out->tv_nsec = now % 1000000000LL;
    }
    return failed;
}

int timespec_get(struct timespec *out, int base)
{
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, out) ? base : 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
