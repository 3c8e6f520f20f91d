package tests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"

	"github.com/vmprof-agent/vmprof-agent/tests/browser"
)

// views are those in which every page is looked at. With VMPROF_PICTURES, pictures of them go to
// that directory.
var views = map[string]browser.View{
	"wide": {Width: 1600}, "wide-dark": {Width: 1600, Dark: true}, "narrow": {Width: 360, Height: 740},
	"narrow-dark": {Width: 360, Height: 740, Dark: true},
}

// lookTwice does as look in two views: what differs between them is the same in every page.
func lookTwice(t *testing.T, b *browser.Browser, name, address string) {
	t.Helper()
	lookIn(t, b, name, address, nil, "wide", "narrow-dark")
}

// look opens a page in all views, and says what is wrong with them. The page is ready when it is
// drawn; then it is prepared.
func look(t *testing.T, b *browser.Browser, name, address string, prepare func(*browser.Tab)) {
	t.Helper()
	lookIn(t, b, name, address, prepare, slices.Collect(maps.Keys(views))...)
}

func lookIn(t *testing.T, b *browser.Browser, name, address string, prepare func(*browser.Tab), in ...string) {
	t.Helper()
	for _, view := range in {
		v := views[view]
		tab := b.Open(t, address, v)
		tab.Wait(t, `document.body.dataset.ready && document.querySelectorAll("g.frame").length > 3`)
		if prepare != nil {
			prepare(tab)
		}
		var wide bool
		if tab.Eval(t, `document.documentElement.scrollWidth > document.documentElement.clientWidth`, &wide); wide {
			t.Errorf("%s, %s: the page is wider than the window", name, view)
		}
		if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
			tab.Screenshot(t, filepath.Join(dir, name+"-"+view+".png"))
		}
		for _, finding := range tab.Accessibility(t) {
			t.Errorf("%s, %s: %s", name, view, finding)
		}
		for _, problem := range tab.Problems() {
			t.Errorf("%s, %s: %s", name, view, problem)
		}
	}
}

// shareOf returns the share of the widest frame of a method in a flame graph, in percent.
func shareOf(t *testing.T, tab *browser.Tab, method string) float64 {
	t.Helper()
	var share float64
	tab.Eval(t, fmt.Sprintf(`Math.max(0, ...[...document.querySelectorAll("g.frame")].map((g) => g.getAttribute("aria-label"))
		.filter((label) => label.startsWith(%q + ", ")).map((label) => parseFloat(label.slice(%d))))`, method, len(method)+2), &share)
	return share
}

// The pages of record, report, compare and serve draw the hot method of a real program, can be used
// with the keyboard, and have no serious finding of axe-core, whatever their width and colours.
func TestPages(t *testing.T) {
	guest := start(t, "Plain")
	b := browser.Start(t)
	dir := t.TempDir()
	pid := strconv.Itoa(guest.PID())
	page, again, stored := filepath.Join(dir, "all.html"), filepath.Join(dir, "again.html"), filepath.Join(dir, "parts")
	url := serve(t, "-e", "cpu,alloc")
	mustSucceed(t, "record", "-p", pid, "-F", strconv.Itoa(frequency), "-e", "cpu,calls,alloc,lock", "-d", "4",
		"--window", "0.5", "-o", page, "-o", stored, "-o", filepath.Join(dir, "all.json"))

	const least = 20 // percent; the truth is above
	t.Run("record", func(t *testing.T) {
		look(t, b, "record", "file://"+page, nil)
		tab := b.Open(t, "file://"+page, browser.View{})
		tab.Wait(t, `document.body.dataset.ready`)
		if share := shareOf(t, tab, heavy); share < least {
			t.Errorf("%s has %.1f %%", heavy, share)
		}
		var kinds, windows int
		tab.Eval(t, `document.querySelectorAll(".tabs button").length`, &kinds)
		tab.Eval(t, `JSON.parse(document.getElementById("data").textContent).kinds[0].timeline.start.length`, &windows)
		if kinds != 4 || windows < 7 {
			t.Errorf("%d kinds, %d windows", kinds, windows)
		}
		// By keyboard: to the first frame, two levels from the root, and zoom.
		tab.Eval(t, `document.querySelector('g.frame[tabindex="0"]').focus()`, nil)
		tab.Keys(t, kb.ArrowDown)
		tab.Keys(t, kb.ArrowDown)
		var focused, tip string
		tab.Eval(t, `document.activeElement.getAttribute("aria-label")`, &focused)
		tab.Eval(t, `document.querySelector(".tip").hidden ? "" : document.querySelector(".tip strong").textContent`,
			&tip)
		if focused == "" || tip == "" {
			t.Errorf("by keyboard: focus on %q, tooltip of %q", focused, tip)
		}
		tab.Keys(t, kb.Enter)
		tab.Wait(t, `location.hash.includes("sel=")`)
		// A search highlights, and the profile inside is what record wrote.
		tab.Eval(t, `(() => { const s = document.getElementById("search"); s.value = "heavy"; s.dispatchEvent(new Event("input")); })()`, nil)
		tab.Wait(t, `document.querySelector(".tools [role=status]").textContent.startsWith("found in")`)
		var same bool
		data, err := os.ReadFile(filepath.Join(stored, "alloc.pb.gz"))
		if err != nil {
			t.Fatal(err)
		}
		tab.Eval(t, fmt.Sprintf(`atob(document.getElementById("file1").textContent).length === %d`, len(data)), &same)
		if !same {
			t.Error("the page has another profile inside than the file")
		}
	})
	t.Run("brush", func(t *testing.T) {
		tab := b.Open(t, "file://"+page, browser.View{})
		tab.Wait(t, `document.querySelector(".u-over")`)
		var all, half string
		tab.Eval(t, `document.querySelector("header .dim").textContent`, &all)
		tab.Drag(t, ".u-over", 0.5, 0.999, 0)
		tab.Wait(t, `location.hash.includes("from=")`)
		tab.Eval(t, `document.querySelector("header .dim").textContent`, &half)
		var seconds float64
		if m := regexp.MustCompile(`, ([0-9.]+) s:`).FindStringSubmatch(half); m != nil {
			seconds, _ = strconv.ParseFloat(m[1], 64)
		}
		if seconds < 1.4 || seconds > 2.6 { // whole windows of half a second
			t.Errorf("half of %q is %q", all, half)
		}
		if share := shareOf(t, tab, heavy); share < least {
			t.Errorf("in the second half, %s has %.1f %%", heavy, share)
		}
		tab.Drag(t, ".u-over", 0.001, 0.5, input.ModifierShift)
		tab.Wait(t, `document.querySelector(".methods caption").textContent === "Methods by change"`)
		for _, finding := range append(tab.Accessibility(t), tab.Problems()...) {
			t.Error(finding)
		}
	})
	t.Run("selected", func(t *testing.T) {
		lookTwice(t, b, "selected", "file://"+page+"#sel="+heavy)
	})
	t.Run("report", func(t *testing.T) {
		mustSucceed(t, "report", "-o", again, filepath.Join(stored, "cpu.pb.gz"), filepath.Join(stored, "alloc.pb.gz"))
		lookTwice(t, b, "report", "file://"+again)
	})
	t.Run("compare", func(t *testing.T) {
		other, diff := filepath.Join(dir, "other.pb.gz"), filepath.Join(dir, "diff.html")
		mustSucceed(t, "record", "-p", pid, "-F", strconv.Itoa(frequency), "-d", "2", "-o", other)
		mustSucceed(t, "compare", "-o", diff, filepath.Join(stored, "cpu.pb.gz"), other)
		lookTwice(t, b, "compare", "file://"+diff)
	})
	t.Run("serve", func(t *testing.T) {
		look(t, b, "serve", url+"/", nil)
		tab := b.Open(t, url+"/#kind=cpu", browser.View{})
		tab.Wait(t, fmt.Sprintf(`[...document.querySelectorAll("g.frame")].some((g) => g.getAttribute("aria-label").startsWith(%q))`, heavy))
		tab.Wait(t, `document.querySelectorAll(".services button").length > 1`) // they come after the graph
		tab.Eval(t, `document.querySelectorAll(".services button")[1].click()`, nil)
		tab.Wait(t, `location.hash.includes("service=")`)
	})
}
