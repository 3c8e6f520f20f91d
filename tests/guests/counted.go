package guests

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// A Counted is a running java/calls/Exact.java, which counts its calls itself. Its orders are
// described there.
type Counted struct {
	*jvm.Guest
}

// StartCounted starts the program, compiled by the oldest JDK, with flags for the JVM. It ends when
// ctx is done.
func StartCounted(ctx context.Context, jdk jvm.JDK, flags ...string) (*Counted, error) {
	compiler, err := jvm.Oldest()
	if err != nil {
		return nil, err
	}
	classes, err := Compile(ctx, compiler)
	if err != nil {
		return nil, err
	}
	guest, err := jvm.Start(ctx, jvm.Command{JDK: jdk, Flags: flags, Classpath: []string{classes}, Main: "calls.Exact"})
	if err != nil {
		return nil, fmt.Errorf("start the guest that counts its calls: %w", err)
	}
	return &Counted{guest}, nil
}

// Contexts are calls by context: the name of a thread, then the methods from the outermost one on,
// one blank between.
type Contexts map[string]uint64

// Truth returns what the guest has called so far, on threads of its own: those named exact-N.
func (g *Counted) Truth() (Contexts, error) {
	lines, err := g.Order("truth")
	if err != nil {
		return nil, err
	}
	return parseContexts(lines)
}

// parseContexts reads the lines that java/calls/Context.java prints.
func parseContexts(lines []string) (Contexts, error) {
	contexts := Contexts{}
	for _, line := range lines {
		words := strings.SplitN(line, " ", 3)
		if len(words) != 3 || words[0] != "calls" {
			return nil, fmt.Errorf("parse calls %q: no such fact", line)
		}
		n, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse calls %q: %w", line, err)
		}
		if strings.Contains(words[2], " ") { // a thread alone is no method
			contexts[words[2]] += n
		}
	}
	return contexts, nil
}

// Methods returns every method in the contexts.
func (c Contexts) Methods() map[string]bool {
	methods := map[string]bool{}
	for path := range c {
		for _, method := range strings.Fields(path)[1:] {
			methods[method] = true
		}
	}
	return methods
}

// Diff lists up to n of the contexts in which got differs from c, and how many there are.
func (c Contexts) Diff(got Contexts, n int) (shown []string, wrong int) {
	paths := map[string]bool{}
	for _, contexts := range []Contexts{c, got} {
		for path := range contexts {
			paths[path] = paths[path] || c[path] != got[path]
		}
	}
	for path, differs := range paths {
		if differs {
			shown = append(shown, fmt.Sprintf("%d calls, want %d: %s", got[path], c[path], path))
		}
	}
	wrong = len(shown)
	slices.Sort(shown)
	return shown[:min(n, wrong)], wrong
}
