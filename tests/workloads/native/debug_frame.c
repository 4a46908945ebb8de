// Runs in a function whose frame only .debug_frame describes: the size of the frame is an argument.
// rbp is no frame pointer, but leads to three frames that look like those of callers. Compile without
// .eh_frame.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

long spin_in_frame(long bytes, long rounds, void *rbp);
extern char after_call[];
__asm__(
    ".cfi_sections .debug_frame\n"
    ".text\n"
    ".type spin_in_frame, @function\n"
    "spin_in_frame:\n"
    ".cfi_startproc\n"
    "push %rbp\n"
    ".cfi_def_cfa_offset 16\n"
    ".cfi_offset rbp, -16\n"
    "sub %rdi, %rsp\n"
    ".cfi_def_cfa_offset 80\n"
    "mov %rdx, %rbp\n"
    "0: dec %rsi\n"
    "jnz 0b\n"
    "mov $0x1234, %eax\n"
    "add %rdi, %rsp\n"
    ".cfi_def_cfa_offset 16\n"
    "pop %rbp\n"
    ".cfi_restore rbp\n"
    ".cfi_def_cfa_offset 8\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size spin_in_frame, . - spin_in_frame\n"
    ".type never_called, @function\n"
    "never_called:\n"
    "sub %rdi, %rsp\n"
    "call spin_in_frame\n"
    "after_call:\n"
    "add %rdi, %rsp\n"
    "ret\n"
    ".size never_called, . - never_called\n");

__attribute__((noinline)) static long frame_caller(void) {
    void *frames[] = {frames + 2, after_call, frames + 4, after_call, (void *)1, after_call};
    return spin_in_frame(64, 100000, frames) + 1;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    long sum = 0;
    while (clock() < end)
        for (int i = 0; i < 100; i++)
            sum += frame_caller();
    printf("%ld\n", sum);
}
