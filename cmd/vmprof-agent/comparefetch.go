package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report"
	"github.com/vmprof-agent/vmprof-agent/agent/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

const (
	// lookEvery is how many windows are recorded between two looks of --until=decided.
	lookEvery = 5
	// fetchPatience is how long a window of one second may take.
	fetchPatience = time.Minute
)

// isURL reports whether an argument is an address of serve.
func isURL(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// windowURL is where serve answers with a profile of the next second. An address without a path stands for the CPU time.
func windowURL(name string) (string, error) {
	u, err := url.Parse(name)
	if err != nil {
		return "", usageError(fmt.Sprintf("%s is no URL of serve: %v", name, err))
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/profiles/cpu"
	}
	q := u.Query()
	q.Set("seconds", "1")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// pullSeconds is for how long serve records what report shows, unless the address says otherwise.
const pullSeconds = 10

// pullURL is where serve answers with a profile that a view of report can show, and how long that may take. An address without a path stands for
// what the view needs.
func pullURL(name, view string) (address string, patience time.Duration, err error) {
	u, err := url.Parse(name)
	if err != nil {
		return "", 0, usageError(fmt.Sprintf("%s is no URL of serve: %v", name, err))
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
	return u.String(), time.Duration(min(seconds, 3600))*time.Second + fetchPatience, nil
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
	var urls [2]string
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
func fetchBoth(ctx context.Context, urls [2]string) (both [2]compare.Named, err error) {
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

// fetchWindow gets one window. No error shows a password in the address.
func fetchWindow(ctx context.Context, address string) (named compare.Named, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return named, err
	}
	named.Name = request.URL.Redacted()
	defer func() {
		if err != nil {
			err = fmt.Errorf("record %s: %w", named.Name, err)
		}
	}()
	response, err := http.DefaultClient.Do(request)
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
