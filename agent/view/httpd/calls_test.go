package httpd

import (
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"

	pprof "github.com/google/pprof/profile"
)

// Calls are a profile of their own: neither of the two has the other's values, and where calls are
// not sampled the answer says what to do.
func TestPullCalls(t *testing.T) {
	f := new(fake)
	_, hs := start(t, f)
	resp, body := get(t, hs.URL+"/profiles/calls?seconds=1")
	if resp.StatusCode != 404 || !strings.Contains(body, "serve -e cpu,calls") || resp.Header.Get("X-Go-Pprof") != "1" {
		t.Errorf("without calls: %d %q", resp.StatusCode, body)
	}
	if n := len(f.called()); n != 0 {
		t.Errorf("%d windows were collected for nothing", n)
	}

	f.mu.Lock()
	f.stats.Calls = new(profile.CallStats)
	f.mu.Unlock()
	resp, body = get(t, hs.URL+"/profiles/calls?seconds=1")
	if got := resp.Header.Get("Content-Disposition"); got != `attachment; filename="calls.pb.gz"` {
		t.Errorf("Content-Disposition: %q", got)
	}
	p, err := pprof.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.SampleType) != 1 || p.SampleType[0].Type != "calls" || len(p.Sample) != 1 || p.Sample[0].Value[0] != 12 {
		t.Errorf("calls: %v\n%v", p.SampleType, p.Sample)
	}
	_, body = get(t, hs.URL+"/profiles/cpu?seconds=1")
	if p, err = pprof.Parse(strings.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	for _, typ := range p.SampleType {
		if typ.Type == "calls" {
			t.Errorf("the CPU profile has calls: %v", p.SampleType)
		}
	}
}
