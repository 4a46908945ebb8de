/* A library that is loaded, called and unloaded: OUTER and INNER are the names of its functions. */
#include "libwork.h"

FRAME static uint64_t INNER(uint64_t state) { return burn(state, UNIT); }

FRAME uint64_t OUTER(uint64_t state) {
    state = INNER(state);
    AFTER(state);
    return state;
}
