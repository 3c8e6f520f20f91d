// Package work runs the work of a guest program.
package work

import (
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"
)

var (
	duration = flag.Duration("d", time.Second, "work for `TIME`")
	profile  = flag.String("cpuprofile", "", "write a CPU profile of the Go runtime to `FILE`")
	rate     = flag.Int("rate", 100, "take `N` samples a second for it")
)

// Run calls do with ascending numbers until the time is over, and prints how much CPU time a call took on average: after a multiple of
// round calls, so that all rounds are the same work.
func Run(round int, do func(i int)) {
	if *profile != "" {
		f, err := os.Create(*profile)
		Check(err)
		runtime.SetCPUProfileRate(*rate) // StartCPUProfile then says that it cannot set another one
		Check(pprof.StartCPUProfile(f))
		defer func() {
			pprof.StopCPUProfile()
			Check(f.Close())
		}()
	}
	began, before, calls := time.Now(), cpuTime(), 0
	for time.Since(began) < *duration {
		for range round {
			do(calls)
			calls++
		}
	}
	fmt.Println((cpuTime() - before).Nanoseconds() / int64(calls))
}

// cpuTime is that of all threads.
func cpuTime() time.Duration {
	var usage unix.Rusage
	Check(unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Check ends the program with an error.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
