/* The program of the recorded ring buffers: a few pages, without a C library, with known call paths.
 *
 * Each phase consumes CPU time under separate functions: a call chain, a recursion, system calls, threads,
 * dynamically generated code, a file mapped at the same addresses, and children by fork, by fork and exec, by vfork
 * and exec. The README describes how to build it. */
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define FRAME __attribute__((noipa))
/* Prevents a tail call, which would remove the caller's frame. */
#define AFTER(value) __asm__ volatile("" : "+r"(value))

enum { SHORT = 8000000, LONG = 80000000, STACK_BYTES = 16384 };

/* Address of the dynamically generated code. */
static uint8_t *const made = (uint8_t *)0x20000000;
static const char self[] = "/proc/self/exe";

static long call(long number, long a, long b, long c, long d, long e) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static inline __attribute__((always_inline)) uint64_t burn(uint64_t state, long steps) {
    for (long i = 0; i < steps; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        AFTER(state);
    }
    return state;
}

static void name_thread(const char *name) { call(SYS_prctl, PR_SET_NAME, (long)name, 0, 0, 0); }
/* The phases alternate between two CPUs, so that two ring buffers have records of one process. On a machine with one
 * CPU, the call has no effect for CPU 1. */
static void run_on(int cpu) {
    uint64_t mask = 1u << cpu;
    call(SYS_sched_setaffinity, 0, sizeof mask, (long)&mask, 0, 0);
}
static void leave(int status) { call(SYS_exit_group, status, 0, 0, 0, 0); }

FRAME static uint64_t inner(uint64_t state) { return burn(state, LONG); }
FRAME static uint64_t middle(uint64_t state) {
    state = inner(state);
    AFTER(state);
    return state;
}
FRAME static uint64_t outer(uint64_t state) {
    state = middle(state);
    AFTER(state);
    return state;
}

FRAME static uint64_t descend(uint64_t state, int left) {
    state = left == 0 ? burn(state, SHORT) : descend(state, left - 1);
    AFTER(state);
    return state;
}
/* Deeper than the stack copy. */
FRAME static uint64_t deep(uint64_t state) {
    state = descend(state, 200);
    AFTER(state);
    return state;
}

FRAME static uint64_t read_zeros(void) {
    static char zeros[1 << 16];
    long file = call(SYS_open, (long)"/dev/zero", O_RDONLY, 0, 0, 0), read = 0;
    for (int i = 0; i < 3000; i++) {
        read += call(SYS_read, file, (long)zeros, sizeof zeros, 0, 0);
    }
    call(SYS_close, file, 0, 0, 0, 0);
    return (uint64_t)read;
}

FRAME static uint64_t left(uint64_t state) { return burn(state, SHORT); }
FRAME static uint64_t right(uint64_t state) { return burn(state, SHORT); }

/* The body of a thread. It ends the thread and never returns. */
FRAME static void thread(int number) {
    uint64_t state = 1;
    name_thread(number ? "right" : "left");
    run_on(number);
    for (int i = 0; i < 2; i++) {
        state = number ? right(state) : left(state);
        AFTER(state);
    }
    call(SYS_exit, 0, 0, 0, 0, 0);
}

/* clone(flags, stack, parent_tid = clear_tid, child_tid = clear_tid); the new thread runs thread(number). */
long start_thread(long flags, void *stack, uint32_t *clear_tid, int number);
__asm__(".globl start_thread\n.type start_thread, @function\nstart_thread:\n"
        ".cfi_startproc\n"
        "mov %rdx, %r10\n mov %ecx, %r8d\n mov $56, %eax\n syscall\n test %eax, %eax\n jz 1f\n ret\n"
        ".cfi_endproc\n.size start_thread, . - start_thread\n"
        ".type thread_entry, @function\nthread_entry:\n.cfi_startproc\n.cfi_undefined rip\n"
        "1: xor %ebp, %ebp\n mov %r8d, %edi\n call thread_of_number\n hlt\n"
        ".cfi_endproc\n.size thread_entry, . - thread_entry\n");
__attribute__((used)) void thread_of_number(int number) {
    thread(number);
    __asm__ volatile("");
}

static void threads(void) {
    static char stacks[2][STACK_BYTES] __attribute__((aligned(16)));
    static volatile uint32_t running[2];
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID |
                 CLONE_CHILD_CLEARTID;
    for (int i = 0; i < 2; i++) {
        start_thread(flags, stacks[i] + STACK_BYTES, (uint32_t *)&running[i], i);
    }
    for (int i = 0; i < 2; i++) {
        for (uint32_t tid; (tid = running[i]) != 0;) {
            call(SYS_futex, (long)&running[i], FUTEX_WAIT, tid, 0, 0);
        }
    }
}

/* Machine code that the program copies to memory and runs. It has a frame pointer, like JIT code. */
extern const uint8_t template_begin[], template_end[];
__asm__("template_begin:\n push %rbp\n mov %rsp, %rbp\n mov $20000000, %ecx\n"
        "1: imul $3, %rax, %rax\n add $1, %rax\n dec %ecx\n jnz 1b\n pop %rbp\n ret\ntemplate_end:\n");

FRAME static uint64_t run_made(uint64_t (*code)(uint64_t)) {
    uint64_t state = code(1);
    AFTER(state);
    return state;
}

FRAME static uint64_t mapped_leaf(uint64_t state) { return burn(state, SHORT); }

/* Runs dynamically generated code, then maps the program's file at the same addresses and runs it. */
static uint64_t made_and_remapped(void) {
    const int fixed = MAP_PRIVATE | MAP_FIXED;
    extern const uint8_t image[] __asm__("__ehdr_start");
    call(SYS_mmap, (long)made, 4096, PROT_READ | PROT_WRITE, fixed | MAP_ANONYMOUS, -1);
    for (long i = 0; i < template_end - template_begin; i++) {
        made[i] = template_begin[i];
    }
    call(SYS_mprotect, (long)made, 4096, PROT_READ | PROT_EXEC, 0, 0);
    uint64_t state = run_made((uint64_t(*)(uint64_t))made);
    long file = call(SYS_open, (long)self, O_RDONLY, 0, 0, 0);
    call(SYS_munmap, (long)made, 4096, 0, 0, 0);
    call(SYS_mmap, (long)made, 4096, PROT_READ | PROT_EXEC, fixed, file);
    state += run_made((uint64_t(*)(uint64_t))(made + ((const uint8_t *)mapped_leaf - image)));
    call(SYS_close, file, 0, 0, 0, 0);
    return state;
}

FRAME static uint64_t in_child(uint64_t state) { return burn(state, SHORT); }
FRAME static uint64_t after_exec(uint64_t state) { return burn(state, SHORT); }

static void run_again(const char *as) {
    const char *arguments[] = {"program", as, 0}, *environment[] = {0};
    call(SYS_execve, (long)self, (long)arguments, (long)environment, 0, 0);
    leave(1);
}

static void await_child(long pid) { call(SYS_wait4, pid, 0, 0, 0, 0); }

FRAME static uint64_t fork_only(void) {
    long pid = call(SYS_fork, 0, 0, 0, 0, 0);
    if (pid == 0) {
        run_on(0);
        uint64_t state = in_child(1);
        AFTER(state);
        leave(0);
    }
    await_child(pid);
    return 0;
}

static void fork_and_exec(void) {
    long pid = call(SYS_fork, 0, 0, 0, 0, 0);
    if (pid == 0) {
        run_again("forked");
    }
    await_child(pid);
}

/* The child shares this stack until its exec, so nothing returns before. */
static void vfork_and_exec(void) {
    static const char *arguments[] = {"program", "vforked", 0}, *environment[] = {0};
    long pid = call(SYS_vfork, 0, 0, 0, 0, 0);
    if (pid == 0) {
        call(SYS_execve, (long)self, (long)arguments, (long)environment, 0, 0);
        leave(1);
    }
    await_child(pid);
}

__attribute__((used)) int program_main(long count, char **arguments) {
    volatile uint64_t sink = 0;
    if (count > 1) {
        name_thread(arguments[1]);
        run_on(arguments[1][0] == 'v');
        sink = after_exec(1);
        return 0;
    }
    run_on(0);
    sink = outer(1);
    run_on(1);
    sink = deep(sink);
    run_on(0);
    sink = read_zeros();
    threads();
    run_on(1);
    sink = made_and_remapped();
    sink = fork_only();
    fork_and_exec();
    vfork_and_exec();
    (void)sink;
    return 0;
}

__asm__(".globl _start\n.type _start, @function\n_start:\n.cfi_startproc\n.cfi_undefined rip\n"
        "xor %ebp, %ebp\n mov (%rsp), %rdi\n lea 8(%rsp), %rsi\n and $-16, %rsp\n call program_main\n"
        "mov %eax, %edi\n mov $231, %eax\n syscall\n hlt\n.cfi_endproc\n.size _start, . - _start\n");
