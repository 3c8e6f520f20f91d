package profiler

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"testing"
)

// A Server is a running `serve`.
type Server struct {
	*Run
	URL string // without a path
}

// Serve starts `serve` on a free port, and waits until it listens.
func (a Agent) Serve(ctx context.Context, args ...string) (*Server, error) {
	run, err := start(ctx, a.Path, append([]string{"serve", "--listen=127.0.0.1:0"}, args...)...)
	if err != nil {
		return nil, err
	}
	s := &Server{Run: run}
	if err := run.await("serve says where it listens", func() bool {
		s.URL = address.FindString(run.output.String())
		return s.URL != ""
	}); err != nil {
		_, stopped := run.Interrupt()
		return nil, errors.Join(err, stopped)
	}
	return s, nil
}

var address = regexp.MustCompile(`http://[0-9.]+:[0-9]+`)

// Get returns what a server answers, and ends the test if it does not.
func Get(t testing.TB, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
