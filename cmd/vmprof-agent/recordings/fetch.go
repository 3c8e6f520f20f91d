package recordings

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// fetchPatience is how long a window of one second may take.
const fetchPatience = time.Minute

// IsURL reports whether an argument is an address of serve.
func IsURL(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") ||
		strings.HasPrefix(name, listener.SocketPrefix)
}

// A served is where serve answers.
type served struct {
	name   string // to show; without a password
	url    string
	socket string // path of the Unix socket to ask at; "" if that is the URL's host
}

// parseServed reads an address of serve: a URL, or unix:PATH, behind which may be :/profiles/alloc
// and the like.
func parseServed(name string) (s served, u *url.URL, err error) {
	at := name
	if socket, ok := strings.CutPrefix(name, listener.SocketPrefix); ok {
		var path string
		s.socket, path, _ = strings.Cut(socket, ":")
		at = "http://localhost" + path
	}
	if u, err = url.Parse(at); err != nil {
		return s, nil, cli.Misuse(fmt.Sprintf("%s is not a URL of serve: %v", name, err))
	}
	return s, u, nil
}

// withURL is the same address with a URL.
func (s served) withURL(u *url.URL) served {
	s.name, s.url = u.Redacted(), u.String()
	if s.socket != "" {
		s.name = listener.SocketPrefix + s.socket + ":" + u.RequestURI()
	}
	return s
}

// windowURL is where serve answers with a profile of the next second. An address without a path
// stands for the CPU time.
func windowURL(name string) (served, error) {
	s, u, err := parseServed(name)
	if err != nil {
		return s, err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/profiles/cpu"
	}
	q := u.Query()
	q.Set("seconds", "1")
	u.RawQuery = q.Encode()
	return s.withURL(u), nil
}

// pullSeconds is for how long serve records what report shows, unless the address says otherwise.
const pullSeconds = 10

// pullURL is where serve answers with a profile that a view of report can show, and how long that
// may take. An address without a path stands for what the view needs.
func pullURL(name, view string) (address served, patience time.Duration, err error) {
	s, u, err := parseServed(name)
	if err != nil {
		return s, 0, err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/profiles/" + pulledKind(view)
	}
	q := u.Query()
	seconds, err := strconv.Atoi(q.Get("seconds"))
	if err != nil || seconds <= 0 {
		seconds = pullSeconds
	}
	if !q.Has("seconds") && !q.Has("from") {
		q.Set("seconds", strconv.Itoa(seconds))
	}
	u.RawQuery = q.Encode()
	return s.withURL(u), time.Duration(min(seconds, 3600))*time.Second + fetchPatience, nil
}

// pulledKind is the kind of profile that a view needs.
func pulledKind(view string) string {
	content := viewContents[view]
	if view == "slow" || view == "timeline" {
		return profile.Wall.String()
	}
	if kind, ok := content.Events(); ok {
		return kind.String()
	}
	if content == sink.CallCounts {
		return "calls"
	}
	return "cpu"
}

// client makes requests of the address.
func (s served) client() *http.Client {
	if s.socket == "" {
		return http.DefaultClient
	}
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.socket)
		},
	}}
}

// fetchWindow gets one window. No error shows a password in the address.
func fetchWindow(ctx context.Context, address served) (named compare.Named, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.url, nil)
	if err != nil {
		return named, err
	}
	named.Name = address.name
	defer func() {
		if err != nil {
			err = fmt.Errorf("record %s: %w", named.Name, err)
		}
	}()
	response, err := address.client().Do(request)
	if err != nil {
		return named, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 200))
		return named, fmt.Errorf("%s: %q", response.Status, strings.TrimSpace(string(text)))
	}
	named.Profile, err = input.Read(response.Body)
	return named, err
}
