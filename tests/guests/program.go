package guests

// A Program is one of the programs in java/guest, with the flags that its truth depends on.
type Program struct {
	Name   string
	Class  string // in java/guest
	Flags  []string
	MinJDK int    // the oldest JDK that has what it shows, 0 for any
	Thread string // prefix of the names of its workers

	// Inlines says that its methods are inlined, so that the shares of the inner ones can be told only where the JVM
	// records debug information between safepoints.
	Inlines bool
	// Unloads says that it unloads classes all the time.
	Unloads bool
	// Partial says that its stacks may end early if they say so.
	Partial bool
}

// quiet keeps the compilers from telling on standard output which commands they got.
const quiet = "-XX:CompileCommand=quiet"

// dontInline keeps the methods of a class from being inlined. It changes nothing else.
func dontInline(class string) []string {
	return []string{quiet, "-XX:CompileCommand=dontinline,guest." + class + "::*"}
}

// with returns flags and more.
func with(flags []string, more ...string) []string { return append(flags, more...) }

// worker is the prefix of the names of all programs' own threads.
const worker = "worker"

// Programs returns the programs.
func Programs() []Program {
	return []Program{
		{Name: "Plain", Class: "Plain", Flags: dontInline("Plain"), Thread: worker},
		{
			Name: "Inlined", Class: "Inlined", Thread: worker, Inlines: true,
			Flags: []string{quiet,
				"-XX:CompileCommand=dontinline,guest.Inlined::outer*",
				"-XX:CompileCommand=inline,guest.Inlined::inner",
				"-XX:CompileCommand=inline,guest.Inlined::shift",
				"-XX:CompileCommand=inline,guest.Inlined::scale"},
		},
		{Name: "Recursive", Class: "Recursive", Flags: dontInline("Recursive"), Thread: worker},
		{
			Name: "Interpreted", Class: "Interpreted", Thread: worker,
			Flags: with(dontInline("Interpreted"), "-XX:CompileCommand=exclude,guest.Interpreted::slow*"),
		},
		{Name: "Natives", Class: "Natives", Flags: dontInline("Natives"), Thread: worker},
		{Name: "Lambdas", Class: "Lambdas", Flags: dontInline("Lambdas"), Thread: worker},
		{Name: "Threads", Class: "Threads", Flags: with(dontInline("Plain"), dontInline("Threads")...), Thread: worker},
		{Name: "Exceptions", Class: "Exceptions", Flags: with(dontInline("Plain"), dontInline("Exceptions")...), Thread: worker},
		{Name: "Monitors", Class: "Monitors", Flags: with(dontInline("Plain"), dontInline("Monitors")...), Thread: worker},
		{Name: "Deopt", Class: "Deopt", Flags: dontInline("Deopt*"), Thread: worker},
		{Name: "Churn", Class: "Churn", Flags: dontInline("Gen*"), Thread: worker, Unloads: true},
		{
			Name: "Churn, 8 MB of code", Class: "Churn", Thread: worker, Unloads: true,
			Flags: with(dontInline("Gen*"), "-XX:ReservedCodeCacheSize=8m", "-XX:+UseCodeCacheFlushing"),
		},
		{
			Name: "Virtuals", Class: "Virtuals", MinJDK: 21, Thread: "ForkJoinPool", Partial: true,
			Flags: with(dontInline("Virtuals"), "--add-opens", "java.base/java.lang=ALL-UNNAMED",
				"-Djdk.virtualThreadScheduler.parallelism=2"),
		},
	}
}

// Crowd is a guest of 5,000 compiled methods, all in use.
func Crowd() Program { return Program{Name: "Crowd", Class: "Crowd", Thread: worker} }

// A Flavour is a way to run a program.
type Flavour struct {
	Name  string
	Flags []string
	// InnerMethods says that the shares of inlined methods can be told: nothing is inlined, or the JVM records debug
	// information between safepoints.
	InnerMethods bool
	// For programs that inline only: the others are no different in it.
	ForInlining bool
}

// Flavours returns the ways to run a program: who compiles its methods, and what is recorded about them.
func Flavours() []Flavour {
	debug := []string{"-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"}
	return []Flavour{
		{Name: "default"},
		{Name: "C1", Flags: []string{"-XX:TieredStopAtLevel=1"}},
		{Name: "C2", Flags: []string{"-XX:-TieredCompilation"}},
		{Name: "interpreter", Flags: []string{"-Xint"}, InnerMethods: true},
		{Name: "C1, debug info", Flags: with([]string{"-XX:TieredStopAtLevel=1"}, debug...), InnerMethods: true, ForInlining: true},
		{Name: "C2, debug info", Flags: with([]string{"-XX:-TieredCompilation"}, debug...), InnerMethods: true, ForInlining: true},
	}
}

// Runs says whether the program is run in the flavour on a JDK of that version.
func (p Program) Runs(flavour Flavour, jdk int) bool {
	return jdk >= p.MinJDK && (p.Inlines || !flavour.ForInlining)
}
