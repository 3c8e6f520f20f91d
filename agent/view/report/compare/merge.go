package compare

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// Merge adds up recordings of one kind, such as windows that were stored one by one, with their
// losses. What is known of each only, such as code versions and windows, is left out. A single
// recording is returned as it is.
func Merge(list []Named) (*pprof.Profile, error) {
	if len(list) == 1 {
		return list[0].Profile, nil
	}
	first := list[0]
	sum := &stored.Metadata{}
	var profiles []*pprof.Profile
	var others []string // comments
	for _, n := range list {
		if stacks.TypeList(n.Profile) != stacks.TypeList(first.Profile) {
			return nil, fmt.Errorf("%s has %s, %s has %s: name one of the files", first.Name,
				strings.ReplaceAll(stacks.TypeList(first.Profile), " or ", ", "),
				n.Name, strings.ReplaceAll(stacks.TypeList(n.Profile), " or ", ", "))
		}
		m, err := stored.MetadataOf(n.Profile)
		if err != nil {
			m, sum = nil, nil
		}
		if sum != nil {
			addMetadata(sum, m)
		}
		others = profile.AddNotes(others, stored.MaxComments, stored.OtherComments(n.Profile, m)...)
		profiles = append(profiles, n.Profile)
	}
	merged, err := pprof.Merge(profiles)
	if err != nil {
		return nil, fmt.Errorf("merge recordings: %w", err)
	}
	about := fmt.Sprintf("%s of %s, added up", stored.Plural(len(list), "recording"),
		filepath.Dir(stored.Printable(first.Name)))
	merged.Comments = nil
	if sum != nil {
		if err := sum.Store(merged); err != nil {
			return nil, fmt.Errorf("merge recordings: %w", err)
		}
	}
	merged.Comments = append(append(merged.Comments, about), others...)
	return merged, nil
}

// addMetadata adds what can be added up.
func addMetadata(sum, m *stored.Metadata) {
	sum.Samples.Add(m.Samples)
	if m.Events != nil {
		if sum.Events == nil {
			sum.Events = &stored.EventAccount{Kind: m.Events.Kind}
		}
		sum.Events.Observed += m.Events.Observed
		sum.Events.Mixed = sum.Events.Mixed || m.Events.Mixed
		sum.Events.Counts.Add(m.Events.Counts)
	}
	sum.Totals = append(sum.Totals, m.Totals...) // Their errors are independent.
	sum.Extents = append(sum.Extents, m.Extents...)
	sum.Remarks = profile.AddNotes(sum.Remarks, stored.MaxComments, m.Remarks...)
	for _, note := range m.Notes {
		text := note.String()
		if len(sum.Notes) < stored.MaxComments && !slices.ContainsFunc(sum.Notes,
			func(n stored.Note) bool { return n.String() == text }) {
			sum.Notes = append(sum.Notes, note)
		}
	}
	for _, s := range m.Sampling {
		if len(sum.Sampling) < stored.MaxComments && !slices.Contains(sum.Sampling, s) {
			sum.Sampling = append(sum.Sampling, s)
		}
	}
	sum.Lanes = append(sum.Lanes, m.Lanes...)
	sum.Followed = cmp.Or(sum.Followed, m.Followed)
	sum.LeftOut += m.LeftOut
}
