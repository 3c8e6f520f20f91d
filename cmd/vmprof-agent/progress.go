package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

const progressInterval = 500 * time.Millisecond

// A progress is one line on a terminal that shows how a recording goes. Elsewhere it is silent.
type progress struct {
	w     io.Writer // nil: silent
	began time.Time
	total time.Duration // 0: until something else ends it
}

func newProgress(w io.Writer, began time.Time, total time.Duration) *progress {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		w = nil
	}
	return &progress{w, began, total}
}

const eraseLine = "\r\x1b[K"

func (p *progress) draw(a *agent.Agent) {
	if p.w == nil {
		return
	}
	c := a.Counts()
	at := time.Since(p.began).Round(time.Second).String()
	if p.total > 0 {
		at += " of " + p.total.String()
	}
	fmt.Fprintf(p.w, "%srecording: %s, %d samples, %d lost, %d JVMs (Ctrl-C ends)", eraseLine, at, c.Folded, c.DroppedTotal(), a.Guests())
}

func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprint(p.w, eraseLine)
	}
}
