package httpd

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

//go:embed app.html index.html message.html versions.html style.css
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"style": func() (template.CSS, error) {
		css, err := files.ReadFile("style.css")
		return template.CSS(css), err
	},
	"round": func(d time.Duration) time.Duration { return d.Round(time.Second) },
}).ParseFS(files, "*.html"))

// maxListed is how many processes the front page lists.
const maxListed = 20

// front is what index.html shows.
type front struct {
	Host      string
	Stats     profile.Stats
	Recorded  []*kind
	Shown     *kind         // kind that pages show, and that Processes are ranked by; nil if there is none
	Span      time.Duration // length of the windows that Processes is from
	Processes []busyProcess
}

// Column heads the amounts of processes, which Amount writes, and Whole explains.
func (f front) Column() string              { return f.Shown.shown.column }
func (f front) Amount(p busyProcess) string { return f.Shown.shown.text(p.Amount, f.Span) }
func (f front) Whole() string               { return f.Shown.shown.whole }

// message is what message.html shows.
type message struct {
	Title, Text, Code string
	Home              string // where the front page is; "" for ../
	Refresh           int    // seconds until the browser loads the page again; 0 for never
}

// index is the page that works without scripts.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	windows, _ := s.recent.last()
	page := front{Host: r.Host, Stats: s.source.Stats()}
	page.Recorded = recordedKinds(page.Stats)
	page.Shown = shownKind(page.Recorded)
	if page.Shown != nil {
		page.Processes = busiest(windows, page.Shown.shown, maxListed)
	}
	for _, p := range windows {
		page.Span += p.Duration
	}
	render(w, "index", page)
}

// render writes one of the templates, which take any text.
func render(w http.ResponseWriter, name string, data any) {
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, name+".html", data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = page.WriteTo(w) // an error means that the client went away
}
