package flame_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// slowFlame is a window with calls of these lengths, in ms, as the pages keep it.
func slowFlame(t *testing.T, lengths ...int) *flame.Graph {
	t.Helper()
	p := sinktest.CountedWall(300)
	for i, ms := range lengths {
		length := time.Duration(ms) * time.Millisecond
		p.Processes[1].Slow = append(p.Processes[1].Slow, profile.SlowCall{TID: 8, Thread: "http-1",
			Start: p.Start.Add(time.Duration(i) * time.Second), Length: length, Parts: []profile.SlowPart{
				{Stack: []symbol.Symbol{symbol.Intern(sinktest.Get), symbol.Intern(sinktest.Checkout),
					symbol.Intern(sinktest.Run)}, State: "running", Cause: "running", Time: float64(length) / 4},
				{Stack: []symbol.Symbol{symbol.Intern(sinktest.Futex), symbol.Intern(sinktest.Total),
					symbol.Intern(sinktest.Checkout)}, State: "blocked", Cause: "socket",
					Time: float64(length) * 3 / 4},
			}})
	}
	flames, err := flame.Read(sinktest.Reparse(t, sinktest.MustPprofOf(t, p,
		sink.OfEvents(profile.Wall)|sink.CallCounts|sink.Slow)))
	if err != nil {
		t.Fatal(err)
	}
	return flames[0].Cut(8000)
}

func slowSum(windows ...*flame.Graph) *flame.Graph {
	s := flame.NewSeries(len(windows))
	for _, w := range windows {
		s.Add(w)
	}
	return s.Sum(func(time.Time) bool { return true }, "", 0)
}

type slowDocument struct {
	Slow *struct {
		Method string
		Calls  float64
		List   []struct {
			Process, Thread, Group, End string
			TID                         int
			Start, Took                 float64
			Causes                      []struct {
				Cause string
				Time  float64
			}
			Stacks []struct {
				Cause  string
				Frames []string
			}
		}
	}
}

func slowOf(t *testing.T, f *flame.Graph) (d slowDocument) {
	t.Helper()
	text, err := json.Marshal(f)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The pages have the slowest calls of the windows that they show, of all services or of one.
func TestFlameSlow(t *testing.T) {
	sum := slowSum(slowFlame(t, 900, 700, 40), slowFlame(t, 800, 20))
	d := slowOf(t, sum).Slow
	if d == nil || d.Method != sinktest.Checkout.Function || d.Calls != 600 {
		t.Fatalf("%+v", d)
	}
	var lengths []float64
	for _, c := range d.List {
		lengths = append(lengths, c.Took/1e6)
	}
	if !slices.Equal(lengths, []float64{900, 800, 700, 40, 20}) {
		t.Errorf("lengths %v", lengths)
	}
	c := d.List[0]
	if c.TID != 8 || c.Thread != "http-1" || c.Group != "http-*" || c.End != "returned" || c.Start == 0 ||
		c.Process == "" {
		t.Errorf("%+v", c)
	}
	if len(c.Causes) != 2 || c.Causes[0].Cause != "socket" || c.Causes[0].Time != 675e6 ||
		c.Causes[1].Cause != "running" {
		t.Errorf("causes %+v", c.Causes)
	}
	if len(c.Stacks) != 2 || c.Stacks[0].Cause != "socket" || !slices.Equal(c.Stacks[0].Frames[:2],
		[]string{sinktest.Checkout.Function, sinktest.Total.Function}) {
		t.Errorf("stacks %+v", c.Stacks)
	}
	services := sum.Services()
	if d := slowOf(t, sum.ForService("nobody", 0)).Slow; d == nil || len(d.List) != 0 || d.Calls != 0 {
		t.Errorf("of another service: %+v", d)
	}
	with := 0
	for _, s := range services {
		if d := slowOf(t, sum.ForService(s.Service, s.PID)).Slow; len(d.List) > 0 {
			with++
			if len(d.List) != 5 || d.Calls != 600 {
				t.Errorf("of %s: %+v", s.Service, d)
			}
		}
	}
	if with != 1 {
		t.Errorf("%d of %d processes have slow calls", with, len(services))
	}
	sum = slowSum(slowFlame(t, 900, 899, 898, 897, 896, 895, 894, 893, 892, 891, 890, 889),
		slowFlame(t, 999, 99, 98, 97, 96, 95, 94, 93, 92, 91))
	if d := slowOf(t, sum).Slow; len(d.List) != profile.MaxSlowCalls || d.List[0].Took != 999e6 {
		t.Errorf("%d calls, the slowest of %v ns", len(d.List), d.List[0].Took)
	}
	if d := slowOf(t, slowFlame(t).ForService("", 0)); d.Slow == nil {
		t.Error("a window in which no call ended has no list")
	}
}
