package guests

import "slices"

// A Flavour is a way to run a program.
type Flavour struct {
	Name  string
	Flags []string
	// InnerMethods says that the shares of inlined methods are known: nothing is inlined, or the
	// JVM records debug information between safepoints.
	InnerMethods bool
	// ForInlining says that it only makes a difference to programs with inlining.
	ForInlining bool
}

// Flavours returns the ways to run a program: who compiles its methods, and which debug information
// is recorded.
func Flavours() []Flavour {
	c1, c2 := []string{"-XX:TieredStopAtLevel=1"}, []string{"-XX:-TieredCompilation"}
	debug := []string{"-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"}
	return []Flavour{
		{Name: "default"},
		{Name: "C1", Flags: c1},
		{Name: "C2", Flags: c2},
		{Name: "interpreter", Flags: []string{"-Xint"}, InnerMethods: true},
		{Name: "C1, debug info", Flags: slices.Concat(c1, debug), InnerMethods: true, ForInlining: true},
		{Name: "C2, debug info", Flags: slices.Concat(c2, debug), InnerMethods: true, ForInlining: true},
	}
}
