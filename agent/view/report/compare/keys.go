package compare

import (
	"cmp"
	"iter"
	"maps"
	"regexp"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// An auditKey is something whose cost is compared: what field is set depends on the By.
type auditKey struct {
	by     By
	callee stacks.Method // ByMethod, ByTotal, ByEdge
	caller stacks.Method // ByEdge
	node   cct.NodeID    // ByContext: the subtree below it
	label  string        // ByClass, ByService
}

const (
	// Keys below leastShare of both sides together are not compared, nor more than maxAuditKeys:
	// every key more makes all others harder to decide.
	leastShare   = 0.0005
	maxAuditKeys = 1000
	// leastNew is the share of one side that a subtree must have that the other side lacks.
	leastNew = 0.003
)

// changing are parts of names that differ from one run of a program to the next: numbers and
// addresses of hidden classes, such as $14/0x0000000840066040 behind $$Lambda. The dot before the
// method is no part of them.
var changing = regexp.MustCompile(`(\$\$Lambda|LambdaForm\$[A-Za-z]+)(?:[$./+](?:0x[0-9a-fA-F]+|[0-9]+))+|` +
	`(GeneratedMethodAccessor|GeneratedConstructorAccessor|\$Proxy)[0-9]+|0x[0-9a-f]{8,}`)

// stable is a method with a name that other runs of the program give it, too.
func stable(m stacks.Method) stacks.Method {
	if name := changing.ReplaceAllString(m.Name, "$1$2"); name != m.Name {
		m.Name, m.SystemName = name, name
	}
	return m
}

// An auditor reads the recordings of two sides into costs by key.
type auditor struct {
	by      By
	tree    cct.Tree[stacks.Method] // tree of all recordings
	methods stacks.MethodNames
	at      map[*pprof.Sample]cct.NodeID
	stable  map[stacks.Method]stacks.Method

	frames []stacks.Frame
	stack  []stacks.Method
	seen   map[auditKey]bool
}

func newAuditor(by By) *auditor {
	return &auditor{
		by: by, methods: stacks.NewMethodNames(), at: make(map[*pprof.Sample]cct.NodeID),
		stable: make(map[stacks.Method]stacks.Method), seen: make(map[auditKey]bool),
	}
}

// place returns the node of a sample's context.
func (a *auditor) place(r *Recording, sample *pprof.Sample) cct.NodeID {
	if id, known := a.at[sample]; known {
		return id
	}
	a.frames, a.stack = r.stacks.AppendFrames(a.frames[:0], sample), a.stack[:0]
	for _, f := range a.frames {
		m, known := a.stable[f.Method]
		if !known {
			m = stable(f.Method)
			a.stable[f.Method] = m
		}
		a.methods.Add(m)
		a.stack = append(a.stack, m)
	}
	id := a.tree.Add(a.stack, 0) // the deepest caller that is there if the tree is full
	a.at[sample] = id
	return id
}

// keys calls yield with each key that a sample costs something, once.
func (a *auditor) keys(r *Recording, sample *pprof.Sample, yield func(auditKey)) {
	id := a.place(r, sample)
	clear(a.seen)
	once := func(k auditKey) { // recursion counts once
		if !a.seen[k] {
			a.seen[k] = true
			yield(k)
		}
	}
	switch a.by {
	case ByClass:
		yield(auditKey{by: ByClass, label: cmp.Or(stacks.Label(sample, stored.LabelClass), stored.Unnamed)})
	case ByService:
		yield(auditKey{by: ByService, label: cmp.Or(stacks.Label(sample, stored.LabelService),
			stacks.Label(sample, stored.LabelComm), stored.Unnamed)})
	case ByMethod:
		if id != cct.Root {
			yield(auditKey{by: ByMethod, callee: a.tree.Node(id).Key})
		}
	}
	for n := id; n != cct.Root; n = a.tree.Node(n).Parent {
		node := a.tree.Node(n)
		yield(auditKey{by: ByContext, node: n})
		switch a.by {
		case ByTotal:
			once(auditKey{by: ByTotal, callee: node.Key})
		case ByEdge:
			caller := stacks.Nobody
			if node.Parent != cct.Root {
				caller = a.tree.Node(node.Parent).Key
			}
			once(auditKey{by: ByEdge, caller: caller, callee: node.Key})
		}
	}
}

// auditShares are what each key costs on each side, as a part of all.
type auditShares struct {
	keys     map[auditKey][2]float64 // but for ByContext
	subtrees [][2]float64            // ByContext, by node: profiles may have hundreds of thousands
}

func (s *auditShares) get(k auditKey) [2]float64 {
	if k.by == ByContext {
		return s.subtrees[k.node]
	}
	return s.keys[k]
}

// all are the keys of a By with their shares.
func (s *auditShares) all(by By) iter.Seq2[auditKey, [2]float64] {
	if by != ByContext {
		return maps.All(s.keys)
	}
	return func(yield func(auditKey, [2]float64) bool) {
		for id := int(cct.Root) + 1; id < len(s.subtrees); id++ {
			if k := (auditKey{by: ByContext, node: cct.NodeID(id)}); !yield(k, s.get(k)) {
				return
			}
		}
	}
}

// totals are the shares of all keys; order is that in which keys are first seen, but for subtrees.
func (a *auditor) totals(sides [2][]*Recording) (shares *auditShares, order []auditKey) {
	shares = &auditShares{keys: map[auditKey][2]float64{}}
	var all [2]float64
	for side, list := range sides {
		for _, r := range list {
			for sample, value := range r.stacks.All() {
				all[side] += float64(value)
				id := a.place(r, sample)
				for len(shares.subtrees) <= a.tree.Len() { // and the root
					shares.subtrees = append(shares.subtrees, [2]float64{})
				}
				shares.subtrees[id][side] += float64(value)
				a.keys(r, sample, func(k auditKey) {
					if k.by == ByContext {
						return
					}
					sum, known := shares.keys[k]
					if !known {
						order = append(order, k)
					}
					sum[side] += float64(value)
					shares.keys[k] = sum
				})
			}
		}
	}
	part := func(sum [2]float64) [2]float64 {
		for side := range sum {
			if all[side] > 0 {
				sum[side] /= all[side]
			}
		}
		return sum
	}
	for id := len(shares.subtrees) - 1; id > int(cct.Root); id-- { // callers have the smaller numbers
		parent := a.tree.Node(cct.NodeID(id)).Parent
		for side, value := range shares.subtrees[id] {
			shares.subtrees[parent][side] += value
		}
		shares.subtrees[id] = part(shares.subtrees[id])
	}
	for k, sum := range shares.keys {
		shares.keys[k] = part(sum)
	}
	return shares, order
}

// choose returns the keys to compare: those of the By that have some share of the costs of both
// sides together, and subtrees that only one side has.
func (a *auditor) choose(shares *auditShares, order []auditKey) (keys, appeared []auditKey) {
	keys = order
	for k := range shares.all(ByContext) {
		switch {
		case a.by == ByContext:
			keys = append(keys, k)
		case a.oneSided(shares, k):
			appeared = append(appeared, k)
		}
	}
	mean := func(k auditKey) float64 { return (shares.get(k)[0] + shares.get(k)[1]) / 2 }
	return audit.Largest(keys, mean, leastShare, maxAuditKeys), audit.Largest(appeared, mean, leastNew/2, maxAuditKeys)
}

// oneSided says that only one side has a subtree, of a caller that both have. Its root is a method
// of the program, a leaf [inlined in M], or a stub that does a method's work, such as [stub:
// libmCos]. What else stands in brackets and native code are no roots. Stubs and native code
// between the root and its caller, such as those of interface calls, are passed over.
func (a *auditor) oneSided(shares *auditShares, k auditKey) bool {
	share := shares.get(k)
	node := a.tree.Node(k.node)
	if (share[0] == 0) == (share[1] == 0) || !isRoot(node.Key) {
		return false
	}
	caller := a.caller(k.node)
	if caller == cct.Root {
		return node.Parent == cct.Root // behind stubs alone it is not known whose callee it is
	}
	parent := shares.get(auditKey{by: ByContext, node: caller})
	return parent[0] > 0 && parent[1] > 0
}

// stubPrefix begins the name of a stub that HotSpot has generated: [stub: libmCos].
const stubPrefix = "[stub: "

// isRoot says that a subtree may be named by this method.
func isRoot(m stacks.Method) bool {
	inlinedIn, _, _ := stored.SplitInlined(m.Name)
	switch {
	case inlinedIn != "", strings.HasPrefix(m.Name, stubPrefix):
		return true
	}
	return m.Name != "" && m.Name[0] != '[' && !m.Native
}

// caller is the nearest frame above that is neither native nor a stub.
func (a *auditor) caller(id cct.NodeID) cct.NodeID {
	for id = a.tree.Node(id).Parent; id != cct.Root && a.tree.Node(id).Key.Native; {
		id = a.tree.Node(id).Parent
	}
	return id
}

// side makes one side of the comparison, with the costs of the wanted keys.
func (a *auditor) side(list []*Recording, wanted map[auditKey]bool, unitsError float64) audit.Side[auditKey] {
	s := audit.Side[auditKey]{UnitsError: unitsError}
	for _, run := range runsOf(list) {
		var windows audit.Run[auditKey]
		for _, together := range run.coarse() {
			window := audit.Window[auditKey]{Keys: make(map[auditKey]audit.Cost)}
			for _, w := range together {
				window.Units += w.Units
				a.fill(&window, w, wanted)
			}
			windows.Windows = append(windows.Windows, window)
		}
		s.Runs = append(s.Runs, windows)
	}
	return s
}

// fill adds the costs of a window of a recording.
func (a *auditor) fill(window *audit.Window[auditKey], w placed, wanted map[auditKey]bool) {
	for _, sample := range w.Window.Samples {
		cost := w.Cost(sample)
		if cost.Amount == 0 {
			continue
		}
		window.Total = window.Total.Plus(cost)
		a.keys(w.Recording, sample, func(k auditKey) {
			if wanted[k] {
				window.Keys[k] = window.Keys[k].Plus(cost)
			}
		})
	}
}

// within says that a context is in one of some subtrees.
func (a *auditor) within(id cct.NodeID, roots map[cct.NodeID]bool) bool {
	for ; id != cct.Root; id = a.tree.Node(id).Parent {
		if roots[id] {
			return true
		}
	}
	return false
}

// explained are the methods of which one side has nothing, and the other nothing outside of some
// subtrees that it alone has.
func (a *auditor) explained(sides [2][]*Recording, roots map[cct.NodeID]bool) map[stacks.Method]bool {
	inside := make(map[stacks.Method]bool)
	if len(roots) == 0 {
		return inside
	}
	for _, list := range sides {
		for _, r := range list {
			for sample := range r.stacks.All() {
				id := a.place(r, sample)
				if id == cct.Root {
					continue
				}
				m := a.tree.Node(id).Key
				before, known := inside[m]
				inside[m] = a.within(id, roots) && (before || !known)
			}
		}
	}
	return inside
}
