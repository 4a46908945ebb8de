// Threads that wait in many places for random times, and measure how long in each: `SECONDS`.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define THREADS 6
#define PLACES 4

static atomic_int over;
static long long measured[THREADS][PLACES];
// Mean time of a wait in each place, in microseconds: short waits in some threads, long ones in others.
static const long means[THREADS][PLACES] = {
    {100, 200, 400, 800}, {100, 1000, 3000, 300}, {2000, 500, 500, 200},
    {5000, 10000, 1000, 20000}, {150, 150, 150, 150}, {40000, 100, 7000, 2000},
};

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
// Time that this thread ran or waited for a CPU.
static long long not_blocked(void) {
    static __thread int fd = -1;
    char text[96];
    long long ran = 0, ready = 0;
    struct timespec t;
    if (fd < 0) fd = open("/proc/thread-self/schedstat", O_RDONLY);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); // The scheduler counts until now.
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    sscanf(text, "%lld %lld", &ran, &ready);
    return ran + ready;
}
static void rest(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}
static void wait_for(long us, int place) {
    static __thread pthread_mutex_t mutex;
    static __thread pthread_cond_t changed;
    struct timespec t;
    switch (place % 3) {
    case 0: rest(us); break;
    case 1: {
        struct timespec timeout = {us / 1000000, us % 1000000 * 1000};
        ppoll(NULL, 0, &timeout, NULL);
        break;
    }
    default:
        clock_gettime(CLOCK_REALTIME, &t);
        long long end = t.tv_sec * 1000000000LL + t.tv_nsec + us * 1000;
        t.tv_sec = end / 1000000000;
        t.tv_nsec = end % 1000000000;
        pthread_mutex_lock(&mutex);
        pthread_cond_timedwait(&changed, &mutex, &t);
        pthread_mutex_unlock(&mutex);
    }
}
#define PLACE(thread, place) \
    __attribute__((noinline)) void place_##thread##_##place(long us) { \
        long long before = not_blocked(), start = now(); \
        wait_for(us, place); \
        measured[thread][place] += now() - start - (not_blocked() - before); \
    }
#define PLACES_OF(thread) \
    PLACE(thread, 0) PLACE(thread, 1) PLACE(thread, 2) PLACE(thread, 3) \
    static void *thread_##thread(void *unused) { \
        unsigned seed = thread + 1; \
        while (!over) { \
            int place = rand_r(&seed) % PLACES; \
            long us = means[thread][place] * (rand_r(&seed) % 200) / 100; \
            switch (place) { \
            case 0: place_##thread##_0(us); break; \
            case 1: place_##thread##_1(us); break; \
            case 2: place_##thread##_2(us); break; \
            default: place_##thread##_3(us); \
            } \
        } \
        return unused; \
    }
PLACES_OF(0)
PLACES_OF(1)
PLACES_OF(2)
PLACES_OF(3)
PLACES_OF(4)
PLACES_OF(5)

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 4;
    void *(*all[THREADS])(void *) = {thread_0, thread_1, thread_2, thread_3, thread_4, thread_5};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, all[i], NULL);
    rest(seconds * 1e6);
    over = 1;
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < PLACES; j++) printf("place_%d_%d %.3f\n", i, j, measured[i][j] / 1e6);
    fflush(stdout);
    _exit(0);
}
