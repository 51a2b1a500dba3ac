/* A wrong clock for one process: loaded into it with LD_PRELOAD, it shifts what the process takes for the time of day.
 *
 * The file that TENURE_TEST_CLOCK names holds the shift in seconds, as text of fixed width; whoever writes into it lets the
 * clock jump. The steady clock (CLOCK_MONOTONIC) stays as it is: it is not set by anybody, on any machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char *shared;

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv("TENURE_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *found = mmap(NULL, 16, PROT_READ, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED)
        shared = found;
    close(fd);
}

static time_t shift(void)
{
    return shared ? (time_t)strtol(shared, NULL, 10) : 0;
}

int clock_gettime(clockid_t id, struct timespec *when)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(id, when);
    if (answer == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        when->tv_sec += shift();
    return answer;
}

int gettimeofday(struct timeval *restrict when, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int answer = clock_gettime(CLOCK_REALTIME, &now);
    if (answer == 0) {
        when->tv_sec = now.tv_sec;
        when->tv_usec = now.tv_nsec / 1000;
    }
    return answer;
}

time_t time(time_t *when)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (when)
        *when = now.tv_sec;
    return now.tv_sec;
}
