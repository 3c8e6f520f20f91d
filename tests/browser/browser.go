// Package browser drives a headless Chromium for tests of pages.
//
//	b := browser.Start(t)
//	tab := b.Open(t, "file:///tmp/x.html", browser.View{Width: 1600})
//	tab.Wait(t, `document.body.dataset.ready`)
//	for _, finding := range tab.Accessibility(t) { t.Error(finding) }
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Patience is how long a page may take for what a test waits for, on a busy machine.
const Patience = time.Minute

// A Browser is a running Chromium.
type Browser struct{ ctx context.Context }

// Start starts a browser that ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		needs.Missing(t, "no browser: install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(Patience))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	// events that this version does not know
	ctx, end := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until it has ended
		end()
		stop()
	})
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return &Browser{ctx}
}

// A View is how a page is looked at.
type View struct {
	Width, Height int64 // 0: 1600 x 1000
	Dark          bool
}

// A Tab is an open page.
type Tab struct {
	ctx      context.Context
	mu       sync.Mutex
	problems []string
}

// Open opens an address.
func (b *Browser) Open(t testing.TB, address string, v View) *Tab {
	t.Helper()
	if v.Width == 0 {
		v.Width = 1600
	}
	if v.Height == 0 {
		v.Height = 1000
	}
	ctx, end := chromedp.NewContext(b.ctx)
	t.Cleanup(end)
	tab := &Tab{ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		text := ""
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			text = e.ExceptionDetails.Error()
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				text = e.Entry.Text + " " + e.Entry.URL
			}
		}
		if text != "" {
			tab.mu.Lock()
			defer tab.mu.Unlock()
			tab.problems = append(tab.problems, text)
		}
	})
	// The first call must not have a deadline: the tab would end with it.
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	tab.run(t, log.Enable(), emulation.SetDeviceMetricsOverride(v.Width, v.Height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
			Value: scheme}}), chromedp.Navigate(address))
	return tab
}

func (tab *Tab) run(t testing.TB, actions ...chromedp.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, Patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// Problems are the errors that the page reported so far: exceptions, and what its policy forbade.
func (tab *Tab) Problems() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return append([]string(nil), tab.problems...)
}

// Eval evaluates an expression of the page, which may be a promise, and stores its value.
func (tab *Tab) Eval(t testing.TB, expression string, value any) {
	t.Helper()
	tab.run(t, chromedp.Evaluate(expression, value,
		func(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

// Wait waits until an expression is true.
func (tab *Tab) Wait(t testing.TB, expression string) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(100 * time.Millisecond) {
		var is bool
		tab.Eval(t, "Boolean("+expression+")", &is)
		if is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never true: %s\n%s", expression, strings.Join(tab.Problems(), "\n"))
		}
	}
}

// Drag drags the mouse over an element, from one part of its width to another, with modifiers such
// as input.ModifierShift or 0.
func (tab *Tab) Drag(t testing.TB, selector string, from, to float64, modifiers input.Modifier) {
	t.Helper()
	var box struct{ Left, Top, Width float64 }
	tab.Eval(t, fmt.Sprintf(`(() => { const b = document.querySelector(%q).getBoundingClientRect(); return {Left: b.left, Top: b.top, Width: b.width} })()`, selector), &box)
	at := func(kind input.MouseType, part float64) chromedp.Action {
		return input.DispatchMouseEvent(kind, box.Left+part*box.Width, box.Top+
			20).WithButton(input.Left).WithClickCount(1).WithModifiers(modifiers)
	}
	tab.run(t, at(input.MouseMoved, from), at(input.MousePressed, from), at(input.MouseMoved, (from+to)/2),
		at(input.MouseMoved, to), at(input.MouseReleased, to))
}

// Keys sends keys to what has the focus: see package kb.
func (tab *Tab) Keys(t testing.TB, keys string) {
	t.Helper()
	tab.run(t, chromedp.KeyEvent(keys))
}

// Screenshot writes a picture of the whole page.
func (tab *Tab) Screenshot(t testing.TB, path string) {
	t.Helper()
	var picture []byte
	tab.run(t, chromedp.FullScreenshot(&picture, 100))
	if err := os.WriteFile(path, picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Picture writes a picture of what is in the window.
func (tab *Tab) Picture(t testing.TB, path string) {
	t.Helper()
	var picture []byte
	tab.run(t, chromedp.CaptureScreenshot(&picture))
	if err := os.WriteFile(path, picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

// visible is a function of the page: whether a text is in the window, and nothing lies over it.
// What is drawn below the text of a frame is part of the frame.
const visible = `((wanted) => {
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const text = texts.currentNode, at = text.textContent.indexOf(wanted), range = document.createRange();
		if (at < 0) continue;
		range.setStart(text, at);
		range.setEnd(text, at + wanted.length);
		const r = range.getBoundingClientRect();
		const hit = r.width > 0 && document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2);
		if (hit && (text.parentElement.closest("g") ?? text.parentElement).contains(hit)) return true;
	}
	return false;
})`

// Sees waits until a user sees a text in the window.
func (tab *Tab) Sees(t testing.TB, text string) {
	t.Helper()
	tab.Wait(t, fmt.Sprintf("%s(%q)", visible, text))
}

// Accessibility returns what axe-core finds that is serious or critical.
func (tab *Tab) Accessibility(t testing.TB) (findings []string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	source, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../web/node_modules/axe-core/axe.min.js"))
	if err != nil {
		needs.Missing(t, fmt.Sprintf("axe-core is not installed: run make web (%v)", err))
	}
	var loaded bool
	tab.Eval(t, string(source)+";true", &loaded)
	var text string
	tab.Eval(t, `axe.run().then((result) => JSON.stringify(result.violations))`, &text)
	var violations []struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	if err := json.Unmarshal([]byte(text), &violations); err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		if v.Impact == "serious" || v.Impact == "critical" {
			findings = append(findings, fmt.Sprintf("%s: %s: %d places, the first: %.300s\n%s", v.ID, v.Help,
				len(v.Nodes), v.Nodes[0].HTML, v.Nodes[0].FailureSummary))
		}
	}
	return findings
}
