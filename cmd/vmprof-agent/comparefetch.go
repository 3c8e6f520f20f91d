package main

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
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

const (
	// lookEvery is how many windows are recorded between two looks of --until=decided.
	lookEvery = 5
	// fetchPatience is how long a window of one second may take.
	fetchPatience = time.Minute
)

// isURL reports whether an argument is an address of serve.
func isURL(name string) bool {
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
		return s, nil, usageError(fmt.Sprintf("%s is not a URL of serve: %v", name, err))
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

// compareURLs records two addresses of serve, both at the same time, and compares them.
func (o *compareOptions) compareURLs(ctx context.Context, stdout, stderr io.Writer) error {
	var urls [2]served
	for side := range urls {
		var err error
		if urls[side], err = windowURL(o.sides[side][0]); err != nil {
			return err
		}
	}
	if urls[0] == urls[1] {
		fmt.Fprintln(stderr, "A and B are the same address: a difference would be the noise of the comparison")
	}
	var sides [2][]compare.Named
	o.opts.Looks = o.until
	for n := 1; n <= int(o.duration/time.Second); n++ {
		next, err := fetchBoth(ctx, urls)
		if err != nil {
			return err
		}
		for side := range sides {
			sides[side] = append(sides[side], next[side])
		}
		if o.until && n >= leastRecording && n%lookEvery == 0 {
			verdict, err := compare.Audit(io.Discard, sides[0], sides[1], &o.opts)
			if err != nil {
				return fmt.Errorf("compare profiles: %w", err)
			}
			if verdict != audit.Undecided {
				fmt.Fprintf(stderr, "decided after %d s\n", n)
				break
			}
		}
	}
	if _, err := compare.Audit(stdout, sides[0], sides[1], &o.opts); err != nil {
		return fmt.Errorf("compare profiles: %w", err)
	}
	return nil
}

// fetchBoth records the next second of both sides.
func fetchBoth(ctx context.Context, urls [2]served) (both [2]compare.Named, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	type answer struct {
		side  int
		named compare.Named
		err   error
	}
	answers := make(chan answer, len(urls))
	for side, address := range urls {
		go func() {
			named, err := fetchWindow(ctx, address)
			answers <- answer{side, named, err}
		}()
	}
	for range urls {
		a := <-answers
		if a.err != nil && err == nil { // the other side's may only be that it was cancelled
			err = a.err
			cancel()
		}
		both[a.side] = a.named
	}
	return both, err
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
	named.Profile, err = report.Read(response.Body)
	return named, err
}
