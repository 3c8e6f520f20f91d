package sink

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// inliners collect what the VMs' inliners decide by, of all windows.
type inliners struct {
	list    []stored.Inlining
	byPID   map[int]int       // in list
	callees map[calleeKey]int // in the list of its process
	count   int
	leftOut int
}

type calleeKey struct{ pid, method int }

// add adds what is known of a process in a window. Times of windows add up. Place returns where a method's name is in the metadata.
func (n *inliners) add(proc *profile.Process, place func(name string) int) {
	if proc.Inlining == nil {
		return
	}
	if n.byPID == nil {
		n.byPID, n.callees = make(map[int]int), make(map[calleeKey]int)
	}
	at, known := n.byPID[proc.PID]
	if !known {
		at = len(n.list)
		n.byPID[proc.PID], n.list = at, append(n.list, stored.Inlining{PID: int64(proc.PID)})
	}
	of := &n.list[at]
	of.Limits = proc.Inlining.Limits
	for _, c := range proc.Inlining.Callees {
		key := calleeKey{proc.PID, place(c.Method)}
		i, known := n.callees[key]
		if !known && n.count >= stored.MaxCallees {
			n.leftOut++
			continue
		}
		if !known {
			n.count++
			i = len(of.Callees)
			n.callees[key], of.Callees = i, append(of.Callees, stored.Callee{Method: key.method})
		}
		of.Callees[i].Bytecode = max(of.Callees[i].Bytecode, c.Bytecode)
		of.Callees[i].Entering += c.Entering
	}
}
