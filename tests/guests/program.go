package guests

import (
	"fmt"
	"slices"
	"strings"
)

// A Program is one of the programs in java/guest, with the flags that its truth depends on.
type Program struct {
	Name   string
	Class  string // in java/guest
	Flags  []string
	MinJDK int    // the oldest JDK that has what it shows, 0 for any
	Thread string // prefix of the names of its workers

	// Inlines says that its methods are inlined, so that the shares of the inner ones are only
	// known if the JVM records debug information between safepoints.
	Inlines bool
	// Unloads says that it unloads classes continuously.
	Unloads bool
	// Mounts says that it runs virtual threads, which yield their carriers continuously.
	Mounts bool
}

// worker is the prefix of the names of most programs' threads; virtual threads run on a pool's.
const worker = "worker"

// Programs returns the programs.
func Programs() []Program {
	return []Program{
		{Name: "Plain", Class: "Plain", Thread: worker, Flags: compile("dontinline Plain::*")},
		{
			Name: "Inlined", Class: "Inlined", Thread: worker, Inlines: true,
			Flags: compile("dontinline Inlined::outer*", "inline Inlined::inner", "inline Inlined::shift",
				"inline Inlined::scale"),
		},
		{Name: "Recursive", Class: "Recursive", Thread: worker, Flags: compile("dontinline Recursive::*")},
		{
			Name: "Interpreted", Class: "Interpreted", Thread: worker,
			Flags: compile("dontinline Interpreted::*", "exclude Interpreted::slow*"),
		},
		{Name: "Natives", Class: "Natives", Thread: worker, Flags: compile("dontinline Natives::*")},
		{Name: "Lambdas", Class: "Lambdas", Thread: worker, Flags: compile("dontinline Lambdas::*")},
		{
			Name: "Threads", Class: "Threads", Thread: worker,
			Flags: compile("dontinline Plain::*", "dontinline Threads::*"),
		},
		{
			Name: "Exceptions", Class: "Exceptions", Thread: worker,
			Flags: compile("dontinline Plain::*", "dontinline Exceptions::*"),
		},
		{
			Name: "Monitors", Class: "Monitors", Thread: worker,
			Flags: compile("dontinline Plain::*", "dontinline Monitors::*"),
		},
		{Name: "Deopt", Class: "Deopt", Thread: worker, Flags: compile("dontinline Deopt*::*")},
		{Name: "Churn", Class: "Churn", Thread: worker, Unloads: true, Flags: compile("dontinline Gen*::*")},
		{
			Name: "Churn, 8 MB of code", Class: "Churn", Thread: worker, Unloads: true,
			Flags: append(compile("dontinline Gen*::*"), "-XX:ReservedCodeCacheSize=8m", "-XX:+UseCodeCacheFlushing"),
		},
		Virtuals(),
	}
}

// Virtuals is a guest of virtual threads.
func Virtuals() Program {
	return Program{
		Name: "Virtuals", Class: "Virtuals", MinJDK: 21, Mounts: true,
		Thread: "ForkJoi", // JDK 28 shortens a name of more than 15 bytes in its middle
		Flags: append(compile("dontinline Virtuals::*"), "-Djdk.virtualThreadScheduler.parallelism=2",
			"--add-opens", "java.base/java.lang=ALL-UNNAMED"),
	}
}

// Periodic is a guest with a thread that works whenever a timer expires, beside one that is always
// busy.
func Periodic() Program {
	return Program{Name: "Periodic", Class: "Periodic", Thread: worker, Flags: compile("dontinline Plain::*")}
}

// Crowd is a guest of 5,000 compiled methods, all in use.
func Crowd() Program { return Program{Name: "Crowd", Class: "Crowd", Thread: worker} }

// CrowdOf is a guest of that many copies of four methods, which one compiler compiles as soon as it
// can.
func CrowdOf(copies int) Program {
	return Program{
		Name: fmt.Sprintf("Crowd of %d", copies), Class: "Crowd", Thread: worker,
		Flags: []string{fmt.Sprintf("-Dcopies=%d", copies), "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=512m",
			"-XX:+UseSerialGC"},
	}
}

// Turns is a guest that works while the others of that many do not: together they use a tenth of a
// CPU.
func Turns(count int) Program {
	return Program{
		Name: fmt.Sprintf("Turns of %d", count), Class: "Turns", Thread: worker,
		Flags: []string{fmt.Sprintf("-Dturns=%d", count), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx16m",
			"-Xss256k"},
	}
}

// Siblings is a guest of methods that are inlined next to each other into one. All its work goes
// through the code of that one, and the guest knows which of them works below which of its
// outermost methods.
func Siblings() Program {
	return Program{
		Name: "Siblings", Class: "Siblings", Thread: worker, Inlines: true,
		Flags: compile("dontinline Siblings::*ing", "dontinline Siblings::pass", "dontinline Siblings::keep",
			"inline Siblings::shift", "inline Siblings::scale", "inline Siblings::divide", "inline Siblings::look"),
	}
}

// Paced is a guest that serves 200 requests a second. One of its methods does that many percent
// more work than with 0.
func Paced(slow int) Program {
	return Program{
		Name: fmt.Sprintf("Paced, slow=%d", slow), Class: "Paced", Thread: worker,
		Flags: append(compile("dontinline Paced::heavy", "dontinline Paced::light"), fmt.Sprintf("-Dslow=%d", slow)),
	}
}

// A Pair is two ways to run the same work, 200 requests a second, of which one is slower.
type Pair struct {
	Name       string
	Fast, Slow Program
}

// Pairs are decisions of the JIT compiler that its flags can reverse.
func Pairs() []Pair {
	program := func(work string, flags ...string) Program {
		return Program{
			Name: "Paired, " + work, Class: "Paired", Thread: worker,
			Flags: slices.Concat(compile("dontinline Paired::summing", "dontinline Paired::calling",
				"dontinline Paired::dispatching"), []string{"-Dwork=" + work}, flags),
		}
	}
	return []Pair{
		{"C2 and C1", program("summing"), program("summing", "-XX:TieredStopAtLevel=1")},
		{"inlined and not", program("calling"), program("calling", compile("dontinline Paired::step")...)},
		{
			"guessed receiver and looked up",
			program("dispatching", "-XX:TypeProfileMajorReceiverPercent=40"),
			program("dispatching", "-XX:TypeProfileMajorReceiverPercent=90"),
		},
	}
}

// compile returns flags with orders for the compilers, of the form "dontinline CLASS::METHOD" with
// CLASS in the package guest, and a flag that keeps the JVM from repeating them on standard output.
func compile(orders ...string) []string {
	flags := []string{"-XX:CompileCommand=quiet"}
	for _, order := range orders {
		verb, method, _ := strings.Cut(order, " ")
		flags = append(flags, "-XX:CompileCommand="+verb+",guest."+method)
	}
	return flags
}

// Runs reports whether the program is run in the flavour on a JDK of that version.
func (p Program) Runs(flavour Flavour, jdk int) bool {
	return jdk >= p.MinJDK && (p.Inlines || !flavour.ForInlining)
}
