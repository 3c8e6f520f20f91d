// Package events runs programs whose events are known, and compares what was recorded of them with
// the truth.
//
//	guest, err := events.Start(ctx, jdk, events.Allocating)
//	... begin to record ...
//	truth, err := guest.Run(4, 1_000_000)
//	... end ...
//	recorded, err := events.Read(profile, "alloc_objects", "alloc_space")
//	overlap := events.ByClass(recorded, 1).Overlap(exact)
//
// A program does nothing that it is not told to. So a recording that holds all of a run has what
// the run did, and nothing else of the program's own threads.
package events

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/binary"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// A Program is a class in ../guests/java/guest, with the flags that its truth depends on.
type Program struct {
	Class string
	Flags []string
}

// Thread is the prefix of the names of the programs' threads.
const Thread = "worker"

// quiet has the JVM not repeat orders to its compilers on standard output.
const quiet = "-XX:CompileCommand=quiet"

// Programs.
var (
	// Allocating allocates small, middling and large objects; AMOUNT is how many each thread does.
	// Its buffers are of 256 KB, so that its objects are on both sides of what fits, and of what a
	// buffer is given up for: 4 KB.
	Allocating = Program{Class: "Allocating", Flags: []string{
		quiet, "-XX:CompileCommand=dontinline,guest.Allocating::*", "-XX:TLABSize=256k", "-XX:-ResizeTLAB",
	}}
	// Working uses CPU in three methods; AMOUNT is the CPU time of each thread in milliseconds. Its
	// recursion is inlined as the compilers like it.
	Working = Program{Class: "Working", Flags: []string{
		quiet, "-XX:CompileCommand=dontinline,guest.Working::heavy",
		"-XX:CompileCommand=dontinline,guest.Working::medium",
		"-XX:CompileCommand=dontinline,guest.Working::light",
	}}
	// Locking takes monitors that are free most of the time; AMOUNT is how often each thread takes
	// one.
	Locking = Program{Class: "Locking", Flags: []string{quiet, "-XX:CompileCommand=dontinline,guest.Locking*::*"}}
	// Waiting has threads wait for one another; AMOUNT is how many rounds each thread goes.
	Waiting = Program{Class: "Waiting", Flags: []string{quiet, "-XX:CompileCommand=dontinline,guest.Waiting::*"}}
	// Away has threads wait in ten ways; AMOUNT is for how many milliseconds each does.
	Away = Program{Class: "Away", Flags: []string{quiet, "-XX:CompileCommand=dontinline,guest.Away::*"}}
	// Carried has virtual threads wait in eight ways; AMOUNT is for how many milliseconds each
	// does. It needs JDK 21.
	Carried = Program{Class: "Carried", Flags: []string{quiet, "-XX:CompileCommand=dontinline,guest.Carried::*",
		"-Djdk.virtualThreadScheduler.parallelism=8"}}
	// Napping has threads sleep for a tenth of a second over and over; AMOUNT is how often each
	// does.
	Napping = Program{Class: "Napping"}
	// Dozing has threads wait for 25 us to 60 ms, in six methods; AMOUNT is for how many
	// milliseconds each does.
	Dozing = Program{Class: "Dozing", Flags: []string{quiet, "-XX:CompileCommand=dontinline,guest.Dozing::*"}}
	// Stages sleeps, works and waits for a monitor in turn; AMOUNT is how many rounds it does.
	Stages = Program{Class: "Stages", Flags: []string{quiet, "-XX:CompileCommand=dontinline,guest.Stages::*"}}
	// Requests handles requests, of which some are slow; AMOUNT is for how many milliseconds each
	// thread does. The first run only has the method compiled.
	Requests = Program{Class: "Requests", Flags: []string{quiet, "-XX:CompileCommand=dontinline,guest.Requests::*"}}
	// Woken has threads end the waits of others; AMOUNT is for how many milliseconds each waits.
	// Its methods are compiled, and stay so: where the interpreter releases a monitor, its frames
	// may not be found.
	Woken = Program{Class: "Woken", Flags: []string{quiet, "-XX:CompileCommand=dontinline,guest.Woken::*", "-Xbatch",
		"-XX:TieredStopAtLevel=1"}}
	// Faulting touches new memory; AMOUNT is how many megabytes each thread does. All runs of one
	// guest together must stay below FaultingMegabytes, as then a collection comes, and after it
	// old memory is used again.
	Faulting = Program{Class: "Faulting", Flags: []string{
		quiet, "-XX:CompileCommand=dontinline,guest.Faulting::*",
		"-XX:+UseSerialGC", "-Xms1g", "-Xmx1g", "-Xmn768m",
	}}
	// Marking stores references into old objects; AMOUNT is how many rounds each thread goes, of
	// 100,000 cards.
	Marking = Program{Class: "Marking", Flags: []string{
		quiet, "-XX:CompileCommand=dontinline,guest.Marking::*", "-XX:+UseG1GC", "-Xms1g", "-Xmx1g",
	}}
	// Throwing throws exceptions; AMOUNT is how many each thread does, a multiple of ten.
	Throwing = Program{Class: "Throwing", Flags: []string{quiet, "-XX:CompileCommand=dontinline,guest.Throwing::*"}}
	// Pausing has the JVM stop all threads; AMOUNT is how many rounds each thread goes, of 64 MB of
	// garbage.
	Pausing = Program{Class: "Pausing", Flags: []string{"-Xmx512m"}}
)

// FaultingMegabytes is what fits into the part of Faulting's heap that new objects come into: 8
// tenths of -Xmn, as each survivor space has one (-XX:SurvivorRatio=8, the default). The JVM itself
// needs a little.
const FaultingMegabytes = 560

// A Guest is a running Program.
type Guest struct {
	*jvm.Guest
}

// Start starts a program with more flags for its JVM. It ends when ctx is done.
func Start(ctx context.Context, jdk jvm.JDK, p Program, flags ...string) (*Guest, error) {
	compiler, err := jvm.Oldest()
	if err != nil {
		return nil, err
	}
	compile := guests.Compile
	if jdk.Version < jvm.MinVersion {
		compile = guests.CompileOld
	}
	classes, err := compile(ctx, compiler)
	if err != nil {
		return nil, err
	}
	return StartIn(ctx, jvm.Command{JDK: jdk, Flags: flags, Classpath: []string{classes}}, p)
}

// Main is the class that runs the program named by its argument.
const Main = "guest.Steered"

// StartIn starts a program in a JVM of which the JDK, more flags and the classpath are given. It
// ends when ctx is done.
func StartIn(ctx context.Context, c jvm.Command, p Program) (*Guest, error) {
	c.Flags, c.Main, c.Args = slices.Concat(p.Flags, c.Flags), Main, []string{p.Class}
	guest, err := jvm.Start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Class, err)
	}
	return &Guest{guest}, nil
}

// StartNative builds a native program, ../guests/offcpu, in dir and starts it. It ends when ctx is
// done.
func StartNative(ctx context.Context, dir string) (*Guest, error) {
	path, err := binary.Build(ctx, "github.com/vmprof-agent/vmprof-agent/tests/guests/offcpu", dir)
	if err != nil {
		return nil, err
	}
	guest, err := jvm.StartProcess(exec.CommandContext(ctx, path), path)
	if err != nil {
		return nil, err
	}
	return &Guest{guest}, nil
}

// Run has so many threads do an amount of work each, waits for them, and returns what happened.
func (g *Guest) Run(threads, amount int) (Truth, error) {
	return g.order(fmt.Sprintf("run %d %d", threads, amount))
}

// RunNative has a native program wait in a way for so many milliseconds: see ../guests/offcpu.
func (g *Guest) RunNative(way string, millis int, args ...string) (Truth, error) {
	return g.order(strings.Join(append([]string{"run", way, strconv.Itoa(millis)}, args...), " "))
}

// KeepBusy has a thread of a native program use CPU until the program ends.
func (g *Guest) KeepBusy() error {
	_, err := g.order("start burn")
	return err
}

func (g *Guest) order(order string) (Truth, error) {
	lines, err := g.Order(order)
	if err != nil {
		return Truth{}, err
	}
	return parseTruth(lines)
}
