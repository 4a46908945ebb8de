/* Uses CPU in known functions in known shares. At the end it prints the values that a profile
 * should show.
 *
 *   native [--mode NAME|all] [--seconds S | --cpu-seconds S] [--depth N]      default: shares, 10 s
 *
 * --cpu-seconds is the CPU time of the process: a fixed amount of work, however many programs run beside it.
 *
 * Prints a JSON line "ready" with the pid at the start. At the end it prints a line "done" with the
 * call paths of each mode:
 *   frames         parts of function names, outermost first; other frames may be between or below
 *   share          nominal share of the mode's CPU time
 *   measuredShare  share by the kernel's CPU clock of the thread: compare a profile with it
 *   cpuMs          CPU time by that clock: compare a profile with it
 *   calls          number of calls */
#define _GNU_SOURCE /* pthread_setname_np */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libwork.h"

typedef struct {
    const char *frames; /* JSON */
    double share;
    int64_t cpu; /* ns; of one thread at a time */
    long calls;
} Path;

typedef struct {
    const char *name;
    void (*round)(Path *paths);
    Path paths[3];
    long rounds;
    double elapsed_ms;
} Mode;

static int depth = 32;
static volatile uint64_t sink;

static int64_t now(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time) != 0) {
        perror("clock_gettime");
        exit(1);
    }
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void add_since(Path *path, int64_t start) {
    path->cpu += now(CLOCK_THREAD_CPUTIME_ID) - start;
    path->calls++;
}

/* shares: three functions of one caller, with 5 : 3 : 2 equal calls per round. The order is random,
 * so that no clock tick falls into step with it. */

FRAME static uint64_t work50(uint64_t state) { return burn(state, UNIT); }
FRAME static uint64_t work30(uint64_t state) { return burn(state, UNIT); }
FRAME static uint64_t work20(uint64_t state) { return burn(state, UNIT); }

FRAME static uint64_t share_caller(Path *paths, const int *order, uint64_t state) {
    for (int i = 0; i < 10; i++) {
        int64_t start = now(CLOCK_THREAD_CPUTIME_ID);
        state = order[i] == 0 ? work50(state) : order[i] == 1 ? work30(state) : work20(state);
        add_since(&paths[order[i]], start);
    }
    return state;
}

static void shares(Path *paths) {
    static int order[10] = {0, 0, 0, 0, 0, 1, 1, 1, 2, 2};
    static unsigned seed = 1;
    for (int i = 9; i > 0; i--) {
        int j = rand_r(&seed) % (i + 1), swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
    sink = share_caller(paths, order, sink);
}

/* library: the shared library uses CPU. */

FRAME static uint64_t library_caller(uint64_t state) {
    state = library_outer(state);
    AFTER(state);
    return state;
}

static void library(Path *paths) {
    int64_t start = now(CLOCK_THREAD_CPUTIME_ID);
    sink = library_caller(sink);
    add_since(paths, start);
}

/* inlined: two functions that are inlined into a third, and exist only in its DWARF. */

INLINED uint64_t inlined_inner(uint64_t state) { return burn(state, UNIT); }
INLINED uint64_t inlined_outer(uint64_t state) { return inlined_inner(state) + 1; }
FRAME static uint64_t inline_caller(uint64_t state) { return inlined_outer(state); }

static void inlined(Path *paths) {
    int64_t start = now(CLOCK_THREAD_CPUTIME_ID);
    sink = inline_caller(sink);
    add_since(paths, start);
}

/* recursion: a function that calls itself and uses CPU in the innermost call. */

FRAME static uint64_t descend(uint64_t state, int left) {
    state = left == 0 ? burn(state, UNIT) : descend(state, left - 1);
    AFTER(state);
    return state;
}

static void recursion(Path *paths) {
    int64_t start = now(CLOCK_THREAD_CPUTIME_ID);
    sink = descend(sink, depth);
    add_since(paths, start);
}

/* frames: recursion with frames of 4 KB each: more stack than a sample contains. */

FRAME static uint64_t wide(uint64_t state, int left) {
    volatile uint64_t room[512];
    room[left % 512] = state;
    state = left == 0 ? burn(state, UNIT) : wide(state, left - 1);
    AFTER(state);
    return state + room[left % 512];
}

static void frames(Path *paths) {
    int64_t start = now(CLOCK_THREAD_CPUTIME_ID);
    sink = wide(sink, depth);
    add_since(paths, start);
}

/* callback: the C library's qsort calls a function of this program. */

FRAME static int compare_burn(const void *left, const void *right) {
    sink = burn(sink, UNIT / 10);
    return *(const int *)left - *(const int *)right;
}

FRAME static void callback_caller(void) {
    int items[] = {3, 1, 4, 1, 5, 9, 2, 6};
    qsort(items, sizeof items / sizeof *items, sizeof *items, compare_burn);
    sink += (uint64_t)items[0];
}

static void callback(Path *paths) {
    int64_t start = now(CLOCK_THREAD_CPUTIME_ID);
    callback_caller();
    add_since(paths, start);
}

/* threads: concurrent threads work-50, work-30 and work-20, with 5 : 3 : 2 calls. They end with the
 * round. */

typedef struct {
    Path *path;
    uint64_t (*work)(uint64_t state);
    int calls;
} Share;

FRAME static uint64_t thread50(uint64_t state) { return burn(state, UNIT); }
FRAME static uint64_t thread30(uint64_t state) { return burn(state, UNIT); }
FRAME static uint64_t thread20(uint64_t state) { return burn(state, UNIT); }

static void *thread_main(void *argument) {
    Share *share = argument;
    char name[16];
    snprintf(name, sizeof name, "work-%d", share->calls);
    pthread_setname_np(pthread_self(), name);
    uint64_t state = 1;
    for (int i = 0; i < share->calls; i++) {
        int64_t start = now(CLOCK_THREAD_CPUTIME_ID);
        state = share->work(state);
        add_since(share->path, start);
    }
    sink = state;
    return NULL;
}

static void threads(Path *paths) {
    Share shares[] = {{&paths[0], thread50, 50}, {&paths[1], thread30, 30}, {&paths[2], thread20, 20}};
    pthread_t ids[3];
    for (int i = 0; i < 3; i++) {
        if (pthread_create(&ids[i], NULL, thread_main, &shares[i]) != 0) {
            fputs("pthread_create failed\n", stderr);
            exit(1);
        }
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(ids[i], NULL);
    }
}

static Mode modes[] = {
    {"shares", shares,
     {{"\"share_caller\",\"work50\"", 0.5, 0, 0}, {"\"share_caller\",\"work30\"", 0.3, 0, 0}, {"\"share_caller\",\"work20\"", 0.2, 0, 0}}, 0, 0},
    {"library", library, {{"\"library_caller\",\"library_outer\",\"library_inner\"", 1, 0, 0}}, 0, 0},
    {"inlined", inlined, {{"\"inline_caller\",\"inlined_outer\",\"inlined_inner\"", 1, 0, 0}}, 0, 0},
    {"recursion", recursion, {{"\"descend\",\"descend\",\"descend\"", 1, 0, 0}}, 0, 0},
    {"frames", frames, {{"\"frames\",\"wide\",\"wide\",\"wide\"", 1, 0, 0}}, 0, 0},
    {"callback", callback, {{"\"callback_caller\",\"compare_burn\"", 1, 0, 0}}, 0, 0},
    {"threads", threads, {{"\"thread_main\",\"thread50\"", 0.5, 0, 0}, {"\"thread_main\",\"thread30\"", 0.3, 0, 0}, {"\"thread_main\",\"thread20\"", 0.2, 0, 0}}, 0, 0},
};
enum { MODES = sizeof modes / sizeof *modes };

static const char *wanted = "shares";
static int is_chosen(const Mode *mode) { return strcmp(wanted, "all") == 0 || strcmp(wanted, mode->name) == 0; }

static void print_done(void) {
    const char *between_modes = "";
    printf("{\"event\":\"done\",\"pid\":%d,\"modes\":[", (int)getpid());
    for (Mode *mode = modes; mode < modes + MODES; mode++) {
        if (!is_chosen(mode)) {
            continue;
        }
        int64_t total = 0;
        for (int i = 0; i < 3; i++) {
            total += mode->paths[i].cpu;
        }
        printf("%s{\"mode\":\"%s\",\"rounds\":%ld,\"elapsedMs\":%.1f,\"paths\":[", between_modes, mode->name, mode->rounds, mode->elapsed_ms);
        for (int i = 0; i < 3 && mode->paths[i].frames; i++) {
            Path *path = &mode->paths[i];
            printf("%s{\"frames\":[%s],\"share\":%g,\"measuredShare\":%.4f,\"cpuMs\":%.3f,\"calls\":%ld}", i ? "," : "", path->frames,
                   path->share, (double)path->cpu / (double)(total ? total : 1), (double)path->cpu / 1e6, path->calls);
        }
        printf("]}");
        between_modes = ",";
    }
    printf("]}\n");
}

static int usage(void) {
    fputs("usage: native [--mode NAME|all] [--seconds S | --cpu-seconds S] [--depth N]\nmodes:", stderr);
    for (int i = 0; i < MODES; i++) {
        fprintf(stderr, " %s", modes[i].name);
    }
    fputs("\n", stderr);
    return 2;
}

int main(int argc, char **argv) {
    double seconds = 10;
    clockid_t clock = CLOCK_MONOTONIC;
    int chosen = 0;
    if (argc % 2 == 0) {
        return usage();
    }
    for (int i = 1; i < argc; i += 2) {
        char *end = argv[i + 1];
        if (strcmp(argv[i], "--mode") == 0) {
            wanted = argv[i + 1];
            end = "";
        } else if (strcmp(argv[i], "--seconds") == 0) {
            seconds = strtod(argv[i + 1], &end);
        } else if (strcmp(argv[i], "--cpu-seconds") == 0) {
            seconds = strtod(argv[i + 1], &end);
            clock = CLOCK_PROCESS_CPUTIME_ID;
        } else if (strcmp(argv[i], "--depth") == 0) {
            depth = (int)strtol(argv[i + 1], &end, 10);
        }
        if (end == argv[i + 1] || *end != '\0' || !(seconds > 0) || depth < 0 || depth > 10000) {
            return usage();
        }
    }
    for (int i = 0; i < MODES; i++) {
        chosen += is_chosen(&modes[i]);
    }
    if (chosen == 0) {
        return usage();
    }

    printf("{\"event\":\"ready\",\"pid\":%d}\n", (int)getpid());
    fflush(stdout);
    for (Mode *mode = modes; mode < modes + MODES; mode++) {
        int64_t start = now(CLOCK_MONOTONIC), start_work = now(clock);
        while (is_chosen(mode) && (double)(now(clock) - start_work) < seconds * 1e9 / chosen) {
            mode->round(mode->paths);
            mode->rounds++;
        }
        mode->elapsed_ms = (double)(now(CLOCK_MONOTONIC) - start) / 1e6;
    }
    print_done();
    return 0;
}
