package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseComm(t *testing.T) {
	for _, tt := range []struct{ name, file, want string }{
		{"plain", "java\n", "java"},
		{"newlines in it", "a\nb\n\n", "a?b?"},
		{"spaces in it", " G1 Conc#0 \n", " G1 Conc#0 "},
		{"escape sequence", "\x1b[2Jx\n", "?[2Jx"},
		{"not UTF-8", "a\xffb\n", "a?b"},
		{"cut in the middle of a character", "caf\xc3\n", "caf?"},
		{"right to left override", "a\u202eb\n", "a?b"},
		{"other scripts", "日本語\n", "日本語"},
		{"empty", "\n", ""},
		{"nothing", "", ""},
		{"long", strings.Repeat("é", 200) + "\n", strings.Repeat("é", maxName/2)},
	} {
		if got := parseComm([]byte(tt.file)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The kernel calls a program as its file is called, cut to fit.
func TestComm(t *testing.T) {
	want := filepath.Base(os.Args[0])
	want = want[:min(len(want), 15)]
	if got, err := Root("").Comm(os.Getpid()); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestThreads(t *testing.T) {
	pid := os.Getpid()
	tids, err := Root("").Threads(pid)
	if err != nil || !slices.Contains(tids, pid) || !slices.IsSorted(tids) {
		t.Fatalf("Threads = %v, %v; want this process's leader %d among them", tids, err, pid)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add([]byte("a\x1b[2J\xff\u202e日"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := printable(b)
		if !utf8.ValidString(s) || len(s) > maxName || strings.ContainsAny(s, "\n\r\x00\x1b") {
			t.Errorf("printable(%q) = %q", b, s)
		}
	})
}

const (
	hexID   = "3f4a9c0d7be1aa55f0c2d4e6f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b"
	shortID = "3f4a9c0d7be1"
)

func TestService(t *testing.T) {
	for _, tt := range []struct{ name, cgroup, want string }{
		{"unit", "0::/system.slice/nginx.service\n", "nginx.service"},
		{"part of a unit", "0::/system.slice/web.service/workers\n", "web.service"},
		{"unit of a user", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-ide.service\n", "app-ide.service"},
		{"session of a user", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope\n", "java"},
		{"login", "0::/user.slice/user-1000.slice/session-3.scope\n", "java"},
		{"Docker with systemd", "0::/system.slice/docker-" + hexID + ".scope\n", shortID},
		{"Docker with cgroupfs", "0::/docker/" + hexID + "\n", shortID},
		{"Kubernetes with containerd", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-" + hexID + ".scope\n", shortID},
		{"Kubernetes with cgroupfs", "0::/kubepods/besteffort/pod0a1b2c/" + hexID + "\n", shortID},
		{"containers below their runtime's unit", "0::/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" + hexID + "\n", shortID},
		{"Podman", "0::/machine.slice/libpod-" + hexID + ".scope/container\n", shortID},
		{"Podman started by a unit", "0::/system.slice/db.service/libpod-payload-" + hexID + "\n", "db.service"},
		{"unit inside a container", "0::/system.slice/docker-" + hexID + ".scope/system.slice/app.service\n", "app.service"},
		{"outside the agent's namespace", "0::/../../system.slice/nginx.service\n", "nginx.service"},
		{"version 1", "12:cpu,cpuacct:/system.slice\n4:memory:/system.slice/a.service\n1:name=systemd:/system.slice/b.service\n", "b.service"},
		{"version 1 without systemd", "4:memory:/docker/" + hexID + "\n3:cpuset:/\n", shortID},
		{"hybrid", "1:name=systemd:/system.slice/old.service\n0::/system.slice/new.service\n", "new.service"},
		{"colon in a name", "0::/system.slice/a:b.service\n", "a:b.service"},
		{"id of another length", "0::/jobs/" + hexID[:32] + "\n", "java"},
		{"id in capitals", "0::/docker/" + strings.ToUpper(hexID) + "\n", "java"},
		{"no more than the ending", "0::/system.slice/.service\n", "java"},
		{"hostile name", "0::/x/\x1b[2J.service\n", "?[2J.service"},
		{"root", "0::/\n", "java"},
		{"empty", "", "java"},
		{"garbage", "x\n::\n:::::\n0\n", "java"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Service([]byte(tt.cgroup), "", "java"); got != tt.want {
				t.Errorf("Service = %q, want %q", got, tt.want)
			}
			if strings.HasSuffix(tt.want, ".service") {
				return
			}
			if got := Service([]byte(tt.cgroup), "com.acme.Shop", "java"); got != "com.acme.Shop" {
				t.Errorf("Service of a JVM = %q", got)
			}
		})
	}
}

func TestCgroupOfThisProcess(t *testing.T) {
	b, err := Root("").Cgroup(os.Getpid())
	if err != nil || !strings.Contains(string(b), ":/") {
		t.Errorf("Cgroup = %q, %v", b, err)
	}
}

func FuzzService(f *testing.F) {
	f.Add([]byte("1:name=systemd:/system.slice/a.service\n0::/docker/"+hexID+"\n"), "java")
	f.Add([]byte("0::////.scope"), "")
	f.Fuzz(func(t *testing.T, cgroup []byte, comm string) {
		name := Service(cgroup, "", comm)
		if len(name) > maxName {
			t.Errorf("name of %d bytes", len(name))
		}
		if name == "" && comm != "" {
			t.Errorf("no name, although comm is %q", comm)
		}
	})
}
