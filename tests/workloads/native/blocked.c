/* Threads that block in the C library, each in a function with a known name.
 *
 * blocked ROUNDS    each of 2 ms or more */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLER __attribute__((noinline)) static void
/* After the last call, so that it is not a jump. */
#define END __asm__ volatile("")

static volatile int ended;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static unsigned long rounds;
/* Pipes and a socket pair: the first of each is read. */
static int read_ends[2], epoll_ends[2], poll_ends[2], recv_ends[2];

CALLER cond_caller(void) {
    pthread_mutex_lock(&mutex);
    unsigned long seen = rounds;
    while (seen == rounds && !ended)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    END;
}

CALLER semaphore_caller(void) {
    sem_wait(&semaphore);
    END;
}

CALLER read_caller(void) {
    char byte;
    if (read(read_ends[0], &byte, 1) != 1)
        abort();
    END;
}

CALLER epoll_caller(void) {
    static int epoll;
    struct epoll_event event = {.events = EPOLLIN};
    char byte;
    if (!epoll) {
        epoll = epoll_create1(0);
        epoll_ctl(epoll, EPOLL_CTL_ADD, epoll_ends[0], &event);
    }
    if (epoll_wait(epoll, &event, 1, -1) == 1 && read(epoll_ends[0], &byte, 1) != 1)
        abort();
    END;
}

CALLER poll_caller(void) {
    struct pollfd polled = {.fd = poll_ends[0], .events = POLLIN};
    char byte;
    if (poll(&polled, 1, -1) == 1 && read(poll_ends[0], &byte, 1) != 1)
        abort();
    END;
}

CALLER recv_caller(void) {
    char byte;
    if (recv(recv_ends[0], &byte, 1, 0) != 1)
        abort();
    END;
}

CALLER sleep_caller(void) {
    usleep(1000);
    END;
}

static void *short_life(void *unused) {
    usleep(1000);
    return unused;
}

CALLER join_caller(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, short_life, NULL);
    pthread_join(thread, NULL);
    END;
}

CALLER handler_caller(void) {
    usleep(1100);
    END;
}

static void handler(int signal) {
    (void)signal;
    handler_caller();
    END;
}

CALLER signal_caller(void) {
    raise(SIGUSR1);
    END;
}

static void *blocking_loop(void *function) {
    void (*caller)(void) = (void (*)(void))function;
    while (!ended)
        caller();
    return NULL;
}

CALLER wake_caller(void) {
    pthread_mutex_lock(&mutex);
    rounds++;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
    sem_post(&semaphore);
    int woken = 0;
    woken += write(read_ends[1], "x", 1) == 1;
    woken += write(epoll_ends[1], "x", 1) == 1;
    woken += write(poll_ends[1], "x", 1) == 1;
    woken += send(recv_ends[1], "x", 1, 0) == 1;
    if (woken != 4)
        abort();
    usleep(2000);
    END;
}

int main(int count, char **arguments) {
    void (*callers[])(void) = {
        cond_caller, semaphore_caller, read_caller, epoll_caller,  poll_caller,
        recv_caller, sleep_caller,     join_caller, signal_caller,
    };
    enum { THREADS = sizeof callers / sizeof *callers };
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = handler};
    int left = count > 1 ? atoi(arguments[1]) : 100;
    sem_init(&semaphore, 0, 0);
    sigaction(SIGUSR1, &action, NULL);
    if (pipe(read_ends) || pipe(epoll_ends) || pipe(poll_ends) ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, recv_ends))
        return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, blocking_loop, (void *)callers[i]);
    while (left-- > 0)
        wake_caller();
    ended = 1;
    wake_caller();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
