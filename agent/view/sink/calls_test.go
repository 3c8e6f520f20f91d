package sink_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func typesOf(p *pprof.Profile) (types []string) {
	for _, t := range p.SampleType {
		types = append(types, t.Type+"/"+t.Unit)
	}
	return types
}

func TestPprofCallsGolden(t *testing.T) {
	stored := sinktest.Reparse(t, sinktest.MustPprof(t, sinktest.ShopCalls()))
	sinktest.Golden(t, "calls.pprof.golden", sinktest.LocalTime.ReplaceAllString(stored.String(), "Time: (local)"))
}

func TestPprofSampleTypes(t *testing.T) {
	const samples, cpu, count = "samples/count", "cpu/nanoseconds", "calls/count"
	for _, test := range []struct {
		name    string
		convert func() (*pprof.Profile, error)
		types   []string
		first   string
	}{
		{"time", func() (*pprof.Profile, error) { return sink.Pprof(sinktest.Shop(), sink.ContentOf(sinktest.Shop())) },
			[]string{samples, cpu}, "cpu"},
		{"calls", func() (*pprof.Profile, error) {
			return sink.Pprof(sinktest.ShopCalls(), sink.ContentOf(sinktest.ShopCalls()))
		}, []string{count}, "calls"},
		{"both", func() (*pprof.Profile, error) {
			return sink.Pprof(sinktest.ShopBoth(), sink.ContentOf(sinktest.ShopBoth()))
		}, []string{samples, cpu, count}, "calls"},
		{"exact", func() (*pprof.Profile, error) {
			return sink.Pprof(sinktest.ShopExact(), sink.ContentOf(sinktest.ShopExact()))
		}, []string{count}, "calls"},
		{"nothing", func() (*pprof.Profile, error) {
			return sink.Pprof(&profile.Profile{}, sink.ContentOf(&profile.Profile{}))
		}, []string{samples, cpu}, "cpu"},
		{"the time of both", func() (*pprof.Profile, error) { return sink.Pprof(sinktest.ShopBoth(), sink.Time) },
			[]string{samples, cpu}, "cpu"},
		{"the calls of both", func() (*pprof.Profile, error) {
			return sink.Pprof(sinktest.ShopBoth(),
				sink.CallCounts)
		}, []string{count}, "calls"},
		{"the calls of time", func() (*pprof.Profile, error) { return sink.Pprof(sinktest.Shop(), sink.CallCounts) },
			[]string{count}, "calls"},
		{"the time of exact", func() (*pprof.Profile, error) { return sink.Pprof(sinktest.ShopExact(), sink.Time) },
			[]string{samples, cpu}, "cpu"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := test.convert()
			if err != nil {
				t.Fatal(err)
			}
			p = sinktest.Reparse(t, p)
			if got := typesOf(p); !slices.Equal(got, test.types) || p.DefaultSampleType != test.first {
				t.Errorf("types %v, first %s, want %v, %s", got, p.DefaultSampleType, test.types, test.first)
			}
		})
	}
}

// A sample is of time or of calls, and both add up to what was recorded.
func TestPprofOfBoth(t *testing.T) {
	var sums [3]int64
	for _, s := range sinktest.MustPprof(t, sinktest.ShopBoth()).Sample {
		if (s.Value[0] > 0) == (s.Value[2] > 0) || (s.Value[0] > 0) != (s.Value[1] > 0) {
			t.Errorf("values %v", s.Value)
		}
		for i, v := range s.Value {
			sums[i] += v
		}
	}
	if want := [3]int64{141, 141 * 10_000_000, 3502}; sums != want {
		t.Errorf("sums %v, want %v", sums, want)
	}
}

// Edges that weigh less than one call are not lost in silence.
func TestPprofReportsRareEdges(t *testing.T) {
	p := sinktest.MustPprof(t, sinktest.ShopCalls())
	want := stored.Rounding{Comm: "java", PID: 1234, Engine: "hotspot", Basis: profile.Inferred, Edges: 1}
	if got := sinktest.Metadata(t, p).Rounding; !slices.Contains(got, want) {
		t.Errorf("no %+v in %+v", want, got)
	}
	// The sum of the graph is 1000.25, of which the edge had the .25.
	if n := len(slices.DeleteFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[0] == 0 })); n != 13 {
		t.Errorf("%d samples, want 13", n)
	}
}

func TestPprofCallsRefuses(t *testing.T) {
	for _, weight := range []float64{math.NaN(), math.Inf(1), math.MaxInt64} {
		p := sinktest.ShopCalls()
		p.Processes[0].Calls[0].Graph.Add(profile.Edge{Caller: symbol.Intern(sinktest.ShopRun),
			Callee: symbol.Intern(sinktest.ShopRun)}, weight)
		if stored, err := sink.Pprof(p, sink.ContentOf(p)); stored != nil || err == nil ||
			!strings.Contains(err.Error(), "convert process 1234: convert calls of engine hotspot") {
			t.Errorf("with %v: Pprof = %v, %v", weight, stored, err)
		}
	}
}
