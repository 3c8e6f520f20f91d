package httpd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	passwords := write("good.yml", "basic_auth_users:\n  me: $2a$04$vK3qQ/u6m0M1eEcQIoh5rOMMvQSrL4KdXSJ85cP8eWcGklKPGVeWC\n")
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
		{"[::]:0", "", false, "refuse --listen=[::]:0"},
		{"0.0.0.0:0", "", true, ""},
		{"0.0.0.0:0", passwords, false, ""},
		{"127.0.0.1:0", filepath.Join(dir, "missing.yml"), false, "missing.yml"},
		{"127.0.0.1:0", write("bad.yml", "basic_auth_users:\n  me: plain\n"), false, "read --web.config.file="},
		{"127.0.0.1:0", write("typo.yml", "basic_auth: {}\n"), false, "basic_auth"},
		{"127.0.0.1", "", false, "HOST:PORT"},
		{"127.0.0.1:99999", "", false, "--listen=127.0.0.1:99999"},
		{"", "", false, "HOST:PORT"},
	} {
		ln, err := Listen(tt.address, tt.config, tt.insecure)
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
	ln, err := Listen("127.0.0.1:0", "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if again, err := Listen(ln.Addr().String(), "", false); err == nil {
		again.Close()
		t.Error("two servers have one address")
	} else if !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("%v does not say that the address is taken", err)
	}
}
