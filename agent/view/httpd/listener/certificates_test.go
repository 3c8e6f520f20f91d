package listener

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), what)
}

// Files that TLS cannot be configured from refuse connections until they are mended. The log says
// so once for each change, and each time is counted.
func TestBadCertificate(t *testing.T) {
	const good = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
	dir := t.TempDir()
	roots := writeCertificate(t, dir)
	config := filepath.Join(dir, "web.yml")
	write := func(file, text string) { // at once: nobody sees a half of it
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	write("web.yml", good)
	certificate, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := Listen("127.0.0.1:0", config, false, socketfile.Access{})
	if err != nil {
		t.Fatal(err)
	}
	logged := new(lockedBuffer)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	logger := slog.New(slog.NewTextHandler(logged, nil))
	go func() { done <- ln.Serve(ctx, alive, logger) }()
	defer func() { cancel(); <-done }()

	// Only the handshake counts: of a file that has just changed, requests are refused for a
	// second.
	connect := func(trusted bool) error {
		tlsConfig := &tls.Config{}
		if trusted {
			tlsConfig.RootCAs = roots
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
		resp, err := client.Get("https://" + ln.Addr().String() + "/-/healthy")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	const refused, again = "level=ERROR msg=\"new TLS connections are refused", "TLS connections are accepted again"
	if err := connect(true); err != nil {
		t.Fatal(err)
	}
	if err := connect(false); err == nil { // a fault of the client's
		t.Fatal("a certificate that nobody signed is trusted")
	}
	if n := ln.TLSFailures(); n != 0 || logged.count(refused) != 0 {
		t.Errorf("%d failures of good files", n)
	}
	for i, tt := range []struct{ name, file, bad, mended, says string }{
		{"rubbish for a certificate", "cert.pem", "rubbish", string(certificate), "failed to find any PEM data"},
		{"half a certificate", "cert.pem", string(certificate[:len(certificate)/2]), string(certificate),
			"failed to find any PEM data"},
		{"rubbish for a configuration", "web.yml", "{", good, "yaml"},
		{"a configuration without TLS", "web.yml", "", good, "TLS config is not present"},
	} {
		write(tt.file, tt.bad)
		before := ln.TLSFailures()
		for range 3 {
			if connect(true) == nil {
				t.Errorf("%s: it is used", tt.name)
			}
		}
		wait.For(t, wait.Long, "three failures", func() bool { return ln.TLSFailures() >= before+3 })
		if n := logged.count(refused); n != i+1 {
			t.Errorf("%s: the log has %d errors, want %d", tt.name, n, i+1)
		}
		if logged.count(tt.says) == 0 {
			t.Errorf("%s: the log does not say %q", tt.name, tt.says)
		}
		write(tt.file, tt.mended)
		if err := connect(true); err != nil {
			t.Errorf("%s: mended, and %v", tt.name, err)
		}
		ln.certificates.look(logger)
		if n := logged.count(again); n != i+1 {
			t.Errorf("%s: the log has been told %d times that it is mended, want %d", tt.name, n, i+1)
		}
	}
}
