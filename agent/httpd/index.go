package httpd

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

//go:embed index.html message.html style.css
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"style": func() (template.CSS, error) {
		css, err := files.ReadFile("style.css")
		return template.CSS(css), err
	},
	"round": func(d time.Duration) time.Duration { return d.Round(time.Second) },
	"share": func(part, whole time.Duration) float64 { return 100 * part.Seconds() / max(whole.Seconds(), 1e-9) },
}).ParseFS(files, "*.html"))

// maxListed is how many processes the front page lists.
const maxListed = 20

// front is what index.html shows.
type front struct {
	Host      string
	Stats     agent.Stats
	Span      time.Duration // of the windows that Processes is from
	Processes []busyProcess
}

// message is what message.html shows.
type message struct {
	Title, Text, Code string
	Refresh           int // seconds until the browser loads the page again; 0 for never
}

// index is the front page.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	windows, _ := s.recent.last()
	page := front{Host: r.Host, Stats: s.source.Stats(), Processes: busiest(windows, maxListed)}
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
