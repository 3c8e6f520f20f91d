package wall

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// What is not known of a thread's time is not observed. A thread none of whose short waits was
// drawn has the one in which it was at the end.
func TestExtents(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name   string
		p      *profile.Process
		what   string // cause of the exact wait
		wall   time.Duration
		known  time.Duration // known part of wall
		waited time.Duration // off-CPU time, all and known
		seen   time.Duration
		why    string
	}{
		{"all", process(200, 5*s, 3*s, profile.ThreadTime{TID: 8, Name: "one", Wall: 10 * s, On: 2 * s}), cause.Socket,
			10 * s, 10 * s, 8 * s, 8 * s, ""},
		{"short waits", process(200, 5*s, 0, profile.ThreadTime{TID: 8, Name: "one", Wall: 10 * s, On: 2 * s}),
			cause.Socket, 10 * s, 7 * s, 8 * s, 5 * s, whyThinned},
		{"short waits, one of them at the end", process(200, s, 0,
			profile.ThreadTime{TID: 8, Name: "one", Wall: 10 * s, On: 2 * s, Seen: 1}), cause.Socket, 10 * s, 10 * s,
			8 * s, s, ""},
		{"code without a name", process(200, 8*s, 0, profile.ThreadTime{TID: 8, Name: "one", Wall: 10 * s, On: 2 * s}),
			cause.Unknown, 10 * s, 2 * s, 8 * s, 0, whyUnnamed},
		{"no sample of CPU time", process(0, 8*s, 0, profile.ThreadTime{TID: 8, Name: "one", Wall: 10 * s, On: 2 * s}),
			cause.Socket, 10 * s, 8 * s, 8 * s, 8 * s, whyUnsampled},
		{"ended", process(100, 5*s, 6*s), cause.Socket, 12 * s, 12 * s, 11 * s, 11 * s, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			off := tt.p.Events[0]
			for i := range off.Rows {
				off.Rows[i].What = tt.what
			}
			for _, x := range Extents([]*profile.Events{off, Events(tt.p, period)}) {
				there, observed, why := tt.wall, tt.known, tt.why
				if x.Subject == profile.OffCPU.String() {
					there, observed, why = tt.waited, tt.seen, ""
				}
				if time.Duration(x.There) != there || time.Duration(x.Observed) != observed {
					t.Errorf("%s: %v of %v, want %v of %v", x.What, time.Duration(x.Observed), time.Duration(x.There),
						observed, there)
				}
				if why != "" && (len(x.Missed) != 1 || x.Missed[0].Why != why ||
					time.Duration(x.Missed[0].Amount) != there-observed) {
					t.Errorf("%s: missed %+v, want %q", x.What, x.Missed, why)
				}
				if (x.Share() == 1) != (len(x.Missed) == 0) {
					t.Errorf("%s: %v observed, missed %+v", x.What, x.Share(), x.Missed)
				}
			}
		})
	}
}
