package sink_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func collapsed(t *testing.T, p *profile.Profile) string {
	t.Helper()
	var out bytes.Buffer
	if err := sink.Collapsed(&out, p, sink.ContentOf(p)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestCollapsedGolden(t *testing.T) {
	sinktest.Golden(t, "shop.folded.golden", collapsed(t, sinktest.Shop()))
}

// Where calls were recorded, the lines count them: whole calls whose sum is right.
func TestCollapsedCalls(t *testing.T) {
	sinktest.Golden(t, "calls.folded.golden", collapsed(t, sinktest.ShopCalls()))
	sinktest.Golden(t, "exact.folded.golden", collapsed(t, sinktest.ShopExact()))
	onlyJava := sinktest.ShopCalls()
	onlyJava.Processes = onlyJava.Processes[:1]
	if got, want := collapsed(t, sinktest.ShopBoth()), collapsed(t, onlyJava); got != want {
		t.Errorf("with samples:\n%swithout:\n%s", got, want)
	}
	var time, none bytes.Buffer
	if err := sink.Collapsed(&time, sinktest.ShopBoth(), sink.Time); err != nil ||
		time.String() != collapsed(t, sinktest.Shop()) {
		t.Errorf("the time of both is %v\n%s", err, &time)
	}
	if err := sink.Collapsed(&none, sinktest.Shop(), sink.CallCounts); err != nil || none.Len() > 0 {
		t.Errorf("the calls of a window without calls are %v\n%s", err, &none)
	}
	broken := sinktest.ShopCalls()
	broken.Processes[0].Calls[0].Graph.Add(profile.Edge{Caller: symbol.Intern(sinktest.ShopRun),
		Callee: symbol.Intern(sinktest.ShopRun)}, math.NaN())
	if err := sink.Collapsed(io.Discard, broken, sink.ContentOf(broken)); err == nil ||
		!strings.Contains(err.Error(), "process 1234") {
		t.Errorf("Collapsed = %v, want an error about process 1234", err)
	}
}

// Two windows with the same samples in another order, and on other threads, give the same file.
func TestCollapsedIsDeterministic(t *testing.T) {
	a, b := symbol.Frame{Function: "a"}, symbol.Frame{Function: "b", Line: 1}
	otherLine := symbol.Frame{Function: "b", Line: 2}
	window := func(threads ...[]sinktest.Sampled) *profile.Profile {
		proc := &profile.Process{PID: 1, Comm: "x"}
		for i, stacks := range threads {
			proc.Threads = append(proc.Threads, &profile.Thread{TID: i, Tree: sinktest.ContextTree(stacks...)})
		}
		return &profile.Profile{Processes: []*profile.Process{proc}}
	}
	type stack = []symbol.Frame
	one := window([]sinktest.Sampled{{Weight: 1, Frames: stack{b, a}}, {Weight: 2, Frames: stack{a}},
		{Weight: 4, Frames: stack{otherLine, a}}})
	two := window([]sinktest.Sampled{{Weight: 2, Frames: stack{a}}},
		[]sinktest.Sampled{{Weight: 4, Frames: stack{otherLine, a}}, {Weight: 1, Frames: stack{b, a}}})
	const want = "x;a 2\nx;a;b 5\n"
	if got := collapsed(t, one); got != want {
		t.Errorf("Collapsed = %q, want %q", got, want)
	}
	if got := collapsed(t, two); got != want {
		t.Errorf("Collapsed = %q, want %q", got, want)
	}
}

func TestCollapsedReportsWriteErrors(t *testing.T) {
	if err := sink.Collapsed(sinktest.BrokenPipe{}, sinktest.Shop(), sink.ContentOf(sinktest.Shop())); !errors.Is(err,
		io.ErrClosedPipe) {
		t.Errorf("Collapsed = %v, want %v", err, io.ErrClosedPipe)
	}
}

// FuzzCollapsed checks with hostile names that every line is still frames and a count, and that
// none is lost.
func FuzzCollapsed(f *testing.F) {
	for _, name := range sinktest.HostileNames {
		f.Add(name, "java", uint32(1))
	}
	f.Fuzz(func(t *testing.T, name, comm string, weight uint32) {
		p := sinktest.Hostile(name, comm, weight)
		lines := strings.Split(strings.TrimSuffix(collapsed(t, p), "\n"), "\n")
		var sum uint64
		for _, line := range lines {
			if line == "" && weight == 0 {
				continue
			}
			space := strings.LastIndexByte(line, ' ')
			n, err := strconv.ParseUint(line[space+1:], 10, 64)
			if err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			sum += n
			for _, frame := range strings.Split(line[:space], ";") {
				if frame == "" {
					t.Fatalf("line %q has an empty frame", line)
				}
			}
			if frames := strings.Count(line, ";") + 1; frames != 2 && frames != 4 {
				t.Fatalf("line %q has %d frames, want 2 or 4", line, frames)
			}
		}
		if want := 2 * uint64(weight); sum != want {
			t.Fatalf("%d samples of %d in %q", sum, want, lines)
		}
	})
}
