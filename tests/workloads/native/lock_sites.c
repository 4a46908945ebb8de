/* Three threads wait for the main thread's lock, each in another function, and a child has ended for which nobody
 * waits. Prints a line of JSON when all of that is so. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define SITE(name)                  \
    static void *name(void *none) { \
        pthread_mutex_lock(&lock);  \
        __asm__ volatile("");       \
        return none;                \
    }
SITE(take_order)
SITE(count_stock)
SITE(send_mail)

int main(void) {
    void *(*sites[])(void *) = {take_order, count_stock, send_mail};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, sites[i], NULL))
            return 1;
    }
    if (fork() == 0)
        _exit(0);
    usleep(600000);
    printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
    fflush(stdout);
    sleep(600);
}
