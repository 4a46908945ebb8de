/* Functions with large local variables that they hardly use: most of their pages are not in memory.
 * Half of the CPU time is below one, half in printf of musl, which has one.
 *
 * untouched SECONDS */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALLER __attribute__((noinline)) static void
/* After the last call, so that it is not a jump. */
#define END __asm__ volatile("")

static volatile unsigned long sink;

static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

CALLER work(void) {
    for (int i = 0; i < 3000000; i++)
        sink++;
}

CALLER large_callee(void) {
    volatile char large[200000];
    large[0] = 1;
    work();
    sink += large[0];
}

CALLER large_caller(void) {
    large_callee();
    END;
}

CALLER print_caller(void) {
    char text[600];
    for (int i = 0; i < 3000; i++) {
        snprintf(text, sizeof text, "%f", i * 1.25);
        sink += text[2];
    }
    END;
}

int main(int count, char **arguments) {
    double seconds = count > 1 ? atof(arguments[1]) : 1;
    while (cpu_seconds() < seconds / 2)
        large_caller();
    while (cpu_seconds() < seconds)
        print_caller();
    return 0;
}
