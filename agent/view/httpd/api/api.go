// Package api answers with the data of the page at /: what services used, flame graphs, how a time
// differs from another. It keeps the last windows as the page shows them, and reads older ones from
// a history. What the answers mean is in docs/reference/http.md.
//
//	a := api.New(recorded, sender, logger)
//	a.Observe(window) // each closed window
//	a.Handle(mux)
package api

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

const (
	// maxFlameNodes bounds the contexts of an answer, which then has less than 1 MB.
	maxFlameNodes = 8000
	// maxAPIRequests is how many answers are made at once, and maxAPIWait how long others wait for
	// that.
	maxAPIRequests = 2
	maxAPIWait     = 5 * time.Second
	// maxServices and maxServiceProcesses bound the list of services, and of processes of each.
	maxServices, maxServiceProcesses = 200, 50
	// apiFormat is the version of the answers.
	apiFormat = 1
)

// A Kind is something that the agent records.
type Kind struct {
	Name    string // name as -e has it, and in file names
	Title   string // title of its profiles
	Content sink.Content
}

// MaxPID is the kernel's PID_MAX_LIMIT (include/linux/threads.h).
const MaxPID = 1 << 22

// ErrBusy is the error for a request that others keep from being answered.
var ErrBusy = errors.New("too many requests wait for pages; try again in a second")

// An API answers requests for data.
type API struct {
	recordings recordings
	timelines  timelines // timelines of the history, or of the windows that are kept
	history    bool
	kept       *kept
	kinds      func() []*Kind
	busy       chan struct{}
	sender     *listener.Sender
}

// New makes an API of the kinds that the agent records.
func New(recorded func() []*Kind, s *listener.Sender, logger *slog.Logger) *API {
	k := newKept(recorded, logger)
	return &API{recordings: k, timelines: k, kept: k, kinds: recorded, busy: make(chan struct{}, maxAPIRequests),
		sender: s}
}

// Observe keeps a closed window. Windows come in order.
func (a *API) Observe(p *profile.Profile) { a.kept.observe(p) }

// Keep makes answers about earlier times come from a history. It must be called before the first
// request.
func (a *API) Keep(h History) {
	a.recordings = &withHistory{a.kept, h}
	a.timelines, a.history = h, true
}

// Handle answers the requests under /api/v1/.
func (a *API) Handle(mux *http.ServeMux) {
	for name, of := range map[string]func(*http.Request, selection) (any, error){
		"kinds": a.kindNames, "services": a.services, "flame": a.flame, "course": a.course, "why": a.why,
		"timeline": a.timeline,
	} {
		mux.HandleFunc("GET /api/v1/"+name, a.answer(of))
	}
}

// A selection is what a request asks for.
type selection struct {
	kind             *Kind
	service          string
	pid              int64
	from, to         time.Time
	baseFrom, baseTo time.Time // the baseline; both are zero if there is none
}

// compares reports whether there is a baseline.
func (s *selection) compares() bool { return !s.baseFrom.IsZero() || !s.baseTo.IsZero() }

// selectionOf reads the parameters of a request.
func (a *API) selectionOf(r *http.Request) (s selection, status int, err error) {
	q := r.URL.Query()
	recorded := a.kinds()
	if len(recorded) == 0 {
		return s, http.StatusNotFound, errNoKind
	}
	s.kind = recorded[0]
	if name := q.Get("kind"); name != "" {
		i := slices.IndexFunc(recorded, func(k *Kind) bool { return k.Name == name })
		if i < 0 {
			return s, http.StatusNotFound, errNoKind
		}
		s.kind = recorded[i]
	}
	s.service = q.Get("service")
	if text := q.Get("pid"); text != "" {
		if s.pid, err = strconv.ParseInt(text, 10, 64); err != nil || s.pid < 0 || s.pid > MaxPID {
			return s, http.StatusBadRequest, fmt.Errorf("bad pid=%.20q: want the number of a process", text)
		}
	}
	for _, t := range []struct {
		name string
		to   *time.Time
	}{{"from", &s.from}, {"to", &s.to}, {"basefrom", &s.baseFrom}, {"baseto", &s.baseTo}} {
		text := q.Get(t.name)
		if text == "" {
			continue
		}
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil || ms < 0 || ms > maxMillis {
			return s, http.StatusBadRequest, fmt.Errorf("bad %s=%.20q: want milliseconds since 1970", t.name, text)
		}
		*t.to = time.UnixMilli(ms)
	}
	if s.from.IsZero() {
		s.from = s.baseTo // what follows the baseline
	}
	return s, 0, nil
}

// maxMillis is the end of the year 9999.
const maxMillis = 253402300799999

// answer makes a handler of a function that makes an answer.
func (a *API) answer(of func(*http.Request, selection) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, status, err := a.selectionOf(r)
		if err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		body, err := a.make(r, s, of)
		switch {
		case r.Context().Err() != nil:
		case errors.Is(err, ErrBusy):
			tooBusy(w)
		case errors.As(err, new(badRequest)):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			if acceptsGzip(r) {
				w.Header().Set("Content-Encoding", "gzip")
			}
			if !a.sender.Send(w, body) {
				w.Header().Del("Content-Encoding")
				tooBusy(w)
			}
		}
	}
}

// make makes an answer, compressed if the client takes that. Only so many are made at once; how
// long they take to be sent does not count.
func (a *API) make(r *http.Request, s selection, of func(*http.Request, selection) (any, error)) ([]byte, error) {
	select {
	case a.busy <- struct{}{}:
		defer func() { <-a.busy }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(maxAPIWait):
		return nil, ErrBusy
	}
	data, err := of(r, s)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(data)
	if err != nil || !acceptsGzip(r) {
		return body, err
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(body)                                 // a buffer takes everything
	_ = z.Close()
	return packed.Bytes(), nil
}

func acceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

func tooBusy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, ErrBusy.Error(), http.StatusTooManyRequests)
}

// find returns what was recorded in a time, maybe nothing.
func (a *API) find(r *http.Request, s selection, service string, from, to time.Time) (*flame.Graph, error) {
	f, err := a.recordings.Flame(r.Context(), s.kind.Name, service, from, to)
	if f == nil && err == nil {
		f = flame.Empty(s.kind.Name, s.kind.Title, time.Time{}, 0)
	}
	return f, err
}

// flame is the answer of /api/v1/flame.
func (a *API) flame(r *http.Request, s selection) (any, error) {
	f, err := a.find(r, s, s.service, s.from, s.to)
	if err != nil {
		return nil, err
	}
	if s.pid != 0 {
		f = f.ForService(s.service, s.pid)
	}
	if s.compares() {
		base, err := a.find(r, s, s.service, s.baseFrom, s.baseTo)
		if err != nil {
			return nil, err
		}
		if s.pid != 0 {
			base = base.ForService(s.service, s.pid)
		}
		f = f.Against(base)
		if f.Verdicts, err = a.verdicts(r.Context(), s, f); err != nil {
			return nil, err
		}
	}
	return f.Cut(maxFlameNodes), nil
}

// verdicts compares the methods of both times of a selection, by the statistics of why. Where
// nothing is decided, a note of f says why.
func (a *API) verdicts(ctx context.Context, s selection, f *flame.Graph) (*flame.Verdicts, error) {
	times := [2]timeRange{flame.Baseline: {s.baseFrom, s.baseTo}, flame.Selected: {s.from, s.to}}
	ctx, cancel := whyContext(ctx)
	defer cancel()
	e := flame.NewExplainer(s.service, s.pid)
	at := e.Kind(s.kind.Name)
	if !times[0].overlaps(times[1]) && comparable(s.kind) {
		err := a.recordings.Each(ctx, s.kind.Name, s.service, times,
			func(time int, f *flame.Graph) { e.Add(at, time, f) })
		if err != nil {
			return nil, whyError(ctx, err)
		}
	}
	v, note := e.Verdicts()
	if note != "" {
		f.Notes = append(f.Notes[:len(f.Notes):len(f.Notes)], note)
	}
	return v, nil
}

type kindJSON struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

// kindList are the kinds that the page can show.
func (a *API) kindList() (list []kindJSON) {
	for _, k := range a.kinds() {
		list = append(list, kindJSON{k.Name, k.Title})
	}
	return list
}

type kindsJSON struct {
	Format int        `json:"format"`
	Kinds  []kindJSON `json:"kinds"`
}

// kindNames is the answer of /api/v1/kinds.
func (a *API) kindNames(*http.Request, selection) (any, error) {
	return kindsJSON{apiFormat, a.kindList()}, nil
}

// Services is the answer of /api/v1/services.
type Services struct {
	Format   int        `json:"format"`
	Kinds    []kindJSON `json:"kinds"`
	Kind     string     `json:"kind"`
	Unit     string     `json:"unit"`
	Start    *int64     `json:"start,omitempty"`
	Seconds  float64    `json:"seconds"`
	Compared timesJSON  `json:"compared"`
	Rates    []rateJSON `json:"rates"` // rates of all services
	States   []State    `json:"states,omitempty"`
	Services []Service  `json:"services"`
}

// A Service is what one service used.
type Service struct {
	Service   string          `json:"service"`
	Value     float64         `json:"value"`
	Processes []flame.Process `json:"processes"`
	Rates     []rateJSON      `json:"rates,omitempty"` // rates of the busiest services
	States    []State         `json:"states,omitempty"`
}

// services is the answer of /api/v1/services.
func (a *API) services(r *http.Request, s selection) (any, error) {
	f, err := a.find(r, s, "", s.from, s.to)
	if err != nil {
		return nil, err
	}
	out := Services{Format: apiFormat, Kinds: a.kindList(), Kind: s.kind.Name, Unit: f.Unit,
		Seconds: f.Duration.Seconds(), Services: []Service{}}
	if !f.Start.IsZero() {
		ms := f.Start.UnixMilli()
		out.Start = &ms
	}
	index := make(map[string]int)
	for _, p := range f.Services() {
		i, known := index[p.Service]
		if !known {
			i = len(out.Services)
			index[p.Service] = i
			out.Services = append(out.Services, Service{Service: p.Service})
		}
		out.Services[i].Value += p.Value
		if len(out.Services[i].Processes) < maxServiceProcesses {
			out.Services[i].Processes = append(out.Services[i].Processes, p)
		}
	}
	slices.SortStableFunc(out.Services, func(a, b Service) int { return cmp.Compare(b.Value, a.Value) })
	out.Services = out.Services[:min(len(out.Services), maxServices)]
	if err := a.addStates(r, s, &out); err != nil {
		return nil, err
	}
	return out, a.rate(r, s, &out)
}
