package compare

import (
	"bufio"
	"fmt"
	"io"
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

const (
	// maxAppeared is how many subtrees Appeared writes.
	maxAppeared = 5
	// appearedAlpha is the probability of a subtree that is written although both profiles have it
	// equally often.
	appearedAlpha = 1e-4
)

// Appeared writes the subtrees that only one of two profiles of CPU time has, by their roots, with
// their parts of all samples: what is new, and what is gone. Those with so few samples that chance
// explains it are left out. It is for profiles that have too few windows for Audit, and writes
// nothing if there is no such subtree, or something else than CPU time is compared.
func Appeared(w io.Writer, a, b Named, opts *Options) error {
	if sampleType, err := commonType(a, b, opts.SampleType); err != nil || sampleType != stored.TypeSamples {
		return err
	}
	var (
		sides  [2][]*Recording
		all    [2]float64
		auditO = AuditOptions{Options: *opts}
	)
	for side, n := range []Named{a, b} {
		var err error
		if sides[side], err = readSide([]Named{n}, stored.TypeSamples, &auditO); err != nil {
			return err
		}
		for _, value := range sides[side][0].stacks.All() {
			all[side] += float64(value)
		}
	}
	if all[0] == 0 || all[1] == 0 {
		return nil
	}
	auditor := newAuditor(ByMethod)
	shares, order := auditor.totals(sides)
	_, appeared := auditor.choose(shares, order)
	out, written := bufio.NewWriter(w), 0
	for _, k := range appeared {
		share, side := shares.get(k), 1
		kind := "new"
		if share[1] == 0 {
			kind, side = "gone", 0
		}
		// If both sides had it equally often, each of its samples would be of this side with the
		// probability of any sample.
		if chance := share[side] * all[side] * math.Log(all[side]/(all[0]+
			all[1])); chance > math.Log(appearedAlpha/maxAuditKeys) {
			continue
		}
		node := auditor.tree.Node(k.node)
		name := auditor.methods.Name(node.Key)
		if node.Parent != cct.Root {
			name += " under " + auditor.methods.Name(auditor.tree.Node(node.Parent).Key)
		}
		layout.Fold(out, fmt.Sprintf("%s: %s, %s → %s %% of the samples", kind, name, layout.Plain(100*share[0]),
			layout.Plain(100*share[1])), opts.Width)
		if written++; written == maxAppeared {
			break
		}
	}
	if written > 0 {
		out.WriteByte('\n')
	}
	return layout.Flush(out, "comparison")
}
