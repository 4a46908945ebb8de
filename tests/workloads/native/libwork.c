#include "libwork.h"

FRAME static uint64_t library_inner(uint64_t state) { return burn(state, UNIT); }

FRAME uint64_t library_outer(uint64_t state) {
    state = library_inner(state);
    AFTER(state);
    return state;
}
