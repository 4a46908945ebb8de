/* Calls functions of the C library that use the CPU, each from a caller with a known name.
 *
 * libc_callers SECONDS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CALLER __attribute__((noinline)) static void
/* After the last call, so that it is not a jump. */
#define END __asm__ volatile("")

static volatile unsigned long sink;

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

CALLER sort_caller(void) {
    static int numbers[4000];
    for (int i = 0; i < 4000; i++)
        numbers[i] = (i * 7919) % 4001;
    qsort(numbers, 4000, sizeof *numbers, compare);
    sink += numbers[3];
    END;
}

CALLER print_caller(void) {
    char text[256];
    for (int i = 0; i < 600; i++) {
        snprintf(text, sizeof text, "%d %s %lx", i, "abc", (long)i * 77);
        sink += text[3];
    }
    END;
}

CALLER copy_caller(void) {
    static char a[1 << 16], b[1 << 16];
    for (int i = 0; i < 200; i++) {
        memcpy(a, b, sizeof a);
        memset(b, i, sizeof b);
        sink += a[5] + b[7];
    }
    END;
}

CALLER search_caller(void) {
    static char text[1 << 14];
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < 300; i++)
        sink += strlen(text) + (long)strchr(text, 'y') + strcmp(text, text + 1);
    END;
}

CALLER allocate_caller(void) {
    void *blocks[200];
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < 200; i++)
            blocks[i] = malloc(16 + i * 13);
        for (int i = 0; i < 200; i++)
            free(blocks[i]);
    }
    END;
}

CALLER time_caller(void) {
    for (int i = 0; i < 600; i++) {
        time_t seconds = 1700000000 + i * 86400;
        struct tm parts;
        gmtime_r(&seconds, &parts);
        sink += mktime(&parts);
    }
    END;
}

CALLER kernel_caller(void) {
    for (int i = 0; i < 1500; i++)
        sink += getppid();
    END;
}

CALLER all_callers(void) {
    sort_caller();
    print_caller();
    copy_caller();
    search_caller();
    allocate_caller();
    time_caller();
    kernel_caller();
    END;
}

int main(int count, char **arguments) {
    double seconds = count > 1 ? atof(arguments[1]) : 1;
    clock_t start = clock();
    while ((double)(clock() - start) / CLOCKS_PER_SEC < seconds)
        all_callers();
    return 0;
}
