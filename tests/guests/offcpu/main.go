// Command offcpu has a thread that is off the CPU, and knows for how long. It is a native program: no VM, and no C library. It executes
// orders as JVMs do (tests/jvm.Guest):
//
//	run burn 2000         the thread uses CPU for 2 s, as far as it gets any
//	run fault 2000 FILE   it touches pages of a file that are not in memory
//	start burn            the same until the program ends: nothing is answered but that it has begun
//
// The answer to run is a line "away FUNCTION CAUSE TIMES NANOS", the time that passed while it was repeated without the CPU time that the thread used. In
// causes, an underscore stands for a space.
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threadName is the name of the thread that works.
const threadName = "worker"

func main() {
	fmt.Println("ready pid", os.Getpid())
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		if err := execute(strings.Fields(orders.Text())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("done")
	}
}

func execute(order []string) error {
	if slices.Equal(order, []string{"start", "burn"}) {
		go work(burn, math.MaxInt64)
		fmt.Println("checksum 0")
		return nil
	}
	if len(order) < 3 || order[0] != "run" || order[1] == "fault" && len(order) < 4 {
		return fmt.Errorf("unknown order %q", order)
	}
	millis, err := strconv.Atoi(order[2])
	if err != nil {
		return fmt.Errorf("order %q: %w", order, err)
	}
	way, line := burn, "away main.burn runnable"
	if order[1] == "fault" {
		pages, err := openPages(order[3])
		if err != nil {
			return err
		}
		defer pages.file.Close()
		way, line = pages.fault, "away main.(*pages).fault page_fault"
	}
	done := make(chan tally)
	go func() { done <- work(way, time.Duration(millis)*time.Millisecond) }()
	t := <-done
	if t.err != nil {
		return t.err
	}
	fmt.Printf("%s %d %d\nchecksum 0\n", line, t.times, max(t.off, 0).Nanoseconds())
	return nil
}

// A tally is what work did.
type tally struct {
	times int
	off   time.Duration
	err   error
}

// work repeats a way of waiting on a thread of its own until so much time has passed.
func work(way func() error, length time.Duration) (t tally) {
	runtime.LockOSThread() // and ends with it
	name := [16]byte{}
	copy(name[:], threadName)
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0, 0, 0)
	used, begin := cpuTime(), time.Now()
	for ; time.Since(begin) < length && t.err == nil; t.times++ {
		t.err = way()
	}
	t.off = time.Since(begin) - (cpuTime() - used)
	return t
}

// cpuTime is that of the calling thread.
func cpuTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

var sink uint64

// burn uses CPU for some 10 ms.
//
//go:noinline
func burn() error {
	x := sink
	for i := range uint64(1 << 24) {
		x = x*6364136223846793005 + i
	}
	sink = x
	return nil
}

// pages are a file of which pages are read by touching them.
type pages struct {
	file *os.File
	size int
}

func openPages(path string) (*pages, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	return &pages{file, int(info.Size())}, err
}

// fault has the kernel forget the file's pages, and touches each of them: every touch is a read from storage.
//
//go:noinline
func (p *pages) fault() error {
	if err := unix.Fadvise(int(p.file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("evict pages: %w", err)
	}
	memory, err := unix.Mmap(int(p.file.Fd()), 0, p.size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map pages: %w", err)
	}
	defer unix.Munmap(memory)
	if err := unix.Madvise(memory, unix.MADV_RANDOM); err != nil { // nothing is read ahead
		return fmt.Errorf("advise on pages: %w", err)
	}
	for at := 0; at < len(memory); at += os.Getpagesize() {
		sink += uint64(memory[at])
	}
	return nil
}
