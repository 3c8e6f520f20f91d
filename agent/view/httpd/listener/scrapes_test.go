package listener

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
)

// Clients that do not read what they ask for, on all connections that there may be, keep nobody
// from the metrics for longer than their answers are waited for.
func TestSlowScrapers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: connections are closed for others after a second")
	}
	large := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vmprof_large", Help: "Test."}, []string{"n"})
	for n := range 5_000 {
		large.WithLabelValues(strconv.Itoa(n))
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(large)
	ln, err := Listen("127.0.0.1:0", "", false, socketfile.Access{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	scrapes := NewScrapes(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	go func() { served <- ln.Serve(ctx, scrapes, slog.New(slog.DiscardHandler)) }()
	defer func() { stop(); <-served }()
	addr := ln.Addr().String()
	request := "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
	}}
	slow := func() {
		conn, err := small.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { conn.Close() })
		// Until it is closed: more answers than any buffer holds.
		go io.WriteString(conn, strings.Repeat(request, 1<<20))
	}
	for range maxConnections + 2*spareConnections {
		slow()
	}
	for i := range 3 {
		slow() // they come back
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
		resp, err := client.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Fatalf("scrape %d: %v", i, err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "vmprof_large") {
			t.Errorf("scrape %d: status %d, %v, %d bytes", i, resp.StatusCode, err, len(body))
		}
	}
}

// Those who ask while an answer is made share the next one, in each format; nobody gets one that
// was begun before.
func TestScrapesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		s := NewScrapes(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			made++
			w.Header().Set("Made", time.Now().Format(time.StampMilli)+r.Header.Get("Accept-Encoding"))
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, "metrics")
		}))
		answers := make(chan string)
		ask := func(encoding string) {
			r, w := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
			r.Header.Set("Accept-Encoding", encoding)
			s.ServeHTTP(w, r)
			if w.Code != http.StatusTeapot || w.Body.String() != "metrics" {
				t.Errorf("status %d, %q", w.Code, w.Body)
			}
			answers <- w.Header().Get("Made")
		}
		go ask("")
		synctest.Wait() // The first answer is being made.
		for range 5 {
			go ask("")
			go ask("deflate")
			go ask("zstd, gzip")
		}
		seen := map[string]int{}
		for range 16 {
			seen[<-answers]++
		}
		if made != 3 || len(seen) != 3 {
			t.Errorf("%d answers were made: %v", made, seen)
		}
	})
}
