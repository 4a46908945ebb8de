/* Touches new pages in each round, sleeps between rounds, and prints the counts of its getrusage.
   Arguments: rounds of each thread, number of threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAGES = 1024, PAGE = 4096, MAX_THREADS = 8 };

static long rounds = 1;

__attribute__((noinline)) static void touch_pages(char *memory)
{
    for (long page = 0; page < PAGES; page++)
        memory[page * PAGE] = 1;
}

static void *run_rounds(void *unused)
{
    for (long round = 0; round < rounds; round++) {
        char *memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            abort();
        madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
        touch_pages(memory);
        munmap(memory, PAGES * PAGE);
        usleep(10000);
    }
    return unused;
}

int main(int count, char **arguments)
{
    rounds = count > 1 ? atol(arguments[1]) : 1;
    int threads = count > 2 ? atoi(arguments[2]) : 1;
    pthread_t others[MAX_THREADS];
    if (threads > MAX_THREADS)
        return 2;
    for (int other = 1; other < threads; other++)
        if (pthread_create(&others[other], 0, run_rounds, 0))
            return 1;
    run_rounds(0);
    for (int other = 1; other < threads; other++)
        pthread_join(others[other], 0);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("usage %ld %ld %ld\n", usage.ru_minflt, usage.ru_majflt, usage.ru_nvcsw + usage.ru_nivcsw);
    return 0;
}
