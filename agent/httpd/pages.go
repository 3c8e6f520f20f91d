package httpd

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
)

// shown are the pages of pprof that are served. The others would read files of the names in the profile (source,
// disasm), run a program (graph) or write to the home directory (saveconfig, deleteconfig).
var shown = map[string]bool{"/flamegraph": true, "/top": true, "/peek": true, "/download": true}

// hide removes from pprof's pages the menu entries of what is not served. Should pprof rename them, they would
// show up again, and lead to a page that says so.
const hide = `<style>#graphbtn, #list, #disasm, #config, #action-source, #action-source-tab, #action-source-tab + hr { display: none !important }</style></head>`

// pages serves the flame graph, top and peek over the last minute, of the first kind that is recorded and can be shown.
// Every request sees the windows closed by then.
type pages struct {
	source Source
	recent *recent
	logger *slog.Logger

	// busy holds a token while a page is made: pprof keeps its configuration in globals, and one page at a time
	// bounds the memory that pages take. It guards what follows.
	busy     chan struct{}
	handlers map[string]http.Handler // of the profile that was merged last; nil if there is none or it has no samples
	version  uint64                  // of recent, for which handlers are
}

func newPages(source Source, recent *recent, logger *slog.Logger) *pages {
	return &pages{source: source, recent: recent, logger: logger, busy: make(chan struct{}, 1)}
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorded := recordedKinds(p.source.Stats())
	show := shownKind(recorded)
	switch {
	case r.URL.Path == "/":
		// Relative, as the agent may be behind a proxy that adds a prefix.
		w.Header().Set("Location", "flamegraph")
		w.WriteHeader(http.StatusFound)
		return
	case show == nil:
		w.WriteHeader(http.StatusNotFound)
		render(w, "message", message{Title: "Nothing to show here",
			Text: "What the agent records has no whole stacks, of which pages could be made. For other views use pprof's command:",
			Code: pull(r.Host, recorded)})
		return
	case !shown[r.URL.Path]:
		w.WriteHeader(http.StatusNotFound)
		render(w, "message", message{Title: "Not served here",
			Text: "The agent serves the flame graph, top and peek. For other views of pprof use its command:",
			Code: pull(r.Host, []*kind{show})})
		return
	}
	page, err := p.make(r, show)
	switch {
	case r.Context().Err() != nil:
		return
	case err != nil:
		p.logger.Error("Page request failed", "path", r.URL.Path, "err", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case page == nil:
		render(w, "message", message{Title: "Nothing to show yet", Refresh: 5,
			Text: "Nothing was recorded in the last minute. The first samples show up some ten seconds after the agent was started, and only while something runs. This page reloads itself."})
	default:
		page.writeTo(w)
	}
}

// pull is the command that shows the first of some kinds.
func pull(host string, kinds []*kind) string {
	if len(kinds) == 0 {
		return ""
	}
	return "go tool pprof -http=: http://" + host + "/profiles/" + kinds[0].Name + "?seconds=10"
}

// make lets pprof make the page, or returns nil if there are no samples.
func (p *pages) make(r *http.Request, k *kind) (*page, error) {
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if err := p.refresh(k); err != nil {
		return nil, err
	}
	if p.handlers == nil {
		return nil, nil
	}
	h := p.handlers[r.URL.Path]
	if h == nil {
		return nil, fmt.Errorf("pprof has no page %s", r.URL.Path)
	}
	pg := &page{header: make(http.Header), status: http.StatusOK}
	h.ServeHTTP(pg, r)
	return pg, nil
}

// refresh merges the recent windows if there are new ones.
func (p *pages) refresh(k *kind) error {
	windows, version := p.recent.last()
	if version == p.version {
		return nil
	}
	p.handlers, p.version = nil, version
	prof, err := merge(windows, k, maxStacks)
	if err != nil || len(prof.Sample) == 0 {
		return err
	}
	p.handlers, err = handlers(prof, p.logger)
	return err
}

// forget frees what was made of windows that are not the last ones any more, unless a page is being made.
func (p *pages) forget() {
	select {
	case p.busy <- struct{}{}:
		if _, version := p.recent.last(); version != p.version {
			p.handlers = nil
		}
		<-p.busy
	default:
	}
}

// A page is an answer in memory, so that a client that reads slowly does not hold up others.
type page struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (p *page) Header() http.Header         { return p.header }
func (p *page) WriteHeader(status int)      { p.status = status }
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }

func (p *page) writeTo(w http.ResponseWriter) {
	for key, values := range p.header {
		w.Header()[key] = values
	}
	w.WriteHeader(p.status)
	// An error means that the client went away.
	_, _ = w.Write(bytes.Replace(p.body.Bytes(), []byte("</head>"), []byte(hide), 1))
}
