package usdt

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Count counts every call of a PHP process: ground truth for samples. It slows the process down
// tenfold.
type Count struct {
	engine *Engine
	guest  *guest
	links  []link.Link // probes of the window that stays open
}

var (
	errIncomplete = errors.New("the graph is not exact") // calls are missing in it
	errNoGuest    = errors.New("its calls are not sampled")
)

// Exact begins to count the calls of a guest that Look has found, instead of sampling them.
func (e *Engine) Exact(pid int) (*Count, error) {
	g := e.guest(pid)
	if g == nil {
		return nil, fmt.Errorf("count calls of process %d: %w", pid, errNoGuest)
	}
	if err := e.mode(g, bpf.USDTExact); err != nil {
		return nil, err
	}
	links, err := e.attach(g)
	if err != nil {
		return nil, errors.Join(err, e.mode(g, bpf.USDTBursts))
	}
	return &Count{e, g, links}, nil
}

// mode tells the kernel side how to handle a process's calls from now on. Its counters restart from
// 0.
func (e *Engine) mode(g *guest, mode uint32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.guests[g.id.PID] != g {
		return fmt.Errorf("process %v: %w", g.id, proc.ErrGone)
	}
	e.retired.add(e.counters(g))
	g.kernel.Mode = mode
	if err := e.usdt.UsdtGuests.Update(uint32(g.id.PID), g.kernel, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("register the process in the kernel: %w", err)
	}
	return nil
}

// Stop ends the count and returns the graph; the process's calls are sampled again. The process may
// have ended meanwhile, up to two seconds ago, while it is not yet forgotten. An error together
// with a graph means that calls are missing.
func (c *Count) Stop() (*profile.Graph, error) {
	e, g := c.engine, c.guest
	if err := attach.CloseLinks(c.links); err != nil {
		return nil, fmt.Errorf("end the count of calls: %w", err)
	}
	gone := errors.Is(e.opt.Proc.Check(g.id), proc.ErrGone)
	e.mu.Lock()
	t := e.counters(g)
	e.mu.Unlock()
	graph, err := e.takeEdges(uint32(g.id.PID))
	if err != nil {
		return nil, err
	}
	if !gone {
		if err := e.mode(g, bpf.USDTBursts); err != nil {
			return nil, err
		}
	}
	switch total := graph.Total(); {
	case t.lost > 0:
		return graph, fmt.Errorf("%d of %d calls are on edges beyond the kernel side's limit: %w", t.lost, t.hits,
			errIncomplete)
	case t.mismatched > 0:
		return graph, fmt.Errorf("%d of %d calls could not be read: %w", t.mismatched, t.hits, errIncomplete)
	case t.hits > 0 && total != float64(t.hits-t.refused): // no hits: the kernel side has forgotten the guest
		return graph, fmt.Errorf("%.0f of %d calls are in the graph: %w", total, t.hits, errIncomplete)
	}
	return graph, nil
}

// takeEdges moves the edges of a process out of the kernel side.
func (e *Engine) takeEdges(pid uint32) (*profile.Graph, error) {
	var (
		graph profile.Graph
		site  bpf.USDTSite
		edge  bpf.USDTEdge
		taken []bpf.USDTSite
	)
	it := e.usdt.UsdtEdges.Iterate()
	for it.Next(&site, &edge) {
		if site.Pid != pid {
			continue
		}
		taken = append(taken, site)
		if to, ok := e.names.edge(edge.Named()); ok {
			graph.Add(to, float64(edge.Calls))
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read exact graph: %w", err)
	}
	for _, s := range taken {
		if err := e.usdt.UsdtEdges.Delete(s); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("take an edge of the exact graph: %w", err)
		}
	}
	return &graph, nil
}
