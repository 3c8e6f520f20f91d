package httpd

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestEndpoints(t *testing.T) {
	s, hs := start(t, &fake{stats: profile.Stats{Ready: true, Uptime: 90 * time.Second}})
	s.Observe(shop(0))
	for _, tt := range []struct {
		path   string
		status int
		kind   string // prefix of Content-Type
		holds  string
	}{
		{"/", 200, "text/html", `<script defer src="assets/app.js?v=`},
		{"/plain", 200, "text/html", "up for 1m30s"},
		{"/plain", 200, "text/html", "postgres"},
		{"/metrics", 200, "text/plain", "vmprof_up 0"},
		{"/profiles/cpu?seconds=1", 200, "application/octet-stream", "\x1f\x8b"},
		{"/-/healthy", 200, "text/plain", "alive"},
		{"/-/ready", 200, "text/plain", "sampling"},
		{"/healthz", 200, "text/plain", "alive"},
		{"/ui/", 302, "", ""},
		{"/ui/flamegraph", 200, "text/html", "com.acme.shop.Cart.total"},
		{"/ui/top", 200, "text/html", "java.util.HashMap.getNode"},
		{"/ui/peek?f=HashMap", 200, "text/html", "java.util.HashMap.getNode"},
		{"/ui/download", 200, "application/vnd.google.protobuf+gzip", "\x1f\x8b"},
		{"/ui/top?f=(", 400, "text/plain", "error parsing regexp"},
		{"/nothing", 404, "text/plain", ""},
		{"/debug/pprof/", 404, "", ""},
		{"/debug/pprof/profile", 404, "", ""},
		{"/profiles/", 404, "", ""},
		{"/..%2f..%2fetc/passwd", 404, "", ""},
	} {
		t.Run(tt.path, func(t *testing.T) {
			resp, body := get(t, hs.URL+tt.path)
			if resp.StatusCode != tt.status || !strings.HasPrefix(resp.Header.Get("Content-Type"), tt.kind) ||
				!strings.Contains(body, tt.holds) {
				t.Errorf("got %d, %q and\n%.2000s\nwant %d, %q and %q", resp.StatusCode,
					resp.Header.Get("Content-Type"), body, tt.status, tt.kind, tt.holds)
			}
			for _, key := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Cache-Control"} {
				if resp.Header.Get(key) == "" {
					t.Errorf("no %s", key)
				}
			}
		})
	}
}

func TestNotReady(t *testing.T) {
	_, hs := start(t, &fake{})
	if resp, _ := get(t, hs.URL+"/-/ready"); resp.StatusCode != 503 {
		t.Errorf("/-/ready: %s, want 503", resp.Status)
	}
	if resp, _ := get(t, hs.URL+"/-/healthy"); resp.StatusCode != 200 {
		t.Errorf("/-/healthy: %s, want 200", resp.Status)
	}
	if _, body := get(t, hs.URL+"/plain"); !strings.Contains(body, "Not sampling yet") {
		t.Errorf("the front page does not say so:\n%s", body)
	}
}

// Nothing but reading.
func TestMethods(t *testing.T) {
	s, hs := start(t, new(fake))
	s.Observe(shop(0))
	for _, path := range []string{"/", "/plain", "/api/v1/flame", "/metrics", "/profiles/cpu", "/ui/top",
		"/-/healthy"} {
		for method, want := range map[string]int{"HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405, "PATCH": 405} {
			req, err := http.NewRequest(method, hs.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s %s: %d, want %d", method, path, resp.StatusCode, want)
			}
		}
		resp, err := http.Post(hs.URL+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("POST %s with a body: %d, want 400", path, resp.StatusCode)
		}
	}
}

// A profile that is being pulled when the agent stops is sent as far as it got.
func TestServeStops(t *testing.T) {
	f := &fake{hold: make(chan struct{})} // never let
	ln, err := listener.Listen("127.0.0.1:0", "", false, socketfile.Access{})
	if err != nil {
		t.Fatal(err)
	}
	addr, ended := ln.Addr().String(), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- newServer(t, f).Serve(ctx, ln) }()
	type answer struct {
		status int
		body   string
	}
	pulled := make(chan answer)
	go func() {
		resp, err := http.Get("http://" + addr + "/profiles/cpu?seconds=300")
		if err != nil {
			t.Error(err)
			pulled <- answer{}
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		pulled <- answer{resp.StatusCode, string(body)}
	}()
	wait.For(t, wait.Long, "the pull", func() bool { return len(f.called()) == 1 })
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if a := <-pulled; a.status != 200 || !strings.HasPrefix(a.body, "\x1f\x8b") {
		t.Errorf("the pull ended with %d and %.100q", a.status, a.body)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}
