package report

import (
	"fmt"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// Merge adds up recordings of one kind, such as windows that were stored one by one. What each says of its losses is left out, and a comment
// says so. A single recording is returned as it is.
func Merge(list []Named) (*pprof.Profile, error) {
	if len(list) == 1 {
		return list[0].Profile, nil
	}
	var profiles []*pprof.Profile
	comments := []string{fmt.Sprintf("%s, merged; report shows the losses and notes of each file", stored.Plural(len(list), "recording"))}
	for _, n := range list {
		if first := list[0]; typeList(n.Profile) != typeList(first.Profile) {
			return nil, fmt.Errorf("%s has %s, %s has %s: name one of the files", first.Name, strings.ReplaceAll(typeList(first.Profile), " or ", ", "),
				n.Name, strings.ReplaceAll(typeList(n.Profile), " or ", ", "))
		}
		m, err := stored.MetadataOf(n.Profile)
		if err != nil {
			m = nil
		}
		for _, c := range otherComments(n.Profile, m) {
			if !slices.Contains(comments, c) && len(comments) < maxComments {
				comments = append(comments, c)
			}
		}
		profiles = append(profiles, n.Profile)
	}
	merged, err := pprof.Merge(profiles)
	if err != nil {
		return nil, fmt.Errorf("merge recordings: %w", err)
	}
	merged.Comments = comments
	return merged, nil
}
