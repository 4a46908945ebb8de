// Threads that wake each other: "boss" sleeps and wakes "worker" in `let_go`, and "reader" waits for its input.
// Prints how often each was woken, as far as it knows.
//
// All are on the first CPU, which is never offline: on one that was, Linux 6.18 samples no wake-ups by interrupts of
// an idle CPU.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long given, taken, read_bytes;
static int is_over;

static void *work(void *unused) {
    prctl(PR_SET_NAME, "worker");
    pthread_mutex_lock(&mutex);
    while (!is_over) {
        if (taken < given) {
            taken++;
        } else {
            pthread_cond_wait(&changed, &mutex);
        }
    }
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void *read_all(void *unused) {
    prctl(PR_SET_NAME, "reader");
    char byte;
    while (read(0, &byte, 1) == 1) {
        read_bytes++;
    }
    return unused;
}

__attribute__((noinline)) void let_go(void) {
    pthread_cond_signal(&changed);
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    pthread_t worker, reader;
    pthread_create(&worker, NULL, work, NULL);
    pthread_create(&reader, NULL, read_all, NULL);
    prctl(PR_SET_NAME, "boss");
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        struct timespec pause = {0, 200000};
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&mutex);
        given++;
        pthread_mutex_unlock(&mutex);
        let_go();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
    pthread_mutex_lock(&mutex);
    is_over = 1;
    pthread_mutex_unlock(&mutex);
    let_go();
    pthread_join(worker, NULL);
    printf("woken %ld %ld\n", taken, read_bytes);
    fflush(stdout);
    _exit(0);
}
