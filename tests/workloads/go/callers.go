// callers SECONDS: calls the Go runtime in known ways: allocation and collection, channels, maps,
// sorting, growth of stacks, system calls and timers.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

var sink any
var deadline time.Time

//go:noinline
func leaf(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum = sum*31 + i ^ sum>>3
	}
	return sum
}

//go:noinline
func computeCaller() { sink = leaf(100000) }

//go:noinline
func allocateCaller() {
	for i := 0; i < 300; i++ {
		block := make([]*int, 64+i%64)
		for j := range block {
			block[j] = new(int)
		}
		sink = block
	}
}

//go:noinline
func mapCaller() {
	counts := map[string]int{}
	for i := 0; i < 2000; i++ {
		counts["key"+strconv.Itoa(i%500)] += i
	}
	sink = counts
}

//go:noinline
func sortCaller() {
	values := make([]int, 5000)
	for i := range values {
		values[i] = (i * 7919) % 5003
	}
	sort.Slice(values, func(i, j int) bool { return values[i] < values[j] })
	sink = values
}

//go:noinline
func channelCaller() {
	numbers := make(chan int)
	go func() {
		for i := 0; i < 500; i++ {
			numbers <- i
		}
		close(numbers)
	}()
	for number := range numbers {
		sink = number
	}
}

//go:noinline
func descend(depth int) int {
	var pad [32]int
	pad[depth%32] = depth
	if depth == 0 {
		return pad[0]
	}
	return descend(depth-1) + pad[depth%32]
}

//go:noinline
func deepCaller() {
	done := make(chan int)
	go func() { done <- descend(100) }()
	sink = <-done
}

//go:noinline
func writeCaller(null *os.File) {
	for i := 0; i < 200; i++ {
		fmt.Fprintln(null, i, "line")
	}
}

//go:noinline
func timeCaller() {
	for i := 0; i < 2000; i++ {
		sink = time.Now()
	}
}

//go:noinline
func work(null *os.File) {
	for time.Now().Before(deadline) {
		computeCaller()
		allocateCaller()
		mapCaller()
		sortCaller()
		channelCaller()
		deepCaller()
		writeCaller(null)
		timeCaller()
		cCaller()
	}
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	deadline = time.Now().Add(time.Duration(seconds) * time.Second)
	null, _ := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	var group sync.WaitGroup
	for i := 0; i < 2; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			work(null)
		}()
	}
	group.Wait()
}
