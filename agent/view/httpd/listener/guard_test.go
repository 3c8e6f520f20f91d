package listener

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLocalHost(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})
	for _, tt := range []struct {
		listens, host string
		want          int
	}{
		{"127.0.0.1", "127.0.0.1:9464", 200},
		{"127.0.0.1", "localhost:9464", 200},
		{"127.0.0.1", "LocalHost", 200},
		{"127.0.0.1", "127.1.2.3", 200},
		{"127.0.0.1", "[::1]:8080", 200}, // a tunnel
		{"::1", "[::1]", 200},
		{"127.0.0.1", "evil.example:9464", 421},
		{"127.0.0.1", "localhost.evil.example", 421},
		{"127.0.0.1", "10.0.0.1:9464", 421},
		{"127.0.0.1", "0.0.0.0:9464", 421},
		{"127.0.0.1", "", 421},
		{"::1", "127.0.0.1.evil.example", 421},
		{"0.0.0.0", "agent.example:9464", 200},
		{"10.0.0.1", "10.0.0.1:9464", 200},
	} {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest("GET", "/", nil)
		req.Host = tt.host
		localHost(&net.TCPAddr{IP: net.ParseIP(tt.listens), Port: 9464}, ok).ServeHTTP(rec, req)
		if rec.Code != tt.want {
			t.Errorf("listening on %s, asked for %q: %d, want %d", tt.listens, tt.host, rec.Code, tt.want)
		}
	}
}

// A handler that panics is answered and logged, with the place, and the server goes on.
func TestCaught(t *testing.T) {
	var log bytes.Buffer
	rec := httptest.NewRecorder()
	failed := 0
	h := caught(slog.New(slog.NewTextHandler(&log, nil)), func() { failed++ },
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("betainc") }))
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/api/v1/services", nil))
	if text := log.String(); rec.Code != 500 || failed != 1 || !strings.Contains(text, "level=ERROR") ||
		!strings.Contains(text, "betainc") || !strings.Contains(text, "/api/v1/services") ||
		!strings.Contains(text, "TestCaught") {
		t.Errorf("%d, %s", rec.Code, text)
	}
}
