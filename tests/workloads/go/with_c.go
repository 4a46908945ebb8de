package main

// extern void goCallback(int);
// static long burn(int n) {
//     long y = 1;
//     for (int i = 0; i < n; i++) y = y * 31 + (y >> 5);
//     return y;
// }
// static __attribute__((noinline)) void calls_back(int n) {
//     for (int i = 0; i < n; i++) goCallback(i);
// }
import "C"

//export goCallback
func goCallback(n C.int) { sink = leaf(5000) }

//go:noinline
func cCaller() {
	sink = C.burn(100000)
	C.calls_back(20)
}
