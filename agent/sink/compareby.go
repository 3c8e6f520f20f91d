package sink

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// byMethod compares the innermost methods. It gets them as edge does, so that by method and by edge agree on what is
// innermost.
func (c *comparison) byMethod() {
	p, methods := newPairing[Method](), newMethodNames()
	for side, s := range c.sides {
		for sample, value := range s.all() {
			m := s.edge(sample).Callee
			methods.add(m)
			p.add(side, m, float64(value))
		}
	}
	show(c, p, "method", func(m Method, width int) string { return shorten(methods.name(m), width) })
}

// byEdge compares the two innermost methods, with the call site as far as both profiles know it.
func (c *comparison) byEdge() {
	a, b := knownFields(c.sides[0]), knownFields(c.sides[1])
	fields, note := a.and(b), ""
	if c.opts.IgnoreSites {
		fields = siteFields{}
	} else {
		note = fields.note(a, b)
	}
	p, methods, sites := newPairing[CallEdge](), newMethodNames(), newSiteNames()
	for side, s := range c.sides {
		for sample, value := range s.all() {
			e := s.edge(sample)
			e.Site = fields.of(e.Site)
			methods.add(e.Caller)
			methods.add(e.Callee)
			sites.add(e.Caller.Name, e.Site)
			p.add(side, e, float64(value))
		}
	}
	show(c, p, "caller:line -> callee", func(e CallEdge, width int) string {
		return arrowed(methods.name(e.Caller)+sites.suffix(e.Caller.Name, e.Site), methods.name(e.Callee), width)
	})
	if note != "" {
		writeFolded(c.out, note, c.opts.Width)
	}
}

// byClass compares the classes of the objects that events are about. Those that are not known are one class.
func (c *comparison) byClass() {
	p := newPairing[string]()
	for side, s := range c.sides {
		for sample, value := range s.all() {
			class := label(sample, labelClass)
			if class == "" {
				class = unnamed
			}
			p.add(side, class, float64(value))
		}
	}
	show(c, p, "class", shorten)
}

// byContext compares whole stacks. Both profiles go into one tree, in which a node stands for a stack: as text, a
// thousand deep stacks would take a thousand times the memory.
func (c *comparison) byContext() {
	p, methods := newPairing[cct.NodeID](), newMethodNames()
	var (
		tree   cct.Tree[Method] // of both
		frames []storedFrame
		stack  []Method
	)
	for side, s := range c.sides {
		for sample, value := range s.all() {
			frames, stack = s.appendFrames(frames[:0], sample), stack[:0]
			for _, f := range frames {
				methods.add(f.Method)
				stack = append(stack, f.Method)
			}
			// If the tree is full, this is the deepest caller that is in it, for both profiles alike.
			p.add(side, tree.Add(stack, value), float64(value))
		}
	}
	show(c, p, "context", func(id cct.NodeID, width int) string { return contextPath(&tree, id, width, methods.name) })
	if n := tree.Overflow(); n > 0 {
		fmt.Fprintf(c.out, "too many contexts: %s %s are counted for a caller instead\n", c.sides[0].amount(float64(n)), c.sides[0].unit())
	}
}
