package httpd

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/pprof/driver"
	pprof "github.com/google/pprof/profile"
)

// handlers returns the handlers of google/pprof's web interface for one profile, by path:
// /flamegraph, /top and so on. They work on copies of prof.
//
// pprof is a command made usable as a library, so what it may do is taken from it one by one: it
// gets no server, no network, no object files and no temporary files. The names in prof are
// hostile, and by default pprof opens files of those names. Configuration is in globals of pprof:
// neither this function nor a handler may run at the same time as another.
func handlers(prof *pprof.Profile, logger *slog.Logger) (map[string]http.Handler, error) {
	var got map[string]http.Handler
	err := driver.PProf(&driver.Options{
		Flagset: arguments{flag.NewFlagSet("pprof", flag.ContinueOnError), []string{
			"-http=localhost:0", // any value selects the web interface; HTTPServer below listens to nobody
			"-no_browser",
			"-symbolize=none",
			"-tagroot=" + processLabel,
			"window", // Fetch ignores it, but there must be one
		}},
		Fetch: inMemory{prof},
		Obj:   noObjects{},
		Sym:   noSymbols{},
		UI:    logUI{logger},
		HTTPServer: func(a *driver.HTTPServerArgs) error {
			got = a.Handlers
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("start pprof pages: %w", err)
	}
	return got, nil
}

// arguments is a driver.FlagSet over a fixed command line.
type arguments struct {
	*flag.FlagSet
	args []string
}

func (a arguments) StringList(name, value, usage string) *[]*string {
	return &[]*string{a.String(name, value, usage)}
}
func (arguments) ExtraUsage() string   { return "" }
func (arguments) AddExtraUsage(string) {}
func (a arguments) Parse(func()) []string {
	if err := a.FlagSet.Parse(a.args); err != nil {
		return nil // reported by pprof as a missing source
	}
	return a.Args()
}

// inMemory is a driver.Fetcher of one profile.
type inMemory struct{ prof *pprof.Profile }

// Fetch returns the profile and no source: a source would make pprof save it in the home directory.
func (m inMemory) Fetch(string, time.Duration, time.Duration) (*pprof.Profile, string, error) {
	return m.prof, "", nil
}

var errNoObjects = errors.New("object files are not read")

// noObjects is a driver.ObjTool that opens nothing.
type noObjects struct{}

func (noObjects) Open(string, uint64, uint64, uint64, string) (driver.ObjFile, error) {
	return nil, errNoObjects
}
func (noObjects) Disasm(string, uint64, uint64, bool) ([]driver.Inst, error) {
	return nil, errNoObjects
}

// noSymbols is a driver.Symbolizer that leaves the profile as it is: what the agent could not name,
// pages do not look for in files of targets.
type noSymbols struct{}

func (noSymbols) Symbolize(string, driver.MappingSources, *pprof.Profile) error { return nil }

// logUI is a driver.UI for nobody.
type logUI struct{ logger *slog.Logger }

func (logUI) ReadLine(string) (string, error) { return "", io.EOF }
func (u logUI) Print(args ...any)             { u.logger.Debug("pprof", "says", fmt.Sprint(args...)) }

// PrintErr also gets the errors of bad requests, such as a regular expression that does not
// compile.
func (u logUI) PrintErr(args ...any)              { u.Print(args...) }
func (logUI) IsTerminal() bool                    { return false }
func (logUI) WantBrowser() bool                   { return false }
func (logUI) SetAutoComplete(func(string) string) {}
