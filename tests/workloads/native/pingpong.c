// Two threads on one CPU pass a byte to each other through pipes: as many switches as a CPU can do.
// usage: pingpong --seconds S. Prints a line `ready`, at the end the number of round trips.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];

static void *answer(void *unused)
{
    char byte;
    (void)unused;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
        ;
    return NULL;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words)
{
    if (count != 3 || strcmp(words[1], "--seconds") != 0 || pipe(there) != 0 || pipe(back) != 0) {
        fprintf(stderr, "usage: pingpong --seconds S\n");
        return 2;
    }
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    pthread_t thread;
    if (pthread_create(&thread, NULL, answer, NULL) != 0)
        return 1;
    printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
    fflush(stdout);
    long rounds = 0;
    char byte = 0;
    for (double end = now() + atof(words[2]); now() < end; rounds++)
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
            return 1;
    printf("{\"event\":\"done\",\"rounds\":%ld}\n", rounds);
    return 0;
}
