/* Threads that wait until the program is killed, each in functions with known names. Prints a line of JSON
 * when all of them wait. */
#include <alloca.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLER __attribute__((noinline)) static void
/* After the last call, so that it is not a jump. */
#define END __asm__ volatile("")

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, first, second;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t inheriting;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int pipe_ends[2], pair_ends[2];

static void pause_for(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&time, &time) && errno == EINTR)
        ;
}

CALLER sleep_caller(void) {
    struct timespec day = {86400, 0};
    nanosleep(&day, NULL);
    END;
}

CALLER holder_caller(void) {
    pthread_mutex_lock(&held);
    pthread_rwlock_wrlock(&written);
    pthread_mutex_lock(&inheriting);
    sleep_caller();
    END;
}

CALLER mutex_caller(void) {
    pause_for(200);
    pthread_mutex_lock(&held);
    END;
}

CALLER read_lock_caller(void) {
    pause_for(200);
    pthread_rwlock_rdlock(&written);
    END;
}

CALLER inherit_caller(void) {
    pause_for(200);
    pthread_mutex_lock(&inheriting);
    END;
}

CALLER self_caller(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_mutex_lock(&mutex);
    END;
}

/* Each waits for the other's lock, but not for ever. */
static pthread_mutex_t timed[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static void lock_with_limit(int first) {
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 86400;
    pthread_mutex_lock(&timed[first]);
    pause_for(200);
    pthread_mutex_timedlock(&timed[!first], &limit);
}

CALLER timed_caller(void) {
    lock_with_limit(0);
    END;
}

CALLER limited_caller(void) {
    lock_with_limit(1);
    END;
}

static pthread_mutex_t left;
static void *leave_locked(void *unused) {
    pthread_mutex_lock(&left);
    return unused;
}

CALLER orphan_caller(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, leave_locked, NULL);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&left);
    END;
}

CALLER file_lock_caller(void) {
    FILE *files[2];
    char path[] = "/tmp/perfcollect-waits-XXXXXX";
    files[0] = fdopen(mkstemp(path), "w");
    files[1] = fopen(path, "w");
    unlink(path);
    flock(fileno(files[0]), LOCK_EX);
    flock(fileno(files[1]), LOCK_EX);
    END;
}

CALLER select_caller(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipe_ends[0], &set);
    select(pipe_ends[0] + 1, &set, NULL, NULL, NULL);
    END;
}

CALLER first_caller(void) {
    pthread_mutex_lock(&first);
    pause_for(200);
    pthread_mutex_lock(&second);
    END;
}

CALLER second_caller(void) {
    pthread_mutex_lock(&second);
    pause_for(200);
    pthread_mutex_lock(&first);
    END;
}

CALLER cond_caller(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    for (;;)
        pthread_cond_wait(&never, &mutex);
}

CALLER semaphore_caller(void) {
    sem_wait(&semaphore);
    END;
}

CALLER read_caller(void) {
    char byte;
    if (read(pipe_ends[0], &byte, 1) < 0)
        abort();
    END;
}

CALLER receive_caller(void) {
    char byte;
    if (recv(pair_ends[0], &byte, 1, 0) < 0)
        abort();
    END;
}

CALLER accept_caller(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bind(listener, (struct sockaddr *)&any, sizeof any);
    listen(listener, 1);
    accept(listener, NULL, NULL);
    END;
}

CALLER poll_caller(void) {
    struct pollfd both[] = {{.fd = pipe_ends[0], .events = POLLIN}, {.fd = pair_ends[0], .events = POLLIN}};
    poll(both, 2, -1);
    END;
}

CALLER epoll_caller(void) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, pipe_ends[0], &event);
    epoll_wait(epoll, &event, 1, -1);
    END;
}

CALLER join_caller(void) {
    extern pthread_t sleeper;
    pthread_join(sleeper, NULL);
    END;
}

CALLER child_caller(void) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    waitpid(child, NULL, 0);
    END;
}

/* A frame whose size is known at run time only. */
CALLER variable_caller(void) {
    volatile char *bytes = alloca(1000 + getpid() % 100);
    bytes[0] = 1;
    semaphore_caller();
    bytes[1] = 1;
}

/* A frame with pages that are not in memory. */
CALLER large_caller(void) {
    volatile char bytes[100000];
    bytes[0] = 1;
    semaphore_caller();
    bytes[1] = bytes[0];
}

__attribute__((noinline)) static int deep_caller(int depth) {
    if (depth == 0) {
        semaphore_caller();
        return 1;
    }
    volatile int below = deep_caller(depth - 1);
    return below + 1;
}

CALLER recursion_caller(void) {
    deep_caller(300);
    END;
}

static void handler(int signal) {
    (void)signal;
    semaphore_caller();
    END;
}

CALLER handler_caller(void) {
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    END;
}

CALLER spin_caller(void) {
    for (volatile unsigned long count = 0;; count++)
        ;
}

struct job {
    const char *name;
    void (*call)(void);
};
static const struct job jobs[] = {
    {"holder", holder_caller},       {"sleep", sleep_caller},       {"mutex", mutex_caller},
    {"read-lock", read_lock_caller}, {"inherit", inherit_caller},   {"first", first_caller},
    {"second", second_caller},       {"cond", cond_caller},         {"semaphore", semaphore_caller},
    {"read", read_caller},           {"receive", receive_caller},   {"accept", accept_caller},
    {"poll", poll_caller},           {"epoll", epoll_caller},       {"join", join_caller},
    {"child", child_caller},         {"variable", variable_caller}, {"large", large_caller},
    {"recursion", recursion_caller}, {"handler", handler_caller},   {"spin", spin_caller},
    {"self", self_caller},           {"timed", timed_caller},       {"limited", limited_caller},
    {"orphan", orphan_caller},       {"file-lock", file_lock_caller}, {"select", select_caller},
};
pthread_t sleeper;

static void *run(void *job) {
    const struct job *of_thread = job;
    prctl(PR_SET_NAME, of_thread->name);
    of_thread->call();
    return NULL;
}

CALLER main_caller(void) {
    for (;;)
        pause();
}

int main(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    /* A normal mutex of musl does not know its owner. */
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&first, &attributes);
    pthread_mutex_init(&second, &attributes);
    pthread_mutex_init(&left, &attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inheriting, &attributes);
    if (pipe(pipe_ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair_ends))
        return 1;
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)&jobs[i]))
            return 1;
        if (!strcmp(jobs[i].name, "sleep"))
            sleeper = thread;
    }
    pause_for(600);
    printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
    fflush(stdout);
    main_caller();
}
