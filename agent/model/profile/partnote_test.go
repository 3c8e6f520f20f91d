package profile

import (
	"slices"
	"strings"
	"testing"
)

func TestPartNote(t *testing.T) {
	why := "probe ObjectMonitor::enter is hit 18 times a second; (lock) were observed: raise the budget"
	for sentence, n := range map[string]PartNote{
		"waits for monitors (lock) were observed 43 % of the time: " +
			why: {"waits for monitors", Locks, 0.43, 0.43, 1, why},
		"waits for monitors (lock) were observed 43 to 76 % of the time, in 12 windows: " +
			why: {"waits for monitors", Locks, 0.43, 0.76, 12, why},
		"page faults (page-faults) were observed 0.31 to 100 % of the time, in 2 windows: ": {"page faults", Faults,
			0.0031, 1, 2, ""},
	} {
		if got := n.String(); got != sentence {
			t.Errorf("%+v: %s, want %s", n, got, sentence)
		}
		if got, ok := ParsePartNote(sentence); !ok || got.String() != sentence || !got.SameSubject(&n) {
			t.Errorf("%s: %+v, %v", sentence, got, ok)
		}
	}
	for _, other := range []string{
		"", "java (pid 7): observed 20% of the time, 4s of 20s, in 4 slices: 1 ± 1 bytes",
		"x (locks) were observed 43 % of the time: y",
		"x (lock) were observed 143 % of the time: y", "x (lock) were observed 76 to 43 % of the time: y",
		"x (lock) were observed NaN % of the time: y",
		"x (lock) were observed -1 % of the time: y", strings.Repeat("x", 200) +
			" (lock) were observed 43 % of the time: y",
	} {
		if n, ok := ParsePartNote(other); ok {
			t.Errorf("%q: %+v", other, n)
		}
	}
}

// Notes of windows that differ in their figures are one.
func TestAddNotes(t *testing.T) {
	var got []string
	for _, window := range [][]string{
		{"a", "waits for monitors (lock) were observed 60 % of the time: 18 hits",
			"waits of java.util.concurrent (lock) were observed 50 % of the time: 1,300 hits"},
		{"a", "waits for monitors (lock) were observed 43 % of the time: 19 hits"},
		{"b", "waits for monitors (lock) were observed 50 to 76 % of the time, in 3 windows: 17 hits"},
	} {
		got = AddNotes(got, 3, window...)
	}
	want := []string{"a", "waits for monitors (lock) were observed 43 to 76 % of the time, in 5 windows: 19 hits",
		"waits of java.util.concurrent (lock) were observed 50 % of the time: 1,300 hits"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzParsePartNote(f *testing.F) {
	f.Add("waits for monitors (lock) were observed 43 to 76 % of the time, in 12 windows: why")
	f.Fuzz(func(t *testing.T, sentence string) {
		n, ok := ParsePartNote(sentence)
		if !ok {
			return
		}
		if again, ok := ParsePartNote(n.String()); !ok || again.String() != n.String() {
			t.Errorf("%q: %q, then %q", sentence, n.String(), again.String())
		}
	})
}
