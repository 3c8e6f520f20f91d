package httpd

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/api"
)

const (
	// maxRenders is how many requests may wait for a page that is made. One page is made at a time.
	maxRenders = 4
	// maxPageBytes bounds a page: one that does not fit is made again of fewer contexts.
	maxPageBytes = 1 << 20
	// maxPageNodes is how many contexts a page shows at most, minPageNodes how many it is cut down
	// to at worst.
	maxPageNodes, minPageNodes = 5_000, 100
)

// shown are the pages of pprof that are served. The others would read files of the names in the
// profile (source, disasm), run a program (graph) or write to the home directory (saveconfig,
// deleteconfig).
var shown = map[string]bool{"/flamegraph": true, "/top": true, "/peek": true, "/download": true}

// hide removes from pprof's pages the menu entries of what is not served. Should pprof rename them,
// they would show up again, and lead to a page that says so.
const hide = "<style>#graphbtn, #list, #disasm, #config, #action-source, #action-source-tab, #action-source-tab + hr " +
	"{ display: none !important }</style></head>"

// pages serves the flame graph, top and peek over the last minute, of the first kind that is
// recorded and can be shown. Every request sees the windows closed by then. A page is made once for
// the windows that it shows; those who ask for the same one share it.
type pages struct {
	source Source
	recent *recent
	logger *slog.Logger

	// recorded are the kinds that the agent records, which it does not change; nil until somebody
	// asks. What it counts of itself for Stats takes more than many a page.
	recorded atomic.Pointer[[]*kind]

	waiting chan struct{} // a token for each request that waits for a page
	cache   pageCache

	// busy holds a token while a page is made: pprof keeps its configuration in globals, and one
	// page at a time bounds the memory that pages take. It guards what follows.
	busy chan struct{}
	// handlers are those of the profile that was merged last; nil if there is none or it has no
	// samples.
	handlers map[string]http.Handler
	version  uint64 // version of recent that handlers are for
	nodes    int    // nodes that the profile was merged with
	fit      int    // what pages fitted with so far
}

func newPages(source Source, recent *recent, logger *slog.Logger) *pages {
	return &pages{source: source, recent: recent, logger: logger, waiting: make(chan struct{}, maxRenders),
		busy: make(chan struct{}, 1), fit: maxPageNodes}
}

// errEmpty is an error of make.
var errEmpty = errors.New("there are no samples")

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorded := p.kinds()
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
			Text: "The agent records no whole stacks, so it has no pages. For other views, use pprof:",
			Code: pull(r.Host, recorded)})
		return
	case !shown[r.URL.Path]:
		w.WriteHeader(http.StatusNotFound)
		render(w, "message", message{Title: "Not served here",
			Text: "The agent serves flame graph, top and peek. For other views, use pprof:",
			Code: pull(r.Host, []*kind{show})})
		return
	}
	page, err := p.find(r, show)
	switch {
	case r.Context().Err() != nil:
		if page != nil {
			p.cache.release(page)
		}
		return
	case errors.Is(err, api.ErrBusy):
		w.Header().Set("Retry-After", strconv.Itoa(1))
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	case errors.Is(err, errEmpty):
		render(w, "message", message{Title: "Nothing to show yet", Refresh: 5,
			Text: "Nothing was recorded in the last minute. The first samples appear about ten seconds after the " +
				"agent has started, if a process runs. This page reloads itself."})
	case err != nil:
		p.logger.Error("Page request failed", "path", r.URL.Path, "err", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		defer p.cache.release(page)
		page.writeTo(w)
	}
}

// kinds returns what the agent records.
func (p *pages) kinds() []*kind {
	if known := p.recorded.Load(); known != nil {
		return *known
	}
	recorded := recordedKinds(p.source.Stats())
	p.recorded.Store(&recorded)
	return recorded
}

// data are these kinds as the page at / shows them.
func (p *pages) data() (recorded []*api.Kind) {
	for _, k := range p.kinds() {
		recorded = append(recorded, &k.Kind)
	}
	return recorded
}

// pull is the command that shows the first of some kinds.
func pull(host string, kinds []*kind) string {
	if len(kinds) == 0 {
		return ""
	}
	return "go tool pprof -http=: http://" + host + "/profiles/" + kinds[0].Name + "?seconds=10"
}

// find returns a page that was made already, or makes it. The caller releases it to the cache.
func (p *pages) find(r *http.Request, k *kind) (*page, error) {
	key := r.URL.Path + "?" + r.URL.RawQuery
	if page := p.cached(key); page != nil {
		return page, nil
	}
	select {
	case p.waiting <- struct{}{}:
		defer func() { <-p.waiting }()
	default:
		return nil, api.ErrBusy
	}
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if page := p.cached(key); page != nil { // made while this request waited
		return page, nil
	}
	if !p.cache.room() {
		return nil, api.ErrBusy // Slow readers take all the room.
	}
	windows, version := p.recent.last()
	page, err := p.make(r, k, windows, version)
	if err != nil {
		return nil, err
	}
	p.cache.add(key, version, page)
	return page, nil
}

func (p *pages) cached(key string) *page {
	_, version := p.recent.last()
	return p.cache.get(key, version)
}

// make lets pprof make the page, of as many contexts as fit.
func (p *pages) make(r *http.Request, k *kind, windows []*profile.Profile, version uint64) (*page, error) {
	if p.version != version {
		p.handlers, p.version, p.nodes = nil, version, 0
		p.fit = min(p.fit+p.fit/8, maxPageNodes)
	}
	for {
		if err := p.refresh(k, windows); err != nil {
			return nil, err
		}
		h := p.handlers[r.URL.Path]
		if h == nil {
			return nil, fmt.Errorf("pprof has no page %s", r.URL.Path)
		}
		pg := newPage()
		h.ServeHTTP(pg, r)
		if pg.finish(); pg.size <= maxPageBytes {
			return pg, nil
		}
		if p.fit <= minPageNodes {
			return nil, fmt.Errorf("the page has %d bytes, more than %d, even with %d contexts", pg.size, maxPageBytes,
				p.fit)
		}
		// Some less than would fit if all contexts took the same.
		p.fit = max(minPageNodes, min(p.fit/2, p.fit*9/10*maxPageBytes/pg.size))
	}
}

// refresh merges the windows, unless they are merged with as many contexts as fit already.
func (p *pages) refresh(k *kind, windows []*profile.Profile) error {
	if p.nodes == p.fit && p.handlers != nil {
		return nil
	}
	p.handlers, p.nodes = nil, p.fit
	if len(windows) == 0 {
		return errEmpty
	}
	prof, err := merge(windows, k, p.fit)
	if err != nil {
		return err
	}
	if len(prof.Sample) == 0 {
		return errEmpty
	}
	p.handlers, err = handlers(prof, p.logger)
	return err
}

// observe keeps what pages show of a window, and frees what was made of others. It waits while a
// page is made: both take memory that is given back at once.
func (p *pages) observe(w *profile.Profile, k *kind) {
	p.busy <- struct{}{}
	defer func() { <-p.busy }()
	p.recent.add(reduce([]*profile.Profile{w}, k, maxWindowNodes))
	_, version := p.recent.last()
	p.cache.forget(version)
	p.handlers = nil
}
