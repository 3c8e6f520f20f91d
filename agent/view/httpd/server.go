// Package httpd serves an agent over HTTP: metrics to scrape, profiles to pull, and pages to look
// at.
//
//	s := httpd.New(source, exporter.Gatherer(), logger)
//	go func() { for w := range windows { s.Observe(w) } }()
//	ln, err := listener.Listen(address, webConfig, allowInsecure, access)
//	err = s.Serve(ctx, ln)
//
// Everything is read-only: there is no request that changes the agent, a target or a file. What a
// request may cost is bounded in time, number and memory.
package httpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/api"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ErrNoProcess is the error for a process that does not exist.
var ErrNoProcess = errors.New("no such process")

// A Source is the agent that is served. Its methods may be called from any goroutine.
type Source interface {
	// Collect opens a window now and closes it after d, or when ctx ends if that is sooner, and
	// returns what it holds of the processes pids, or of all if there are none. For a pid that
	// nobody has it returns an error that is ErrNoProcess.
	Collect(ctx context.Context, d time.Duration, pids []int) (*profile.Profile, error)
	// Stats is the agent's own health.
	Stats() profile.Stats
	// RequestFailed counts a request whose handler panicked.
	RequestFailed()
}

// A Server answers requests about one agent.
type Server struct {
	source Source
	logger *slog.Logger
	recent *recent
	pages  *pages
	// versions are the code versions of JVMs.
	versions codeVersions
	past     past
	data     *api.API
	handler  http.Handler
}

// New makes a server. It listens to nobody until Serve; Handler can be used without.
//
// The pages come from google/pprof, which insists on a place for a user's saved settings although
// the server has no use for them. The program should set XDG_CONFIG_HOME to os.DevNull: then pprof
// finds none, can save none, and works without a HOME.
func New(source Source, metrics prometheus.Gatherer, logger *slog.Logger) *Server {
	s := &Server{source: source, logger: logger, recent: new(recent)}
	s.pages = newPages(source, s.recent, logger)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", app)
	mux.HandleFunc("GET /plain", s.index)
	mux.HandleFunc("GET /assets/{name}", serveAsset)
	sender := new(listener.Sender)
	s.data = api.New(s.pages.data, sender, logger)
	s.data.Handle(mux)
	mux.Handle("GET /metrics", listener.NewScrapes(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelError),
		ErrorHandling:     promhttp.ContinueOnError, // one metric that is wrong does not hide the others
		EnableOpenMetrics: true,
	})))
	pulls := newSlots()
	for _, k := range kinds {
		mux.Handle("GET /profiles/"+k.Name, newProfiles(source, k, pulls, &s.past, sender, logger))
	}
	mux.HandleFunc("GET /versions", s.versionsOf)
	mux.Handle("GET /ui/", http.StripPrefix("/ui", s.pages))
	alive := func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "the agent is alive") }
	mux.HandleFunc("GET /-/healthy", alive) // Prometheus' name
	mux.HandleFunc("GET /healthz", alive)   // Kubernetes'
	mux.HandleFunc("GET /-/ready", s.ready)
	s.handler = listener.Guard(logger, source.RequestFailed, mux)
	return s
}

// Observe takes a closed window for the pages. Windows come in order. Only what pages show of a
// window is kept.
func (s *Server) Observe(p *profile.Profile) {
	s.versions.observe(p)
	s.data.Observe(p)
	if k := shownKind(s.pages.kinds()); k != nil {
		s.pages.observe(p, k)
	}
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if !s.source.Stats().Ready {
		http.Error(w, "the agent is not sampling yet", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "the agent is sampling")
}

// Serve answers on ln until ctx ends, and closes ln. Profiles that are being pulled at the end are
// cut short and sent.
func (s *Server) Serve(ctx context.Context, ln *listener.Listener) error {
	return ln.Serve(ctx, s.handler, s.logger)
}
