/* The part of the native workload that lives in a shared library. */
#ifndef LIBWORK_H
#define LIBWORK_H

#include <stdint.h>

/* Steps of one call, some 0.1 ms. */
enum { UNIT = 100000 };

/* Neither inlined nor cloned nor folded with an equal function: the frame is there under this very name. */
#define FRAME __attribute__((noipa))
#define INLINED static inline __attribute__((always_inline))

/* Keeps a call from becoming a tail call, which would take the caller's frame away. */
#define AFTER(value) __asm__ volatile("" : "+r"(value))

/* Every step needs the one before, so that equal counts of steps are equal amounts of CPU wherever the code lies. */
INLINED uint64_t burn(uint64_t state, int steps) {
    for (int i = 0; i < steps; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        AFTER(state);
    }
    return state;
}

/* library_outer -> library_inner, which burns; the inner one is not exported. */
uint64_t library_outer(uint64_t state);

#endif
