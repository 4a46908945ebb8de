/* A library to load, call and unload. OUTER and INNER are the names of its functions. */
#include "libwork.h"

FRAME static uint64_t INNER(uint64_t state) { return burn(state, UNIT); }

FRAME uint64_t OUTER(uint64_t state) {
    state = INNER(state);
    AFTER(state);
    return state;
}
