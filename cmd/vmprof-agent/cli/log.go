package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// Log are the flags of verbs that log.
type Log struct {
	verbose bool
	format  string
}

// Add defines the flags; what says what is logged with -v.
func (l *Log) Add(fs *pflag.FlagSet, what string) {
	fs.BoolVarP(&l.verbose, "verbose", "v", false, what)
	fs.StringVar(&l.format, "log.format", "text", "log as `F`: text or json")
}

// Check fails if the format is unknown.
func (l *Log) Check() error {
	if l.format != "text" && l.format != "json" {
		return Misuse(fmt.Sprintf("--log.format=%s: choose text or json", l.format))
	}
	return nil
}

// Logger logs to w: warnings, each cause once a minute, and with -v everything. Lines of text have
// no time, as people see them at once or in a journal that has it.
func (l *Log) Logger(w io.Writer) *slog.Logger {
	options := slog.HandlerOptions{Level: slog.LevelWarn}
	if l.verbose {
		options.Level = slog.LevelDebug
	}
	var handler slog.Handler
	if l.format == "json" {
		handler = slog.NewJSONHandler(w, &options)
	} else {
		options.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		handler = slog.NewTextHandler(w, &options)
	}
	if l.verbose {
		return slog.New(handler)
	}
	return slog.New(&rateLimiter{Handler: handler, history: &warningHistory{last: map[string]*warned{}}})
}

const (
	// warnPause is for how long a cause that was warned of is not logged again.
	warnPause = time.Minute
	// maxCauses bounds the causes that are remembered; from so many on they are forgotten.
	maxCauses = 1024
)

// A rateLimiter handler logs each warning once a minute, whichever processes it is about, and then how
// many there were. Errors are all logged.
type rateLimiter struct {
	slog.Handler
	with    string // attributes of all records
	history *warningHistory
}

type warningHistory struct {
	mu   sync.Mutex
	last map[string]*warned
}

type warned struct {
	at   time.Time
	more int // since then
}

// numbers are what differs in warnings of the same cause: pids, addresses, times.
var numbers = regexp.MustCompile(`(0x[0-9a-f]+|[0-9]+)`)

// causeOf is what a record is about, apart from numbers, paths and names of processes.
func (s *rateLimiter) causeOf(r slog.Record) string {
	var b strings.Builder
	b.WriteString(r.Message + s.with)
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "pid", "comm", "service", "process", "file", "library", "path":
		default:
			b.WriteString(" " + a.String())
		}
		return true
	})
	return numbers.ReplaceAllString(b.String(), "#")
}

// Handle implements slog.Handler.
func (s *rateLimiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level != slog.LevelWarn {
		return s.Handler.Handle(ctx, r)
	}
	if more, ok := s.history.next(s.causeOf(r), r.Time); !ok {
		return nil
	} else if more > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("not_shown", more))
	}
	return s.Handler.Handle(ctx, r)
}

// next reports whether a warning is to be logged, and how many of its cause were not since the last
// one.
func (h *warningHistory) next(cause string, now time.Time) (more int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last[cause]
	if last != nil && now.Sub(last.at) < warnPause {
		last.more++
		return 0, false
	}
	if last != nil {
		more = last.more
	} else if len(h.last) >= maxCauses {
		clear(h.last)
	}
	h.last[cause] = &warned{at: now}
	return more, true
}

// WithAttrs implements slog.Handler.
func (s *rateLimiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := s.with
	for _, a := range attrs {
		with += " " + a.String()
	}
	return &rateLimiter{s.Handler.WithAttrs(attrs), with, s.history}
}

// WithGroup implements slog.Handler.
func (s *rateLimiter) WithGroup(name string) slog.Handler {
	return &rateLimiter{s.Handler.WithGroup(name), s.with + " " + name, s.history}
}
