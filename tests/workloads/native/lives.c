/* Short-lived libraries and threads. Each mode uses CPU in different functions.
 *
 *   lives plugins|memory|threads ROUNDS
 *
 * plugins: loads a library, uses CPU in it and unloads it. Then the same with another library,
 *          which usually has the same addresses.
 * memory: the same with copies of the libraries in memory files, and without unloading.
 * threads: threads that use CPU for about 0.1 ms each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libwork.h"

static volatile uint64_t sink;

FRAME static void first_caller(uint64_t (*outer)(uint64_t)) { sink = outer(sink) + 1; }
FRAME static void second_caller(uint64_t (*outer)(uint64_t)) { sink = outer(sink) + 1; }

static void copy_to_memory(char *path) {
    struct stat stat;
    int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("plugin", MFD_CLOEXEC);
    if (from < 0 || to < 0 || fstat(from, &stat) != 0 || sendfile(to, from, NULL, stat.st_size) != stat.st_size) {
        perror("memfd_create");
        exit(1);
    }
    close(from);
    sprintf(path, "/proc/self/fd/%d", to);
}

static void *with_plugin(int in_memory, const char *file, const char *outer, void (*caller)(uint64_t (*)(uint64_t))) {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1 - strlen(file));
    if (length < 0) {
        perror("readlink");
        exit(1);
    }
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, file);
    if (in_memory) {
        copy_to_memory(path);
    }
    void *library = dlopen(path, RTLD_NOW);
    uint64_t (*function)(uint64_t) = library ? (uint64_t(*)(uint64_t))dlsym(library, outer) : NULL;
    if (function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    for (int i = 0; i < 50; i++) {
        caller(function);
    }
    if (!in_memory) {
        dlclose(library);
    }
    return (void *)function;
}

FRAME static uint64_t short_burn(uint64_t state) { return burn(state, UNIT); }

FRAME static void *short_thread(void *argument) {
    sink = short_burn((uint64_t)argument);
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc == 3 ? atoi(argv[2]) : 0, same = 0;
    if (rounds < 1) {
        fputs("usage: lives plugins|memory|threads ROUNDS\n", stderr);
        return 2;
    }
    for (int i = 0; i < rounds; i++) {
        int in_memory = strcmp(argv[1], "memory") == 0;
        if (in_memory || strcmp(argv[1], "plugins") == 0) {
            void *first = with_plugin(in_memory, "first.so", "first_outer", first_caller);
            void *second = with_plugin(in_memory, "second.so", "second_outer", second_caller);
            same += first == second;
        } else {
            pthread_t thread;
            if (pthread_create(&thread, NULL, short_thread, NULL) != 0) {
                fputs("pthread_create failed\n", stderr);
                return 1;
            }
            pthread_join(thread, NULL);
        }
    }
    printf("%d\n", same);
    return 0;
}
