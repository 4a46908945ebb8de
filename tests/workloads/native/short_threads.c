// Starts a thread every 5 ms that sleeps for 10 ms, and measures for how long they all live: `SECONDS`.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static atomic_llong lived;
static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void rest(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}
__attribute__((noinline)) void short_life(void) { rest(10000); }
static void *live(void *start) {
    prctl(PR_SET_NAME, "short");
    short_life();
    lived += now() - *(long long *)start;
    free(start);
    return NULL;
}

int main(int argc, char **argv) {
    long long end = now() + atof(argv[argc - 1]) * 1e9;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (now() < end) {
        pthread_t thread;
        long long *start = malloc(sizeof *start);
        *start = now();
        if (pthread_create(&thread, &detached, live, start)) abort();
        rest(5000);
    }
    rest(50000);
    printf("short_life %.3f\n", lived / 1e6);
    return 0;
}
