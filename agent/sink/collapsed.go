package sink

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Collapsed writes one line for each distinct stack, in the form that Brendan Gregg's FlameGraph scripts and most
// flame graph viewers read:
//
//	java;java.lang.Thread.run;com.acme.Shop.checkout;java.util.HashMap.get 42
//
// The command name of the process comes first and the innermost method last; the number is a count of samples.
// Threads, and processes of the same name, are added up. Lines are ordered by their frames, so that equal profiles
// give equal files.
func Collapsed(w io.Writer, p *agent.Profile) error {
	// One tree by name, because names are fewer than addresses. Nothing here may lose detail: it is as large as
	// what was recorded, which was bounded then.
	limit := 0
	for _, proc := range p.Processes {
		for _, thread := range proc.Threads {
			if thread.Tree != nil {
				limit += thread.Tree.Len() + 2 // the process, and [unknown] for samples without frames
			}
		}
	}
	stacks := cct.Tree[string]{Limit: limit}
	names := make(map[symbolize.Symbol]string)
	for _, proc := range p.Processes {
		comm := field(proc.Comm)
		for _, thread := range proc.Threads {
			if thread.Tree == nil {
				continue
			}
			for id, n := range thread.Tree.Nodes() {
				if n.Self == 0 {
					continue
				}
				var stack []string
				for _, symbol := range thread.Tree.Stack(id) {
					name, ok := names[symbol]
					if !ok {
						name = field(symbol.Value().Function)
						names[symbol] = name
					}
					stack = append(stack, name)
				}
				if len(stack) == 0 {
					stack = append(stack, unnamed)
				}
				stacks.Add(append(stack, comm), n.Self)
			}
		}
	}

	buffered := bufio.NewWriter(w)
	var path []string // of the node that is visited, outermost frame first
	stacks.Walk(stacks.ByKey(strings.Compare), func(_ cct.NodeID, n cct.Node[string]) bool {
		path = append(path[:n.Depth-1], n.Key)
		if n.Self > 0 {
			fmt.Fprintf(buffered, "%s %d\n", strings.Join(path, ";"), n.Self)
		}
		return true
	})
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write collapsed stacks: %w", err)
	}
	return nil
}

// field makes a name fit for a frame of a collapsed stack, whose separator it must not hold.
func field(name string) string {
	if name == "" {
		return unnamed
	}
	return strings.ReplaceAll(printable(name), ";", `\x3b`)
}
