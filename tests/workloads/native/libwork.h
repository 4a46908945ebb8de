/* The part of the native workload in a shared library. */
#ifndef LIBWORK_H
#define LIBWORK_H

#include <stdint.h>

/* Steps of one call, about 0.1 ms. */
enum { UNIT = 100000 };

/* Never inlined, cloned or merged with an equal function, so that stacks contain its name. */
#define FRAME __attribute__((noipa))
#define INLINED static inline __attribute__((always_inline))

/* Prevents a tail call, which would remove the caller's frame. */
#define AFTER(value) __asm__ volatile("" : "+r"(value))

/* Each step depends on the previous one, so that a step takes the same time at every address. */
INLINED uint64_t burn(uint64_t state, int steps) {
    for (int i = 0; i < steps; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        AFTER(state);
    }
    return state;
}

/* Calls library_inner, which uses CPU and is not exported. */
uint64_t library_outer(uint64_t state);

#endif
