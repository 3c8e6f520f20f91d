package listener

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
)

// alive answers every request, as the agent does.
var alive = Guard(slog.New(slog.DiscardHandler), func() {},
	http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

// serve runs a server. stop ends it and returns what Serve returned.
func serve(t *testing.T, webConfig string) (addr string, stop func() error) {
	t.Helper()
	ln, err := Listen("127.0.0.1:0", webConfig, false, socketfile.Access{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ln.Serve(ctx, alive, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(cancel)
	return ln.Addr().String(), func() error { cancel(); return <-done }
}

func TestServeStopsAtOnce(t *testing.T) {
	ln, err := Listen("127.0.0.1:0", "", false, socketfile.Access{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ln.Serve(ctx, alive, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

func TestServeGuards(t *testing.T) {
	addr, _ := serve(t, "")
	for _, tt := range []struct {
		name, request, want string
	}{
		{"rebound name", "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 421 "},
		{"proper name", "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 "},
		{"header too large", "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 2*maxHeaderBytes) +
			"\r\n\r\n", "HTTP/1.1 431 "},
		// The rest of the body never comes, and the server does not wait for it.
		{"body", "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx", "HTTP/1.1 400 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, tt.request); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(tt.want))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != tt.want {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
			if tt.name == "body" {
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Errorf("the connection was not closed in an orderly way: %v", err)
				}
			}
		})
	}
}

func TestServeWithTLSAndPassword(t *testing.T) {
	dir := t.TempDir()
	roots := writeCertificate(t, dir)
	config := filepath.Join(dir, "web.yml")
	// The password is "test".
	err := os.WriteFile(config, fmt.Appendf(nil,
		"tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\nbasic_auth_users:\n  me: %s\n",
		"$2a$04$vK3qQ/u6m0M1eEcQIoh5rOMMvQSrL4KdXSJ85cP8eWcGklKPGVeWC"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	addr, stop := serve(t, config)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	for password, want := range map[string]int{"": 401, "wrong": 401, "test": 200} {
		req, err := http.NewRequest("GET", "https://"+addr+"/-/healthy", nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("me", password)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("password %q: %s, want %d", password, resp.Status, want)
		}
	}
	client.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// writeCertificate makes cert.pem and key.pem for 127.0.0.1, signed by itself.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: cert},
		"key.pem":  {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool
}

// At a Unix socket only those can ask who may connect, and each user has a bound of wrong
// passwords.
func TestServeOnSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "http.sock")
	ln, err := Listen("unix:"+path, "", false, socketfile.Access{UID: -1, GID: -1, Mode: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := Listen("unix:"+path, "", false, socketfile.Access{}); err == nil ||
		!strings.Contains(err.Error(), "--web.listen-address=unix:"+path) {
		t.Errorf("two agents have one socket: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- ln.Serve(ctx, alive, slog.New(slog.DiscardHandler)) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	resp, err := client.Get("http://any.name/-/healthy")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, want := userOf(conn.(*net.UnixConn)), fmt.Sprint(os.Getuid()); got != want {
		t.Errorf("the server is the user %s, want %s", got, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there")
	}
}
