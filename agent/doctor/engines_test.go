package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// An engine that does not work is worth knowing, and no reason not to record.
func TestEngines(t *testing.T) {
	for _, tt := range []struct {
		name  string
		trial EngineTrial
		want  []string // SOCKET stands for that of guests
	}{
		{"nobody tries", nil, nil},
		{"one of two", func(context.Context) ([]profile.Choice, error) {
			return []profile.Choice{{Engine: "hotspot", Chosen: true, Reason: "for stock JVMs"},
				{Engine: "branch", Reason: "no PMU"}}, nil
		}, []string{"engine_hotspot ok for stock JVMs", "engine_branch info not used: no PMU"}},
		// The trial's own socket is nobody's business.
		{"pages", func(context.Context) ([]profile.Choice, error) {
			return []profile.Choice{{Engine: "page", Chosen: true, Socket: true,
				Reason: "for guests, which connect to the trial"}}, nil
		}, []string{"engine_page ok for VMs with vmprof.h, which connect to SOCKET"}},
		{"no pages", func(context.Context) ([]profile.Choice, error) {
			return []profile.Choice{{Engine: "page", Socket: true, Reason: "load burst programs: no memory"}}, nil
		}, []string{"engine_page info not used: load burst programs: no memory"}},
		{"none", func(context.Context) ([]profile.Choice, error) {
			return nil,
				errors.New("no programs can be loaded")
		},
			[]string{"engines limited no programs can be loaded"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := healthy(t)
			env.Engines = tt.trial
			r := Run(t.Context(), env)
			if !r.Ready {
				t.Error("recording is said not to work")
			}
			var got []string
			for _, f := range r.Findings {
				if strings.HasPrefix(f.ID, "engine") {
					got = append(got, f.ID+" "+string(f.Status)+" "+f.Detail)
				}
			}
			if strings.Join(got, "\n") != strings.ReplaceAll(strings.Join(tt.want, "\n"), "SOCKET", env.GuestSocket) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
