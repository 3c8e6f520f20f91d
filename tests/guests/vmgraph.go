package guests

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A VMGraph is a call graph of the reference guest: methods by name, call sites by line in the
// caller's file.
type VMGraph = cct.Graph[string, int]

// A VMEdge is an edge of a VMGraph.
type VMEdge = cct.Edge[string, int]

// VMEnter is the caller of the methods that C code calls.
const VMEnter = "enter"

// parseVMGraph reads the lines that vm/graph.c prints.
func parseVMGraph(lines []string) (*VMGraph, error) {
	g := &VMGraph{}
	for _, line := range lines {
		f := strings.Split(line, "\t")
		if len(f) != 5 || f[0] != "edge" {
			return nil, fmt.Errorf("line %q is no edge", line)
		}
		site, err := strconv.Atoi(f[2])
		if err != nil {
			return nil, fmt.Errorf("call site of %q: %w", line, err)
		}
		calls, err := strconv.ParseUint(f[4], 10, 53) // a float64 holds that exactly
		if err != nil {
			return nil, fmt.Errorf("calls of %q: %w", line, err)
		}
		g.Add(VMEdge{Caller: f[1], Site: site, Callee: f[3]}, float64(calls))
	}
	return g, nil
}
