package doctor

import (
	"context"
	"errors"
	"testing"
)

func TestFindClock(t *testing.T) {
	for _, tt := range []struct {
		trial TickTrial
		want  string // empty: nothing is reported
	}{
		{nil, ""},
		{func(context.Context) (int, error) { return 250, nil },
			"cpu-clock by default; --clock=tick works up to 250 Hz"},
		{func(context.Context) (int, error) {
			return 0, errors.New("follow a tick\nfollow another: no tick in 50ms")
		},
			"cpu-clock by default; --clock=tick does not work: follow a tick; follow another: no tick in 50ms"},
	} {
		env := healthy(t)
		env.Tick = tt.trial
		got := ""
		for _, f := range findClock(t.Context(), env) {
			if f.Status != Info {
				t.Errorf("%+v: neither clock is required", f)
			}
			got += f.Detail
		}
		if got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
