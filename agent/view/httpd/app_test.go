package httpd

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/api"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// maxKept is how many windows the page can show.
const maxKept = 30

// askJSON asks for JSON and decodes it.
func askJSON(t *testing.T, address string, to any) {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		t.Fatalf("%s: %d, %v, %s", address, resp.StatusCode, err, body)
	}
	if err := json.Unmarshal(body, to); err != nil {
		t.Fatalf("%s: %v", address, err)
	}
}

// A flameAnswer is what these tests need of an answer.
type flameAnswer struct {
	Kind    string
	Seconds float64
	Names   []string
	Nodes   struct{ Self []float64 }
	Calls   *struct{ PerSecond []float64 }
	Base    *struct {
		Start   int64
		Seconds float64
		Self    []float64
	}
	Timeline *struct{ Start []int64 }
	Notes    []string
	Verdicts *struct{ Total, Own map[string]string }
}

func (a *flameAnswer) total() (sum float64) {
	for _, v := range a.Nodes.Self {
		sum += v
	}
	return sum
}

// The answers have what the windows have: of services, of processes, and of times.
func TestAPI(t *testing.T) {
	s, hs := start(t, &fake{stats: profile.Stats{Calls: new(profile.CallStats)}})
	var services api.Services
	askJSON(t, hs.URL+"/api/v1/services", &services)
	if len(services.Services) != 0 || len(services.Kinds) != 2 || services.Kinds[0].Name != "cpu" {
		t.Errorf("before the first window: %+v", services)
	}
	for n := range uint64(40) {
		s.Observe(shop(n))
	}
	askJSON(t, hs.URL+"/api/v1/services", &services)
	if len(services.Services) != 3 || services.Services[0].Service != "shop.service" ||
		len(services.Services[0].Processes) != 1 || services.Seconds != 10*maxKept {
		t.Fatalf("%+v", services)
	}
	var all, one, pid, part, none flameAnswer
	askJSON(t, hs.URL+"/api/v1/flame", &all)
	askJSON(t, hs.URL+"/api/v1/flame?service=postgresql.service", &one)
	askJSON(t, hs.URL+"/api/v1/flame?pid=2000", &pid)
	askJSON(t, hs.URL+"/api/v1/flame?service=nobody", &none)
	from := shop(38).Start.UnixMilli()
	askJSON(t, fmt.Sprintf("%s/api/v1/flame?kind=cpu&from=%d&to=%d", hs.URL, from, from+1), &part)
	if all.Kind != "cpu" || all.Seconds != 10*maxKept || len(all.Timeline.Start) != maxKept || all.Calls == nil ||
		all.Calls.PerSecond[0] != 1.2 {
		t.Errorf("all: %+v", all)
	}
	if one.total() != services.Services[1].Value && one.total() != services.Services[2].Value ||
		one.total() != pid.total() || one.total() >= all.total() {
		t.Errorf("one service has %v, its process %v, all %v", one.total(), pid.total(), all.total())
	}
	if part.Seconds != 10 || part.total() <= 0 || none.total() != 0 {
		t.Errorf("a part has %v s and %v, nobody %v", part.Seconds, part.total(), none.total())
	}
	var calls flameAnswer
	askJSON(t, hs.URL+"/api/v1/flame?kind=calls", &calls)
	if calls.Kind != "calls" || calls.total() != 12*maxKept {
		t.Errorf("calls: %+v", calls)
	}
	for query, want := range map[string]int{"kind=lock": 404, "kind=x": 404, "pid=x": 400, "pid=-1": 400,
		"from=soon": 400, "to=99999999999999999": 400, "service=" + url.QueryEscape(hostile): 200} {
		resp, err := http.Get(hs.URL + "/api/v1/flame?" + query)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", query, resp.StatusCode, want)
		}
	}
}

// With a baseline, the flame graph has the values of both times by context. Without a selection,
// that is what follows the baseline.
func TestAPIBaseline(t *testing.T) {
	s, hs := start(t, new(fake))
	get(t, hs.URL+"/api/v1/flame")
	for n := range uint64(20) {
		s.Observe(shop(n))
	}
	var before, after, both flameAnswer
	at := func(n uint64) int64 { return shop(n).Start.UnixMilli() }
	askJSON(t, fmt.Sprintf("%s/api/v1/flame?from=%d&to=%d", hs.URL, at(2), at(8)), &before)
	askJSON(t, fmt.Sprintf("%s/api/v1/flame?from=%d", hs.URL, at(8)), &after)
	askJSON(t, fmt.Sprintf("%s/api/v1/flame?basefrom=%d&baseto=%d", hs.URL, at(2), at(8)), &both)
	if both.Base == nil || both.Base.Seconds != 60 || both.Base.Start != at(2) || both.Seconds != 120 {
		t.Fatalf("%+v", both)
	}
	base := 0.0
	for _, v := range both.Base.Self {
		base += v
	}
	if both.total() != after.total() || base != before.total() || len(both.Base.Self) != len(both.Nodes.Self) {
		t.Errorf("selected %v, want %v; baseline %v, want %v", both.total(), after.total(), base, before.total())
	}
	var one flameAnswer
	askJSON(t, fmt.Sprintf("%s/api/v1/flame?pid=2000&from=%d&to=%d&basefrom=%d&baseto=%d", hs.URL, at(8), at(9), at(2),
		at(3)), &one)
	if one.Seconds != 10 || one.Base.Seconds != 10 || one.total() <= 0 || one.total() >= both.total()/12 {
		t.Errorf("one process: %+v", one)
	}
	// Whether a method differs is what /api/v1/why would say: nothing of few windows, whatever the
	// shares are.
	if one.Verdicts == nil || len(one.Verdicts.Own)+len(one.Verdicts.Total) != 0 ||
		!strings.Contains(fmt.Sprint(one.Notes), "Undecided: the baseline has 1 window,") {
		t.Errorf("verdicts on two windows: %+v, notes %v", one.Verdicts, one.Notes)
	}
	if all := both.Verdicts; all == nil || before.Verdicts != nil || len(all.Own) != 0 {
		t.Errorf("verdicts on six windows: %+v", all)
	}
}

// With enough windows, the answer says what differs; else that it is undecided. Without times it
// compares the last windows.
func TestAPIWhy(t *testing.T) {
	s, hs := start(t, new(fake))
	get(t, hs.URL+"/api/v1/flame")
	var why api.Why
	if askJSON(t, hs.URL+"/api/v1/why", &why); len(why.Findings) != 0 ||
		!strings.Contains(fmt.Sprint(why.Notes), "Undecided") {
		t.Errorf("before the first window: %+v", why.Why)
	}
	for n := range uint64(30) {
		w := shop(n)
		if n >= 20 {
			w.Processes[1].Threads[0].Tree = w.Processes[0].Threads[4].Tree // marks instead of scanning
		}
		s.Observe(w)
	}
	at := func(n uint64) int64 { return shop(n).Start.UnixMilli() }
	if askJSON(t, hs.URL+"/api/v1/why?service=postgresql.service", &why); len(why.Findings) != 1 ||
		why.From != at(20) || why.To != at(30) || why.BaseTo != at(20) || why.BaseFrom != at(0) {
		t.Fatalf("%+v, %+v", why, why.Why)
	}
	if f := why.Findings[0]; f.Method != "start_thread" || f.Verdict != "more" || f.Before != 0 || f.Now != 1 ||
		!strings.Contains(f.Text, "0 → 100 % ± ") {
		t.Errorf("%+v", f)
	}
	if w := why.Whole[0]; w.Verdict != "less" || !strings.HasPrefix(w.Text, "CPU time fell: 0.13 → 0.071 CPUs ± ") {
		t.Errorf("%+v", w)
	}
	// The flame graph of a comparison has the same verdicts, and none where nothing differs.
	var both flameAnswer
	askJSON(t, fmt.Sprintf("%s/api/v1/flame?service=postgresql.service&from=%d&basefrom=%d&baseto=%d", hs.URL, at(20),
		at(0), at(20)), &both)
	if v := both.Verdicts; v == nil || v.Total["start_thread"] != "more" || v.Total["ExecScan"] != "less" ||
		v.Own["ExecScan"] != "less" {
		t.Errorf("verdicts %+v", v)
	}
	both = flameAnswer{}
	askJSON(t, fmt.Sprintf("%s/api/v1/flame?from=%d&to=%d&basefrom=%d&baseto=%d", hs.URL, at(10), at(20), at(0),
		at(10)), &both)
	for method, verdict := range both.Verdicts.Total {
		if verdict == "more" || verdict == "less" {
			t.Errorf("%s: %s", method, verdict)
		}
	}
	if askJSON(t, fmt.Sprintf("%s/api/v1/why?from=%d&to=%d", hs.URL, at(10), at(20)), &why); len(why.Findings) != 0 ||
		len(why.Whole) != 1 || why.BaseFrom != at(10)-200e3 || why.Windows != [2]int{10, 10} {
		t.Errorf("where nothing differs: %+v, %+v", why, why.Why)
	}
	if askJSON(t, fmt.Sprintf("%s/api/v1/why?from=%d&to=%d", hs.URL, at(20), at(23)), &why); len(why.Findings)+
		len(why.Whole) != 0 || len(why.Notes) != 1 {
		t.Errorf("three windows: %+v", why.Why)
	}
	for query, want := range map[string]int{fmt.Sprintf("from=%d&basefrom=%d", at(10), at(5)): 400, "kind=calls": 404} {
		if resp, body := get(t, hs.URL+"/api/v1/why?"+query); resp.StatusCode != want {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
	// Older times come from the history, both of them.
	h := &remembered{window: shop(0)}
	s.Keep(h)
	if askJSON(t, fmt.Sprintf("%s/api/v1/why?service=shop.service&from=%d&to=%d", hs.URL, at(10), at(20)),
		&why); h.want.Service != "shop.service" || h.want.Content != sink.Time || why.Windows != [2]int{12, 12} {
		t.Errorf("asked the history for %+v: %+v", h.want, why.Why)
	}
}

// Each service has what it uses, its course, and a change if that is more than chance and large
// enough.
func TestAPIRates(t *testing.T) {
	s, hs := start(t, new(fake))
	get(t, hs.URL+"/api/v1/flame")
	for n := range uint64(30) {
		w := shop(n)
		if n >= 20 { // twice as much
			w.Processes[0].Threads = append(w.Processes[0].Threads, shop(n).Processes[0].Threads...)
		}
		s.Observe(w)
	}
	var answer api.Services
	askJSON(t, hs.URL+"/api/v1/services", &answer)
	at := func(n uint64) int64 { return shop(n).Start.UnixMilli() }
	if c := answer.Compared; c.From != at(20) || c.To != at(30) || c.BaseFrom != at(0) || c.BaseTo != at(20) {
		t.Errorf("%+v", c)
	}
	for _, service := range answer.Services {
		r := service.Rates[0]
		if len(service.Rates) != 1 || r.Kind != "cpu" || len(r.Points) != 30 || r.Value <= 0 {
			t.Fatalf("%s: %+v", service.Service, r)
		}
		if service.Service != "shop.service" {
			if r.Change != nil {
				t.Errorf("%s: a false alarm, %+v", service.Service, r.Change)
			}
			continue
		}
		if r.Change == nil || r.Change.Verdict != "more" || r.Change.Percent == nil ||
			math.Abs(*r.Change.Percent-100) > *r.Change.Within || r.Points[29] < 1.8*r.Points[0] {
			t.Errorf("%s: %+v", service.Service, r.Change)
		}
	}
	if all := answer.Rates[0]; all.Change == nil || all.Value < answer.Services[0].Rates[0].Value {
		t.Errorf("all: %+v", all)
	}
	// Of two times without a difference nothing changed, and the first one is not the last.
	var past api.Services
	if askJSON(t, fmt.Sprintf("%s/api/v1/services?from=%d&to=%d", hs.URL, at(10), at(20)),
		&past); past.Services[0].Rates[0].Change != nil || len(past.Services[0].Rates[0].Points) != 20 {
		t.Errorf("%+v", past.Services[0].Rates[0])
	}
}

// have none.
func TestAPICourse(t *testing.T) {
	s, hs := start(t, new(fake))
	for n := range uint64(6) {
		w := shop(n)
		if n != 3 {
			w.Course, w.Processes[0].Course = make([]uint16, 500), make([]uint16, 500)
			w.Course[0], w.Course[499], w.Processes[0].Course[499] = 1, 7, 5
		}
		s.Observe(w)
	}
	at := func(n uint64) int64 { return shop(n).Start.UnixMilli() }
	ask := func(query string) (c api.Course) {
		t.Helper()
		askJSON(t, hs.URL+"/api/v1/course?"+query, &c)
		return c
	}
	c := ask(fmt.Sprintf("from=%d&to=%d", at(1)-20, at(4)))
	if len(c.Counts) != 1501 || c.Start != at(1)-20 || c.Step != 20 || c.Counts[0] != 7 || c.Counts[1] != 1 ||
		c.Counts[2] != 0 || c.Counts[500] != 7 || c.Counts[1002] != -1 {
		t.Errorf("%d counts from %d: %v…", len(c.Counts), c.Start, c.Counts[:3])
	}
	for query, want := range map[string]int{"&service=shop.service": 5, "&pid=1000": 5,
		"&service=shop.service&pid=1000": 5, "&service=shop.service&pid=7": 0, "&service=other": 0} {
		if c := ask(fmt.Sprintf("from=%d&to=%d%s", at(1), at(2), query)); c.Counts[499] != want || c.Counts[0] != 0 {
			t.Errorf("%s: %d, want %d", query, c.Counts[499], want)
		}
	}
	if c := ask("from=1000&to=2000"); len(c.Counts) != 0 || c.Note == "" {
		t.Errorf("a time that is not kept: %+v", c)
	}
	for _, query := range []string{"", "from=1", "from=5&to=5", "from=1&to=70000"} {
		if resp, _ := get(t, hs.URL+"/api/v1/course?"+query); resp.StatusCode != 400 {
			t.Errorf("%q: %d", query, resp.StatusCode)
		}
	}
}

// A window of a busy machine takes little room, and so does an answer.
func TestAPIBounds(t *testing.T) {
	s, hs := start(t, new(fake))
	get(t, hs.URL+"/api/v1/flame")
	for n := range uint64(maxKept + 10) {
		s.Observe(busyShop(n))
	}
	var answer flameAnswer
	if askJSON(t, hs.URL+"/api/v1/flame", &answer); len(answer.Timeline.Start) != maxKept {
		t.Errorf("%d windows are kept", len(answer.Timeline.Start))
	}
	for path, limit := range map[string]int{"/api/v1/flame": 1 << 20, "/api/v1/services": 1 << 17, "/": 2000} {
		req, _ := http.NewRequest("GET", hs.URL+path, nil)
		req.Header.Set("Accept-Encoding", "identity")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(body) > limit {
			t.Errorf("%s has %d bytes, %v", path, len(body), err)
		}
	}
}

// The timeline has marks where a service started again, collected garbage, or the agent lost
// samples or did not record.
func TestMarks(t *testing.T) {
	s, hs := start(t, new(fake))
	for n := range uint64(10) {
		w := shop(n)
		switch {
		case n == 3:
			w.Counts.Dropped = map[string]uint64{"ring_full": 160}
		case n == 4:
			w.Processes[1].PID = 2001 // without a VM: programs like this one start all the time
		case n == 5:
			w.Processes[0].Events = []*profile.Events{{Kind: profile.Pauses, Rows: []profile.EventRow{
				{EventLabels: profile.EventLabels{Collector: "G1 Young Generation"}, Values: [3]float64{2, 3e6}},
				{EventLabels: profile.EventLabels{What: "Deoptimize"}, Values: [3]float64{1, 5e6}}}}}
		case n == 7:
			continue
		case n >= 8:
			w.Processes[0].PID = 1001
		}
		s.Observe(w)
	}
	var all, other api.Timeline
	askJSON(t, hs.URL+"/api/v1/timeline", &all)
	var texts []string
	for _, m := range all.Marks {
		texts = append(texts, fmt.Sprint(m.Kind, " ", (m.From-shop(0).Start.UnixMilli())/10_000, " ", m.Text))
	}
	want := []string{"lost 3 10 % of the samples were lost",
		"gc 5 shop.service: 2 GC pauses, 3ms (G1 Young Generation)", "gap 7 10s were not recorded",
		"start 8 shop.service started again (pid 1001)"}
	if strings.Join(texts, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
	if askJSON(t, hs.URL+"/api/v1/timeline?service=postgresql.service", &other); len(other.Marks) != 2 {
		t.Errorf("another service: %+v", other.Marks)
	}
}
