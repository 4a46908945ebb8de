// Threads that wait for known reasons, and measure for how long: `SECONDS SPINNERS FILE`.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static atomic_int over;
static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static long long cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void spin(long us) {
    long long end = cpu() + us * 1000;
    while (cpu() < end) {}
}
static void rest(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pair[2], pipes[2], file;
static long long measured[8];
static long long not_blocked(void) {
    static __thread int fd = -1;
    char text[96];
    long long ran = 0, ready = 0;
    if (fd < 0) fd = open("/proc/thread-self/schedstat", O_RDONLY);
    cpu(); // The scheduler counts until now.
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    sscanf(text, "%lld %lld", &ran, &ready);
    return ran + ready;
}
#define MEASURE(i, call) do { long long b = not_blocked(), t = now(); call; t = now() - t; measured[i] += t - (not_blocked() - b); } while (0)

__attribute__((noinline)) void wait_for_sleep(void) { MEASURE(0, rest(20000)); }
__attribute__((noinline)) void wait_for_lock(void) { MEASURE(1, pthread_mutex_lock(&mutex)); pthread_mutex_unlock(&mutex); }
__attribute__((noinline)) void wait_for_socket(void) { char c; MEASURE(2, recv(pair[0], &c, 1, 0)); }
__attribute__((noinline)) void wait_for_pipe(void) { char c; MEASURE(3, if (read(pipes[0], &c, 1) < 0) abort()); }
__attribute__((noinline)) void wait_for_file(void) { if (write(file, "x", 1) < 0) abort(); MEASURE(4, fsync(file)); }

static void *sleeper(void *x) { prctl(PR_SET_NAME, "sleeper"); while (!over) { wait_for_sleep(); spin(2000); } return x; }
static void *locker(void *x) { prctl(PR_SET_NAME, "locker"); while (!over) { wait_for_lock(); spin(300); rest(3000); } return x; }
static void *holder(void *x) { prctl(PR_SET_NAME, "holder"); while (!over) { pthread_mutex_lock(&mutex); rest(7000); pthread_mutex_unlock(&mutex); rest(2000); } return x; }
static void *receiver(void *x) { prctl(PR_SET_NAME, "receiver"); while (!over) { wait_for_socket(); spin(100); } return x; }
static void *reader(void *x) { prctl(PR_SET_NAME, "reader"); while (!over) { wait_for_pipe(); spin(500); } return x; }
static void *sender(void *x) { prctl(PR_SET_NAME, "sender"); while (!over) { rest(4000); if (write(pair[1], "x", 1) < 0 || write(pipes[1], "x", 1) < 0) abort(); } return x; }
static void *syncer(void *x) { prctl(PR_SET_NAME, "syncer"); while (!over) { wait_for_file(); } return x; }
static void *spinner(void *x) { prctl(PR_SET_NAME, "spinner"); while (!over) spin(1000); return x; }

int main(int argc, char **argv) {
    double seconds = atof(argv[1]);
    int spinners = atoi(argv[2]);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || pipe(pipes)) return 1;
    file = open(argv[3], O_CREAT | O_TRUNC | O_WRONLY, 0600);
    void *(*all[])(void *) = {sleeper, locker, holder, receiver, reader, sender, syncer};
    pthread_t t[64];
    int n = 0;
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) pthread_create(&t[n++], NULL, all[i], NULL);
    for (int i = 0; i < spinners; i++) pthread_create(&t[n++], NULL, spinner, NULL);
    rest(seconds * 1e6);
    over = 1;
    const char *names[] = {"wait_for_sleep", "wait_for_lock", "wait_for_socket", "wait_for_pipe", "wait_for_file"};
    for (int i = 0; i < 5; i++) printf("%s %.3f\n", names[i], measured[i] / 1e6);
    fflush(stdout);
    _exit(0);
}
