package events

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The logs were recorded of Pausing: testdata/safepoints-RELEASE.log.
func TestReadSafepoints(t *testing.T) {
	for file, want := range map[string]struct {
		first      Safepoint
		operations []string
	}{
		"safepoints-17.log": {
			Safepoint{Operation: "G1CollectForAllocation", Reaching: 2930, Total: 2541074},
			[]string{
				"G1CollectForAllocation", "G1CollectForAllocation", "G1CollectForAllocation", "G1CollectFull",
				"ThreadDump",
			},
		},
		"safepoints-25.log": {
			Safepoint{Operation: "G1CollectForAllocation", Reaching: 2510, Total: 3512945},
			[]string{"G1CollectForAllocation", "G1CollectFull", "ThreadDump"},
		},
	} {
		log, err := os.Open("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		got, err := ReadSafepoints(log)
		if err != nil || len(got) == 0 || got[0] != want.first {
			t.Fatalf("%s: %v, %v, want %v first", file, got, err, want.first)
		}
		var operations []string
		for _, s := range got {
			operations = append(operations, s.Operation)
		}
		if !slices.Equal(operations, want.operations) {
			t.Errorf("%s: operations %q", file, operations)
		}
	}
}

func TestReadSafepointsOfLines(t *testing.T) {
	const good = `[1s][info][safepoint] Safepoint "A", Time since last: 1 ns, Reaching safepoint: 2 ns, At safepoint: 3 ns, Total: 5 ns` + "\n"
	if got, err := ReadSafepoints(strings.NewReader(good + good[:40])); err != nil || len(got) != 1 {
		t.Errorf("with a line that is being written: %v, %v", got, err)
	}
	if got, err := ReadSafepoints(strings.NewReader("[1s][info][safepoint,stats] A [ 1 ]\n" + good)); err != nil ||
		len(got) != 1 {
		t.Errorf("with a line of another kind: %v, %v", got, err)
	}
	for _, bad := range []string{
		strings.Replace(good, "Total: 5 ns", "Total: five", 1),
		strings.Replace(good, "Total", "Sum", 1),
		strings.Replace(good, "Reaching safepoint: 2 ns, ", "", 1),
		strings.Replace(good, "5 ns", "-5 ns", 1),
		strings.Replace(good, `"A", `, `"A" `, 1),
		strings.Replace(good, "1s", "-1ms", 1),
		strings.Replace(good, "1s", "99999999999999999999ms", 1),
	} {
		if got, err := ReadSafepoints(strings.NewReader(bad)); err == nil {
			t.Errorf("read %q as %v", bad, got)
		}
	}
	stamped := strings.Replace(good, "1s", "1732262400123ms", 1)
	got, err := ReadSafepoints(strings.NewReader(good + stamped))
	at := time.UnixMilli(1732262400123)
	if err != nil || len(got) != 2 || !got[0].Ended.IsZero() || !got[1].Ended.Equal(at) {
		t.Errorf("stamps: %v, %v", got, err)
	}
	for _, test := range []struct {
		from, to time.Time
		want     int
	}{{at, at.Add(1), 1}, {at.Add(-1), at, 0}, {at.Add(1), at.Add(2), 0}, {time.Time{}, at.Add(1), 2}} {
		if n := len(Between(got, test.from, test.to)); n != test.want {
			t.Errorf("%d between %v and %v, want %d", n, test.from, test.to, test.want)
		}
	}
	if got := Stopped([]Safepoint{{Total: time.Second}, {Total: time.Minute}}); got != 61*time.Second {
		t.Errorf("stopped for %v", got)
	}
}

func FuzzReadSafepoints(f *testing.F) {
	f.Add(`x] Safepoint "A", Reaching safepoint: 2 ns, Total: 5 ns` + "\n")
	f.Fuzz(func(t *testing.T, log string) {
		got, err := ReadSafepoints(strings.NewReader(log))
		if err != nil && got != nil {
			t.Errorf("%v and %v", got, err)
		}
		for _, s := range got {
			if s.Operation == "" || s.Reaching < 0 || s.Total < 0 {
				t.Errorf("got %+v", s)
			}
		}
	})
}
