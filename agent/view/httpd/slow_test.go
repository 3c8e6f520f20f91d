package httpd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/tests/browser"
)

// slowShop is a window in which a method of the shop was followed. The slowest call took 1 s in
// window 0, 2 s in window 1 and so on.
func slowShop(n uint64) *profile.Profile {
	p := waitingShop(n, profile.Wall)
	p.Followed = "com.acme.shop.Server.handle"
	frame := func(name string) symbol.Symbol {
		return symbol.Intern(symbol.Frame{Function: name, SystemName: name, Kind: symbol.KindJIT})
	}
	handle := frame(p.Followed)
	for i := range time.Duration(15) {
		length := time.Duration(n+1)*time.Second - i*50*time.Millisecond
		call := profile.SlowCall{TID: 1010 + int(i%3), Thread: fmt.Sprint("http-", int(i%3)),
			Start: p.Start.Add(i * 100 * time.Millisecond), Length: length, Parts: []profile.SlowPart{
				{Stack: []symbol.Symbol{frame("sun.nio.ch.SocketDispatcher.read0"), frame("com.acme.shop.Stock.ask"),
					handle, frame("java.lang.Thread.run")}, State: cause.Blocked, Cause: cause.Socket,
					Time: float64(length) * 0.7},
				{Stack: []symbol.Symbol{frame("com.acme.shop.Cart.total"), handle}, State: cause.Running,
					Cause: cause.Running, Time: float64(length) * 0.2},
				{Stack: []symbol.Symbol{frame(hostile), handle}, State: cause.Runnable, Cause: cause.Runnable,
					Time: float64(length) * 0.1},
			}}
		if i == 3 {
			call.End = profile.CallUnwound
		}
		p.Processes[0].Slow = append(p.Processes[0].Slow, call)
	}
	return p
}

// What the page has of the slowest calls is that of the selected time and service, and a pulled
// profile has them too.
func TestSlowCalls(t *testing.T) {
	f := recording(profile.Wall)
	f.window = slowShop
	s, hs := start(t, f)
	for n := range uint64(3) {
		s.Observe(slowShop(n))
	}
	type answer struct {
		Slow *struct {
			Method string
			List   []struct{ Took float64 }
		}
	}
	second := fmt.Sprintf("from=%d&to=%d", slowShop(1).Start.UnixMilli(), slowShop(2).Start.UnixMilli())
	for _, test := range []struct {
		query   string
		calls   int
		slowest time.Duration
	}{
		{"kind=wall", profile.MaxSlowCalls, 3 * time.Second},
		{"kind=wall&" + second, 15, 2 * time.Second},
		{"kind=wall&service=shop.service&pid=1000&" + second, 15, 2 * time.Second},
		{"kind=wall&service=postgresql.service", 0, 0},
	} {
		var a answer
		if askJSON(t, hs.URL+"/api/v1/flame?"+test.query, &a); a.Slow == nil || len(a.Slow.List) != test.calls {
			t.Errorf("%s: %+v", test.query, a.Slow)
		} else if test.calls > 0 && (a.Slow.List[0].Took != float64(test.slowest) ||
			a.Slow.Method != slowShop(0).Followed) {
			t.Errorf("%s: the slowest took %v", test.query, time.Duration(a.Slow.List[0].Took))
		}
	}
	_, body := get(t, hs.URL+"/profiles/wall?seconds=1")
	p, err := pprof.ParseData([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.Slow(&text, p, nil); err != nil || !strings.Contains(text.String(), "the 15 slowest") {
		t.Errorf("a pulled profile: %v\n%s", err, &text)
	}
	s.Observe(waitingShop(3, profile.Wall)) // a window of an agent that follows nothing
	var a answer
	if askJSON(t, fmt.Sprintf("%s/api/v1/flame?kind=wall&from=%d", hs.URL, shop(3).Start.UnixMilli()),
		&a); a.Slow != nil {
		t.Errorf("where nothing is followed: %+v", a.Slow)
	}
}

// In a browser the calls are a table, with the stacks of one of them, and the threads choose what
// else is shown.
func TestSlowPage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	s, hs := start(t, recording(profile.Wall))
	get(t, hs.URL+"/api/v1/flame")
	for n := range uint64(3) {
		s.Observe(slowShop(n))
	}
	b := browser.Start(t)
	for name, v := range map[string]browser.View{"wide": {Width: 1600, Height: 1200},
		"small-dark": {Width: 1280, Height: 800, Dark: true}, "narrow": {Width: 360, Height: 740}} {
		tab := b.Open(t, hs.URL+"/", v)
		tab.Wait(t, `document.body.dataset.ready && document.querySelectorAll(".slow tbody tr").length === 20`)
		var text string
		tab.Eval(t, `document.querySelector(".slow tbody tr").textContent + document.querySelector(".slow p").textContent`, &text)
		for _, want := range []string{"13 s", "http-0", "socket 2.1 s", "running 600 ms", "The 20 slowest"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in %q", name, want, text)
			}
		}
		tab.Eval(t, `document.querySelector(".slow tbody button").click()`, nil)
		tab.Wait(t, `document.querySelectorAll(".slow .stacks li").length === 3`)
		tab.Eval(t, `document.querySelector(".slow .stacks li").textContent`, &text)
		if want := "70.0 % 2.1 s, socket: com.acme.shop.Server.handle › com.acme.shop.Stock.ask"; !strings.HasPrefix(text, want) {
			t.Errorf("%s: %q, want %q", name, text, want)
		}
		if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
			tab.Screenshot(t, filepath.Join(dir, "slowcalls-"+name+".png"))
		}
		for _, finding := range append(tab.Accessibility(t), tab.Problems()...) {
			t.Errorf("%s: %s", name, finding)
		}
		tab.Eval(t, `[...document.querySelectorAll(".slow .stacks button")].find((b) => b.textContent === "com.acme.shop.Stock.ask").click()`, nil)
		tab.Wait(t, `document.querySelector(".side h2").textContent === "com.acme.shop.Stock.ask"`)
	}
}
