package sink

import (
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// inliners collect what the VMs' inliners decide by, of all windows.
type inliners struct {
	list    []stored.Inlining
	byPID   map[int]int       // index in list
	callees map[calleeKey]int // index in the list of its process
	count   int               // number of callees
	sites   int
	leftOut int
}

type calleeKey struct{ pid, method int }

// add adds what is known of a process in a window. Times of windows add up. Place returns where a
// method's name is in the metadata.
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
	n.addSites(of, proc.Inlining.Sites, place)
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

// addSites replaces what is known of the calls with several receivers: counts are those since the
// VM started.
func (n *inliners) addSites(of *stored.Inlining, sites []profile.VirtualSite, place func(name string) int) {
	n.sites -= len(of.Sites)
	of.Sites = nil
	for i := range sites {
		if n.sites >= stored.MaxVirtualSites {
			n.leftOut += len(sites) - i
			return
		}
		n.sites++
		s := stored.VirtualSite{Caller: place(sites[i].Caller), Offset: sites[i].Offset, Calls: sites[i].Calls}
		for _, t := range sites[i].Targets {
			s.Targets = append(s.Targets, stored.VirtualTarget{Method: place(t.Callee), Calls: t.Calls})
		}
		of.Sites = append(of.Sites, s)
	}
}
