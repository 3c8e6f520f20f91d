package httpd

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/api"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/tests/browser"
)

// What the page loads exists, is small, and is kept by browsers until it changes.
func TestAssets(t *testing.T) {
	_, hs := start(t, new(fake))
	_, page := get(t, hs.URL+"/")
	total := 0
	for _, address := range regexp.MustCompile(`assets/[^"]+`).FindAllString(page, -1) {
		req, _ := http.NewRequest("GET", hs.URL+"/"+address, nil)
		req.Header.Set("Accept-Encoding", "gzip") // set by hand, so that the client does not unpack
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		packed, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		total += len(packed)
		z, err := gzip.NewReader(strings.NewReader(string(packed)))
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		plain, err := io.ReadAll(z)
		_, other := get(t, hs.URL+"/"+strings.Split(address, "?")[0])
		if err != nil || string(plain) != other || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d bytes, or %d plain, %q", address, len(plain), len(other), resp.Header.Get("Cache-Control"))
		}
	}
	if total == 0 || total > 300<<10 {
		t.Errorf("the page loads %d bytes", total)
	}
	if resp, _ := get(t, hs.URL+"/assets/none.js"); resp.StatusCode != 404 {
		t.Errorf("an asset that does not exist: %d", resp.StatusCode)
	}
}

// In a browser the page shows services and names as text, whatever they are, and its policy is
// strict enough for none of it to run.
func TestLivePage(t *testing.T) {
	s, hs := start(t, &fake{stats: profile.Stats{Calls: new(profile.CallStats)}})
	get(t, hs.URL+"/api/v1/flame")
	for n := range uint64(30) {
		w := shop(n)
		if n >= 20 { // twice as much
			w.Processes[1].Threads = append(w.Processes[1].Threads, w.Processes[1].Threads...)
		}
		if n == 8 {
			w.Counts.Dropped = map[string]uint64{"ring_full": 160}
		}
		if n >= 14 {
			w.Processes[0].PID = 1001
		}
		if n%3 == 0 {
			w.Processes[0].Events = []*profile.Events{{Kind: profile.Pauses,
				Rows: []profile.EventRow{{EventLabels: profile.EventLabels{Collector: "G1"},
					Values: [3]float64{2, 3e6}}}}}
		}
		s.Observe(w)
	}
	b := browser.Start(t)
	for name, v := range map[string]browser.View{"wide": {}, "wide-dark": {Dark: true},
		"narrow": {Width: 360, Height: 740}, "narrow-dark": {Width: 360, Height: 740, Dark: true}} {
		tab := b.Open(t, hs.URL+"/#sel=com.acme.shop.Cart.total", v)
		tab.Wait(t, `document.body.dataset.ready && document.querySelectorAll("g.frame").length > 10`)
		var cards, elements int
		tab.Eval(t, `document.querySelectorAll(".services .cards > li").length`, &cards)
		tab.Eval(t, `document.querySelectorAll("script, img, iframe").length`, &elements)
		if cards != 4 || elements != 1 {
			t.Errorf("%s: %d services, %d scripts and the like", name, cards, elements)
		}
		var text string
		if tab.Eval(t, `[...document.querySelectorAll(".badge")].map((b) => b.textContent).join()`,
			&text); !strings.Contains(text, "changed +100 %") || strings.Contains(text, ",") {
			t.Errorf("%s: badges %q", name, text)
		}
		tab.Eval(t, `document.querySelector(".marks").open = true`, nil)
		if tab.Eval(t, `document.querySelector(".marks").textContent`, &text); !strings.HasPrefix(text, "Marks (12)") ||
			!strings.Contains(text, "shop.service started again (pid 1001)") {
			t.Errorf("%s: %q", name, text)
		}
		tab.Eval(t, `document.querySelector(".services").textContent`, &text)
		if !strings.Contains(text, "<script>alert(1)") {
			t.Errorf("%s: the hostile name is not shown: %q", name, text)
		}
		if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
			tab.Screenshot(t, filepath.Join(dir, "agent-"+name+".png"))
		}
		for _, finding := range append(tab.Accessibility(t), tab.Problems()...) {
			t.Errorf("%s: %s", name, finding)
		}
		// A service, then the time of some windows.
		tab.Eval(t, `[...document.querySelectorAll(".services button")].
			find((b) => b.textContent.includes("postgres")).click()`, nil)
		tab.Wait(t, `location.hash.includes("service=postgresql") &&
			document.querySelector(".methods").textContent.includes("ExecScan") &&
			!document.querySelector(".methods").textContent.includes("Cart")`)
	}
}

// Dragging over the timeline selects a time, with Shift it sets the baseline, and the keyboard does
// both. With a baseline the flame graph, the table and the panel have both sides.
func TestBaselinePage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	s, hs := start(t, new(fake))
	get(t, hs.URL+"/api/v1/flame")
	for n := range uint64(20) {
		w := shop(n)
		w.Course = make([]uint16, 500)
		for i := range w.Course {
			w.Course[i] = uint16(i % 13)
		}
		if n >= 10 { // something new
			w.Processes[0].Threads = append(w.Processes[0].Threads, w.Processes[1].Threads[0])
		}
		s.Observe(w)
	}
	b := browser.Start(t)
	tab := b.Open(t, hs.URL+"/", browser.View{})
	tab.Wait(t, `document.querySelector(".u-over")`)
	tab.Drag(t, ".u-over", 0.001, 0.5, input.ModifierShift)
	tab.Wait(t, `location.hash.includes("basefrom=") && !/[#&]from=/.test(location.hash)`)
	tab.Drag(t, ".u-over", 0.5, 0.999, 0)
	tab.Wait(t, `/[#&]from=/.test(location.hash) &&
		document.querySelector(".methods caption").textContent === "Methods by change"`)
	var first int64
	tab.Eval(t, `Number(new URLSearchParams(location.hash.slice(1)).get("basefrom"))`, &first)
	if at := shop(0).Start.UnixMilli(); first < at-1000 || first > at+1000 {
		t.Errorf("the baseline begins at %d, want %d", first, at)
	}
	// By keyboard, from the last bar: the last three are the selection, the four before them the
	// baseline.
	tab.Eval(t, `document.querySelector("[role=slider]").focus()`, nil)
	for _, key := range []string{kb.Enter, kb.ArrowLeft, kb.ArrowLeft, kb.Enter} {
		tab.Keys(t, key)
	}
	tab.Wait(t, fmt.Sprintf(`location.hash.includes("&from=%d")`, shop(17).Start.UnixMilli()))
	tab.Eval(t, `document.querySelector("[role=slider]").focus()`, nil)
	for range 2 {
		tab.Keys(t, kb.ArrowLeft)
	}
	tab.Keys(t, kb.Enter)
	for range 3 {
		tab.Keys(t, kb.ArrowLeft)
	}
	tab.Eval(t, `document.activeElement.dispatchEvent(
		new KeyboardEvent("keydown", {key: "Enter", shiftKey: true, bubbles: true}))`, nil)
	tab.Wait(t, fmt.Sprintf(`location.hash.includes("basefrom=%d")`, shop(12).Start.UnixMilli()))

	// What changed is said when somebody asks, and leads to the frames.
	tab = b.Open(t, hs.URL+"/", browser.View{})
	tab.Wait(t, `document.querySelector(".why button")`)
	tab.Eval(t, `document.querySelector(".why button").click()`, nil)
	tab.Wait(t, `document.querySelector(".why li button.name")`)
	var sentence string
	if tab.Eval(t, `document.querySelector(".why li").textContent`, &sentence); !strings.Contains(sentence, "main: ") &&
		!strings.Contains(sentence, "PostgresMain: ") || !strings.Contains(sentence, " % ± ") {
		t.Errorf("the first sentence is %q", sentence)
	}
	tab.Eval(t, `document.querySelector(".why li button.name").click()`, nil)
	tab.Wait(t, `location.hash.includes("sel=") && location.hash.includes("basefrom=") &&
		document.querySelector(".side .shares")`)

	// Less than a minute has a heat map, which the keyboard can read.
	tab = b.Open(t, fmt.Sprintf("%s/#from=%d&to=%d", hs.URL, shop(5).Start.UnixMilli(), shop(9).Start.UnixMilli()),
		browser.View{})
	tab.Wait(t, `document.querySelector(".heat canvas")`)
	tab.Eval(t, `document.querySelector(".heat canvas").focus()`, nil)
	tab.Keys(t, kb.ArrowRight)
	tab.Keys(t, kb.ArrowDown)
	var cell string
	// 1.020 s
	if tab.Eval(t, `document.querySelector(".heat [role=status]").textContent`, &cell); !strings.Contains(cell,
		"12 samples") {
		t.Errorf("the heat map says %q", cell)
	}
	for _, finding := range append(tab.Accessibility(t), tab.Problems()...) {
		t.Error(finding)
	}
	if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
		tab.Screenshot(t, filepath.Join(dir, "heat.png"))
	}
	narrow := b.Open(t, fmt.Sprintf("%s/#from=%d&to=%d", hs.URL, shop(5).Start.UnixMilli(), shop(9).Start.UnixMilli()),
		browser.View{Width: 360, Height: 740, Dark: true})
	narrow.Wait(t, `document.querySelector(".heat canvas")`)
	for _, finding := range append(narrow.Accessibility(t), narrow.Problems()...) {
		t.Error(finding)
	}
	if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
		narrow.Screenshot(t, filepath.Join(dir, "heat-narrow-dark.png"))
	}

	address := fmt.Sprintf("%s/#sel=ExecScan&basefrom=%d&baseto=%d&from=%d", hs.URL, shop(0).Start.UnixMilli(),
		shop(10).Start.UnixMilli(), shop(10).Start.UnixMilli())
	for name, v := range map[string]browser.View{"wide": {}, "wide-dark": {Dark: true},
		"narrow": {Width: 360, Height: 740}, "narrow-dark": {Width: 360, Height: 740, Dark: true}} {
		tab := b.Open(t, address, v)
		tab.Wait(t, `document.body.dataset.ready && document.querySelectorAll("g.frame").length > 10`)
		tab.Wait(t, `document.querySelector(".why li")`)
		var panel, row string
		tab.Eval(t, `document.querySelector(".side .shares tbody").textContent`, &panel)
		if !strings.Contains(panel, "more") || !strings.Contains(panel, "±") {
			t.Errorf("%s: the panel says %q", name, panel)
		}
		if tab.Eval(t, `document.querySelector(".methods tbody tr").textContent`, &row); !strings.Contains(row,
			"ExecScan") {
			t.Errorf("%s: the largest change is %q", name, row)
		}
		if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
			tab.Screenshot(t, filepath.Join(dir, "baseline-"+name+".png"))
		}
		for _, finding := range append(tab.Accessibility(t), tab.Problems()...) {
			t.Errorf("%s: %s", name, finding)
		}
	}
}

// The panel of a method has what it allocates, the locks that it waits for, and the targets of its
// virtual calls.
func TestPanel(t *testing.T) {
	s, hs := start(t, &fake{stats: profile.Stats{Ready: true, Calls: new(profile.CallStats),
		Events: &profile.EventStats{Kinds: []profile.EventKind{profile.Allocations, profile.Locks}}}})
	get(t, hs.URL+"/api/v1/flame")
	for n := range uint64(3) {
		w := busyShop(n)
		frame := func(name string) symbol.Symbol {
			return symbol.Intern(symbol.Frame{Function: name, SystemName: name, Kind: symbol.KindJIT})
		}
		for callee, calls := range map[string]float64{"com.acme.Flat.price": 600, "com.acme.Tiered.price": 200} {
			w.Processes[0].Calls[0].Graph.Add(profile.Edge{Caller: frame("com.acme.shop.Cart.total"),
				Callee: frame(callee), Site: profile.Site{Line: 44, Offset: 12}}, calls)
		}
		s.Observe(w)
	}
	b := browser.Start(t)
	for name, v := range map[string]browser.View{"wide": {}, "narrow-dark": {Width: 360, Height: 740, Dark: true}} {
		tab := b.Open(t, hs.URL+"/#kind=cpu&sel=com.acme.shop.Cart.total", v)
		tab.Wait(t, `["Allocated classes", "Awaited locks"].every((title) =>
			[...document.querySelectorAll(".side h3")].some((h) => h.textContent.startsWith(title)))`)
		var text string
		tab.Eval(t, `document.querySelector(".side").textContent`, &text)
		for _, want := range []string{"Targets of virtual calls", "Line 44: 80 calls/s", "75.0 %com.acme.Flat.price",
			"25.0 %com.acme.Tiered.price", "10 MB/sbyte[]", "0.25 threadsblock java.util.Hashtable"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the panel lacks %q: %q", name, want, text)
			}
		}
		if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
			tab.Screenshot(t, filepath.Join(dir, "panel-"+name+".png"))
		}
		for _, finding := range append(tab.Accessibility(t), tab.Problems()...) {
			t.Errorf("%s: %s", name, finding)
		}
	}
}

// sliced is a history that also has a timeline.
type sliced struct {
	remembered
	slices []history.Slice
}

func (h *sliced) Timeline(_ context.Context, from, to time.Time, service string) ([]history.Slice, error) {
	return h.slices, nil
}

// Times before the windows that are kept come from the history, and so does the timeline.
func TestPageOfPast(t *testing.T) {
	s, hs := start(t, new(fake))
	var none, day api.Timeline
	s.Observe(shop(99))
	if askJSON(t, hs.URL+"/api/v1/timeline?from=1&to=4102444800000", &none); len(none.Start) != 1 ||
		none.Start[0] != shop(99).Start.UnixMilli() || none.Seconds[0] != 10 || none.History {
		t.Errorf("without a history: %+v", none)
	}
	h := &sliced{remembered: remembered{window: shop(0)}}
	begin := shop(0).Start
	for i := range 1000 {
		at := begin.Add(time.Duration(i) * time.Minute)
		sum := history.Sum{Service: "shop"}
		sum.CPU[profile.GuestCode], sum.CPU[profile.KernelCode] = 2*time.Second, time.Second
		h.slices = append(h.slices, history.Slice{Start: at, End: at.Add(time.Minute), Covered: time.Minute,
			Services: []history.Sum{sum}})
	}
	s.Keep(h)
	s.Observe(shop(100))
	var past, now flameAnswer
	from, to := begin.Add(time.Minute), begin.Add(2*time.Minute)
	askJSON(t, fmt.Sprintf("%s/api/v1/flame?service=shop.service&from=%d&to=%d", hs.URL, from.UnixMilli(),
		to.UnixMilli()), &past)
	if w := h.want; !w.From.Equal(from) || !w.To.Equal(to) || w.Service != "shop.service" || w.Content != sink.Time ||
		past.total() <= 0 {
		t.Errorf("asked the history for %+v, answered %v", w, past.total())
	}
	h.want = history.Selection{}
	askJSON(t, fmt.Sprintf("%s/api/v1/flame?from=%d", hs.URL, shop(100).Start.UnixMilli()), &now)
	if askJSON(t, hs.URL+"/api/v1/flame", &now); !h.want.From.IsZero() || now.Seconds != 20 {
		t.Errorf("the last minutes come from the history: %+v, %v s", h.want, now.Seconds)
	}
	h.gaps = []history.Gap{{From: begin, To: begin.Add(time.Minute), Why: "damaged"}, {Why: "unreadable"}}
	askJSON(t, hs.URL+"/api/v1/timeline", &day)
	if n := len(day.Marks); n != 2 || day.Marks[0].Kind != "gap" ||
		!strings.HasPrefix(day.Marks[0].Text, profile.MissingPart+"damaged from ") ||
		day.Marks[1].From != begin.UnixMilli() {
		t.Errorf("marks %+v", day.Marks)
	}
	sum := 0.0
	for _, v := range day.Values[profile.GuestCode] {
		sum += v
	}
	if len(day.Start) < 200 || len(day.Start) > 300 || sum != 2000e9 ||
		len(day.Classes) != int(profile.CodeKinds) || day.Values[profile.Compiling][0] != 0 {
		t.Errorf("%d bars of %v, sum %v", len(day.Start), day.Classes, sum)
	}
	h.err = history.ErrNone
	if askJSON(t, hs.URL+"/api/v1/flame?from=1", &past); past.total() != 0 {
		t.Errorf("a time that is not kept: %v", past.total())
	}
}
