package compare

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// AuditOptions say how two sides are compared. The zero value compares methods per second of wall
// time.
type AuditOptions struct {
	Options
	Per   Per
	Alpha float64 // probability of a false verdict, 0 for 0.01
	Least float64 // smallest difference that counts, in percent, 0 for 1
	Looks bool    // the comparison is repeated until there is a verdict
}

// Audit writes whether B costs more or less per unit of work than A, how sure that is, and which
// methods, calls, contexts, classes or services make the difference. A side is one or more
// recordings; those of one process are its windows one after the other. Nil options are the zero
// value. The result is that of the whole.
func Audit(w io.Writer, a, b []Named, opts *AuditOptions) (audit.Verdict, error) {
	if opts == nil {
		opts = new(AuditOptions)
	}
	v, err := newVerdicts(a, b, opts)
	if err != nil {
		return audit.Undecided, err
	}
	v.out = bufio.NewWriter(w)
	v.sentence()
	v.notes()
	v.table()
	v.overlap()
	return v.result.Whole.Verdict, layout.Flush(v.out, "comparison")
}

// MethodVerdicts returns the verdicts that Audit gives by method, or with By = ByTotal by method
// with callees: more, less, same or undecided. All other methods are undecided.
func MethodVerdicts(a, b []Named, opts AuditOptions, by By) (map[string]string, error) {
	opts.By = by
	v, err := newVerdicts(a, b, &opts)
	if err != nil {
		return nil, err
	}
	of := make(map[stacks.Method]string, v.ofBy)
	for i, k := range v.keys[:v.ofBy] {
		of[k.callee] = v.result.Keys[i].Verdict.String()
	}
	named := make(map[string]string, len(of))
	for m, key := range v.auditor.stable {
		if verdict := of[key]; verdict != "" {
			named[m.Name] = verdict
		}
	}
	return named, nil
}

// verdicts are a comparison that is being written.
type verdicts struct {
	opts     *AuditOptions
	auditor  *auditor
	sides    [2][]*Recording
	shares   *auditShares
	keys     []auditKey // those of the By, then subtrees that only one side has
	ofBy     int        // how many are of the By
	result   *audit.Result
	same     bool      // both sides are the same recordings
	repeated [2]string // why parts of a side have no intervals: stored.Metadata.Repeated
	language language
	out      *bufio.Writer
}

func newVerdicts(a, b []Named, opts *AuditOptions) (*verdicts, error) {
	sampleType, err := auditType(a, b, opts.SampleType)
	if err != nil {
		return nil, err
	}
	v := &verdicts{opts: opts, auditor: newAuditor(opts.By), same: sameRecordings(a, b)}
	var unitsError [2]float64
	for side, list := range [][]Named{a, b} {
		if v.sides[side], err = readSide(list, sampleType, opts); err != nil {
			return nil, err
		}
		if unitsError[side], err = opts.Per.count(side, v.sides[side]); err != nil {
			return nil, err
		}
	}
	if err := v.check(); err != nil {
		return nil, err
	}
	var order, appeared []auditKey
	v.shares, order = v.auditor.totals(v.sides)
	v.keys, appeared = v.auditor.choose(v.shares, order)
	v.ofBy = len(v.keys)
	v.keys = append(v.keys, appeared...)
	wanted := make(map[auditKey]bool, len(v.keys))
	for _, k := range v.keys {
		wanted[k] = true
	}
	v.result = audit.Compare(v.auditor.side(v.sides[0], wanted, unitsError[0]),
		v.auditor.side(v.sides[1], wanted, unitsError[1]), v.keys,
		&audit.Options{Alpha: opts.Alpha, Least: opts.Least / 100, Looks: opts.Looks})
	v.forgetParts()
	v.language = languageOf(v.sides[0][0], v.result, opts.Per)
	return v, nil
}

// forgetParts leaves differences of sites undecided where a side did not observe them by chance:
// how they vary from window to window says nothing then.
func (v *verdicts) forgetParts() {
	for side, list := range v.sides {
		for _, r := range list {
			if m, err := stored.MetadataOf(r.Profile); err == nil && v.opts.By != ByService {
				v.repeated[side] = cmp.Or(v.repeated[side], m.Repeated())
			}
		}
	}
	if v.repeated == [2]string{} {
		return
	}
	for i := range v.result.Keys {
		d := &v.result.Keys[i]
		d.Verdict, d.Reason = audit.Undecided, audit.Wide
		d.Low, d.High, d.Within, d.P, d.Longer = math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()
	}
}

// sameText is for two sides that are one.
const sameText = "A and B are the same recording: name two different ones"

// check fails where there is nothing to compare.
func (v *verdicts) check() error {
	for side, list := range v.sides {
		empty, classes := true, false
		for _, r := range list {
			for sample := range r.stacks.All() {
				empty = false
				classes = classes || stacks.Label(sample, stored.LabelClass) != ""
				if v.opts.By == ByContext && r.stacks.OfCalls() && !stacks.HasContext(sample) {
					return fmt.Errorf("%s has calls without their contexts: compare by edge, or record with --exact",
						r.Name)
				}
			}
		}
		if empty {
			return fmt.Errorf("%s has no %s: there is nothing to compare", sideName(side, list), list[0].stacks.Unit())
		}
		if v.opts.By == ByClass && !classes {
			return noClasses(sideName(side, list), list[0].stacks)
		}
	}
	return nil
}

// sideName is the file of a side, or its letter if there are several.
func sideName(side int, list []*Recording) string {
	if len(list) == 1 {
		return list[0].Name
	}
	return string(rune('A' + side))
}

func (v *verdicts) least() float64 {
	if v.opts.Least == 0 {
		return 1
	}
	return v.opts.Least
}

// sentence writes the answer.
func (v *verdicts) sentence() {
	l, d := v.language, v.result.Whole
	text := l.claim(d.Verdict, d.Percent, v.least())
	text += fmt.Sprintf(": %s %s per %s", l.estimates(d.A, d.B), l.unit, v.opts.Per)
	confidence := layout.Plain(100 * (1 - v.result.Alpha))
	windows := fmt.Sprintf("%d + %d windows", v.result.Windows[0], v.result.Windows[1])
	if v.result.ByRun {
		windows = fmt.Sprintf("%d + %d processes", v.result.Runs[0], v.result.Runs[1])
	}
	switch {
	case math.IsNaN(d.Low):
		text += fmt.Sprintf(" (%s)", windows)
	default:
		text += fmt.Sprintf(" (%s to %s %%, %s %% confidence; %s)", layout.Signed(d.Low), layout.Signed(d.High),
			confidence, windows)
	}
	layout.Fold(v.out, text, v.opts.Width)
}

// notes writes what a reader must know of the answer.
func (v *verdicts) notes() {
	write := func(format string, args ...any) { layout.Fold(v.out, fmt.Sprintf(format, args...), v.opts.Width) }
	d := v.result.Whole
	if v.same {
		write("%s", sameText)
	}
	if d.Verdict == audit.Undecided && !(v.same && d.Reason != audit.TooFew) {
		switch d.Reason {
		case audit.TooFew:
			write("too few windows for an interval: record at least %d a side, with --window=1 -d 60",
				audit.LeastWindows)
		case audit.Ranks:
			write("the rank test does not confirm a difference: a few windows cause it; check what happened in " +
				"them, or record longer")
		default:
			write("%s", v.longer(d.Longer))
		}
	}
	for side, why := range v.repeated {
		if why != "" {
			write("only the total can differ with certainty, because in %c %s", 'A'+rune(side), why)
		}
	}
	several := false // processes in one recording
	for _, list := range v.sides {
		several = several || processesOf(list) > len(runsOf(list))
	}
	switch {
	case v.result.ByRun:
		write("whole processes are compared: the interval includes run-to-run variation")
	case v.result.Runs != [2]int{1, 1}:
		write("one side has only one process: run-to-run JIT variation is not included; record several " +
			"processes per side")
	case several:
		write("one recording per side: run-to-run variation, such as of the JIT, is not included")
	default:
		write("one process per side: run-to-run JIT variation is not included")
	}
	if v.opts.Per.perSecond() && v.language.cpu {
		write("per second of wall time, more load looks like slower code: --per=N compares per unit of work")
	}
	for side, list := range v.sides {
		if n := processesOf(list); n > len(runsOf(list)) {
			write("%s has samples of %d processes, which are compared together", string(rune('A'+side)), n)
		}
	}
}

// An auditRow is a line of the table.
type auditRow struct {
	key auditKey
	audit.Difference
}

// table writes what differs, the largest change first, and sums up the rest.
func (v *verdicts) table() {
	var rows, rest, undecided []auditRow
	same := 0
	roots := v.appeared()
	certain := len(roots) > 0
	hidden := v.auditor.explained(v.sides, roots)
	for i, k := range v.keys[:v.ofBy] {
		d := v.result.Keys[i]
		sure := decided(d.Verdict)
		if sure && k.by == ByMethod && hidden[k.callee] {
			continue // the subtree says it
		}
		certain = certain || sure
		if sure || v.opts.N == 0 {
			rows = append(rows, auditRow{k, d})
		}
		switch d.Verdict {
		case audit.Same:
			same++
		case audit.Undecided:
			undecided = append(undecided, auditRow{k, d})
		}
	}
	if v.opts.N > 0 {
		rows = v.innermost(rows)
	}
	slices.SortStableFunc(rows, byChange)
	rows, rest = layout.First(v.opts.N, rows)

	thing := map[By]string{ByMethod: "method", ByTotal: "method with callees", ByEdge: "caller -> callee",
		ByContext: "context with callees", ByClass: "class", ByService: "service"}[v.opts.By]
	g := layout.Grid{Head: []layout.Row{{Cells: []string{"A", "B", "B - A", "±", "verdict"},
		Name: layout.Heading(fmt.Sprintf("%s (%s per %s)", thing, v.language.unit, v.opts.Per))}}}
	for _, r := range rows {
		g.Rows = append(g.Rows, layout.Row{Cells: v.cells(r.Difference),
			Name: func(width int) string { return v.name(r.key, width) }})
	}
	v.out.WriteByte('\n')
	if len(rows) > 0 {
		g.Write(v.out, v.opts.Width)
	}
	v.subtrees(roots)
	if len(rest) > 0 {
		fmt.Fprintf(v.out, "%s; -n 0 shows all\n", stored.Plural(len(rest), "smaller difference"))
	}
	v.estimates(undecided, certain)
	if same > 0 && v.opts.N > 0 {
		fmt.Fprintf(v.out, "%s the same within %s %%\n", stored.Plural(same, v.opts.By.noun()), layout.Plain(v.least()))
	}
}

func decided(v audit.Verdict) bool { return v == audit.More || v == audit.Less }

// byChange orders rows by the size of their change, the largest first.
func byChange(a, b auditRow) int { return cmp.Compare(math.Abs(b.Change), math.Abs(a.Change)) }

// innermost leaves out what only calls something else that has nearly all of its change.
func (v *verdicts) innermost(rows []auditRow) []auditRow {
	const nearly = 0.9
	var calls func(a, b auditKey) bool
	tree := &v.auditor.tree
	switch v.opts.By {
	case ByContext:
		calls = func(a, b auditKey) bool { return tree.Node(b.node).Parent == a.node }
	case ByEdge:
		calls = func(a, b auditKey) bool { return b.caller == a.callee && a != b }
	case ByTotal:
		type pair struct{ caller, callee stacks.Method }
		pairs := make(map[pair]bool)
		for _, node := range tree.Nodes() {
			if node.Parent != cct.Root {
				pairs[pair{tree.Node(node.Parent).Key, node.Key}] = true
			}
		}
		calls = func(a, b auditKey) bool { return pairs[pair{a.callee, b.callee}] && a != b }
	default:
		return rows
	}
	passed := func(r auditRow) bool {
		return slices.ContainsFunc(rows, func(inner auditRow) bool {
			return inner.Verdict == r.Verdict && nearly*math.Abs(r.Change) <= math.Abs(inner.Change) &&
				calls(r.key, inner.key) && !calls(inner.key, r.key)
		})
	}
	var kept []auditRow
	for _, r := range rows {
		if !passed(r) {
			kept = append(kept, r)
		}
	}
	if len(kept) == 0 { // methods that call each other in a circle
		return rows
	}
	return kept
}

// cells are the figures of a row.
func (v *verdicts) cells(d audit.Difference) []string {
	l := v.language
	percent, within := "new", ""
	switch {
	case d.B.PerUnit == 0:
		percent = "gone"
	case !math.IsInf(d.Percent, 1):
		percent = layout.Signed(d.Percent) + "%"
		if !math.IsNaN(d.Low) {
			within = layout.Plain((d.High-d.Low)/2) + "%"
		}
	}
	return []string{layout.Cell(d.A.PerUnit / l.scale), layout.Cell(d.B.PerUnit / l.scale), percent, within,
		v.verdict(d.Verdict)}
}

func (v *verdicts) verdict(verdict audit.Verdict) string {
	switch verdict {
	case audit.More:
		return v.language.moreWord
	case audit.Less:
		return v.language.lessWord
	}
	return verdict.String()
}

// name names what a key stands for.
func (v *verdicts) name(k auditKey, width int) string {
	switch k.by {
	case ByEdge:
		return layout.Arrowed(v.auditor.methods.Name(k.caller), v.auditor.methods.Name(k.callee), width)
	case ByContext:
		return layout.Path(&v.auditor.tree, k.node, width, v.auditor.methods.Name)
	case ByClass, ByService:
		return layout.Shorten(k.label, width)
	}
	return layout.Shorten(v.auditor.methods.Name(k.callee), width)
}

// appeared are the subtrees that certainly only one side has.
func (v *verdicts) appeared() map[cct.NodeID]bool {
	roots := make(map[cct.NodeID]bool)
	for i, k := range v.keys[v.ofBy:] {
		if decided(v.result.Keys[v.ofBy+i].Verdict) {
			roots[k.node] = true
		}
	}
	return roots
}

// subtrees writes the subtrees that only one side has, by their roots, as parts of the whole of
// that side.
func (v *verdicts) subtrees(roots map[cct.NodeID]bool) {
	var rows []auditRow
	for i, k := range v.keys[v.ofBy:] {
		if roots[k.node] {
			rows = append(rows, auditRow{k, v.result.Keys[v.ofBy+i]})
		}
	}
	slices.SortStableFunc(rows, byChange)
	rows, rest := layout.First(v.opts.N, rows)
	for _, r := range rows {
		node := v.auditor.tree.Node(r.key.node)
		name := v.auditor.methods.Name(node.Key)
		if caller := v.auditor.caller(r.key.node); caller != cct.Root {
			name += " under " + v.auditor.methods.Name(v.auditor.tree.Node(caller).Key)
		}
		within := 0.0
		if whole := max(v.result.Whole.A.PerUnit, v.result.Whole.B.PerUnit); whole > 0 {
			within = 100 * r.Within / whole
		}
		share := v.shares.get(r.key)
		kind, from, to := "new", 0.0, 100*share[1]
		if r.Verdict == audit.Less {
			kind, from, to = "gone", 100*share[0], 0.0
		}
		layout.Fold(v.out, fmt.Sprintf("%s: %s, %s → %s %% ± %s", kind, name, layout.Plain(from), layout.Plain(to),
			layout.Plain(within)), v.opts.Width)
	}
	if len(rest) > 0 {
		fmt.Fprintf(v.out, "%s that only one side has\n", stored.Plural(len(rest), "smaller subtree"))
	}
}

// overlap writes how much the shares have in common.
func (v *verdicts) overlap() {
	var weights [2]cct.Weights[auditKey]
	for side := range weights {
		weights[side] = cct.Weights[auditKey]{}
		for k, share := range v.shares.all(v.opts.By) {
			if share[side] > 0 {
				weights[side][k] = share[side]
			}
		}
	}
	fmt.Fprintf(v.out, "overlap %.2f of 100: what both profiles have in common, by %s\n",
		cct.Overlap(weights[0], weights[1]), v.opts.By)
}
