package listener

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

func TestListen(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	passwords := write("good.yml", "basic_auth_users:\n  me: "+
		"$2a$04$vK3qQ/u6m0M1eEcQIoh5rOMMvQSrL4KdXSJ85cP8eWcGklKPGVeWC\n")
	empty := write("empty.yml", "")
	writeCertificate(t, dir)
	for _, tt := range []struct {
		address, config string
		insecure        bool
		says            string // empty: it listens
	}{
		{"127.0.0.1:0", "", false, ""},
		{"localhost:0", "", false, ""},
		{"127.9.9.9:0", "", false, ""},
		{":0", "", false, "--web.config.file"},
		{"0.0.0.0:0", "", false, "--web.allow-insecure"},
		{"[::]:0", "", false, "refuse --web.listen-address=[::]:0"},
		{"0.0.0.0:0", "", true, ""},
		{"0.0.0.0:0", passwords, false, ""},
		{"0.0.0.0:0", write("tls.yml", "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"), false, ""},
		{"0.0.0.0:0", empty, false, "empty.yml has neither"},
		{"0.0.0.0:0", empty, true, ""},
		{"127.0.0.1:0", empty, false, ""},
		{"0.0.0.0:0", write("headers.yml", "http_server_config:\n  http2: true\n"), false, "--web.allow-insecure"},
		{"0.0.0.0:0", write("nobody.yml", "basic_auth_users: {}\n"), false, "--web.allow-insecure"},
		{"127.0.0.1:0", filepath.Join(dir, "missing.yml"), false, "missing.yml"},
		{"127.0.0.1:0", write("bad.yml", "basic_auth_users:\n  me: plain\n"), false, "read --web.config.file="},
		{"127.0.0.1:0", write("typo.yml", "basic_auth: {}\n"), false, "basic_auth"},
		{"127.0.0.1", "", false, "HOST:PORT"},
		{"127.0.0.1:99999", "", false, "--web.listen-address=127.0.0.1:99999"},
		{"", "", false, "HOST:PORT"},
	} {
		ln, err := Listen(tt.address, tt.config, tt.insecure, socketfile.Access{})
		if err == nil {
			ln.Close()
		}
		switch {
		case tt.says == "" && err != nil:
			t.Errorf("Listen(%q, %q, %v): %v", tt.address, tt.config, tt.insecure, err)
		case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("Listen(%q, %q, %v): %v, want it to say %q", tt.address, tt.config, tt.insecure, err, tt.says)
		}
	}
}

func TestListenTaken(t *testing.T) {
	ln, err := Listen("127.0.0.1:0", "", false, socketfile.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if again, err := Listen(ln.Addr().String(), "", false, socketfile.Access{}); err == nil {
		again.Close()
		t.Error("two servers have one address")
	} else if !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("%v does not say that the address is taken", err)
	}
}

// A file that loses its protection while the server runs makes the server refuse, until it is
// mended.
func TestLostProtection(t *testing.T) {
	const users = "basic_auth_users:\n  me: $2a$04$vK3qQ/u6m0M1eEcQIoh5rOMMvQSrL4KdXSJ85cP8eWcGklKPGVeWC\n" // "test"
	const certificates = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
	dir := t.TempDir()
	roots := writeCertificate(t, dir)
	config := filepath.Join(dir, "web.yml")
	// Long ago, so that nobody takes it for half written.
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(config, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, before, after string
		status              int // after; 0: the connection is refused
	}{
		{"users to nothing", users, "", 503},
		{"users to no users", users, "basic_auth_users: {}\n", 503},
		{"users to certificates without TLS", users, certificates, 503},
		{"users to garbage", users, "{", 500},
		{"certificates to nothing", certificates, "", 0},
		{"both to certificates", users + certificates, certificates, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			write(tt.before)
			addr, _ := serve(t, config)
			url := "http://" + addr + "/-/healthy"
			if strings.Contains(tt.before, "tls") {
				url = "https://" + addr + "/-/healthy"
			}
			ask := func(password string) (status int) {
				// A connection of its own each time: some need a handshake.
				client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
					DisableKeepAlives: true}}
				req, err := http.NewRequest("GET", url, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.SetBasicAuth("me", password)
				resp, err := client.Do(req)
				if err != nil {
					return 0
				}
				resp.Body.Close()
				return resp.StatusCode
			}
			wait.For(t, wait.Long, "an answer", func() bool { return ask("test") == 200 })
			write(tt.after)
			if got := ask("guessed"); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			write(tt.before)
			if got := ask("test"); got != 200 {
				t.Errorf("status %d of the mended file", got)
			}
		})
	}
}

// A file that has just changed may have been read half by the library that asks for passwords.
func TestHalfWrittenConfig(t *testing.T) {
	config := filepath.Join(t.TempDir(), "web.yml")
	write := func(text string) {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("basic_auth_users:\n  me: x\n")
	l := &Listener{webConfig: config, protected: true}
	h := l.protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	began := time.Now()
	wait.For(t, wait.Long, "the file system's clock ticks", func() bool {
		write("basic_auth_users:\n  me: y\n")
		info, err := os.Stat(config)
		return err == nil && info.ModTime().After(began)
	})
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d just after a change", w.Code)
	}
	if err := os.Chtimes(config, time.Time{}, time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != 200 {
		t.Errorf("status %d later", w.Code)
	}
}
