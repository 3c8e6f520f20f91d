package events

import (
	"testing"
	"time"
)

func TestIntervals(t *testing.T) {
	rows := Intervals(`Off-CPU time, in 5.59 s: 195.77s (±7.4%) of all threads together, from 656
  events

share      time    ±95%   waits      mean  method / cause
23.5%    17.00s  ±10.0%    9940    1.72ms  guest.Dozing.middling
 0.2%  151.71ms      ±?    4527   33.51us    runnable
 1.1%   20.00us   ±0.0%       1   20.00us  Main.exact
`)
	if len(rows) != 3 {
		t.Fatalf("%+v", rows)
	}
	if got := rows["guest.Dozing.middling"]; got != (Interval{17 * time.Second, 1700 * time.Millisecond, true}) {
		t.Errorf("%+v", got)
	}
	if got := rows["runnable"]; got.Known || got.Within != 0 || got.Time != 151710*time.Microsecond {
		t.Errorf("%+v", got)
	}
	if got := rows["Main.exact"]; !got.Holds(21*time.Microsecond, time.Microsecond) ||
		got.Holds(22*time.Microsecond, time.Microsecond) {
		t.Errorf("%+v", got)
	}
}
