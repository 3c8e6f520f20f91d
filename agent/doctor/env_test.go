package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// healthy is an Env in which every check is ok. Tests break it.
func healthy(t *testing.T) *Env {
	t.Helper()
	dir := t.TempDir()
	env := &Env{
		Runtimes: runtimes.Table(),
		Proc:     proc.Root(filepath.Join(dir, "proc")),
		Sys:      filepath.Join(dir, "sys"),
		Passwd:   filepath.Join(dir, "passwd"),
		Program:  "/usr/bin/vmprof-agent",
		Uname:    func() (string, string, error) { return "6.12.9-amd64", "x86_64", nil },
		Capable: capabilities(cap.BPF, cap.PERFMON, cap.SYS_PTRACE, cap.DAC_READ_SEARCH, cap.SYSLOG,
			cap.CHECKPOINT_RESTORE),
		Without:        func(_ cap.Value, try func() error) error { return try() },
		Memlock:        func() (uint64, error) { return 8 << 20, nil },
		UserName:       func(uid uint32) string { return "user" + strconv.Itoa(int(uid)) },
		LoadProgram:    works,
		MakeRingBuffer: works,
		CheckRing:      func(string) error { return nil },
		Memory:         func() (uint64, uint64, error) { return 12e6, 20e6, nil },
		UprobeMulti:    works,
		CPUs:           func() (int, error) { return 4, nil },
		OpenEvent:      func(int) error { return nil },
		GuestSocket:    filepath.Join(dir, "run/vmprof-agent/guest.sock"),
		MapPage:        works,
		Pool:           proc.NewPool(proc.PoolOptions{}),
	}
	setFile(t, dir, "passwd",
		"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\nshop:x:1001:1001::/srv/shop:/bin/false\n")
	setFile(t, env.Sys, "kernel/btf/vmlinux", "\x9f\xeb\x01\x00")
	setFile(t, env.Sys, "kernel/security/lockdown", "[none] integrity confidentiality\n")
	setProc(t, env, "sys/kernel/perf_event_paranoid", "2\n")
	setProc(t, env, "kallsyms", "0000000000000000 A fixed_percpu_data\nffffffff81000000 T _text\n")
	setProc(t, env, "sys/kernel/kptr_restrict", "1\n")
	setProc(t, env, "sys/kernel/yama/ptrace_scope", "1\n")
	setProc(t, env, "self/mounts", "proc "+env.Proc.String()+" proc rw,nosuid 0 0\n")
	setPIDNamespace(t, env, "pid:[4026531836]")
	return env
}

// setPIDNamespace has the agent be in a namespace.
func setPIDNamespace(t *testing.T, env *Env, name string) {
	t.Helper()
	dir := filepath.Join(env.Proc.String(), "self/ns")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, "pid"))
	if err := os.Symlink(name, filepath.Join(dir, "pid")); err != nil {
		t.Fatal(err)
	}
}

func works() error { return nil }

// fails is a trial that ends with that error.
func fails(err error) func() error { return func() error { return err } }

// capabilities is a Capable that holds just these.
func capabilities(held ...cap.Value) func(cap.Value) (bool, error) {
	return func(c cap.Value) (bool, error) {
		for _, h := range held {
			if h == c {
				return true, nil
			}
		}
		return false, nil
	}
}

// events is an OpenEvent that answers err, nil for success, but for CPUs that are offline.
func events(err error, offline ...int) func(int) error {
	return func(cpu int) error {
		for _, o := range offline {
			if o == cpu {
				return unix.ENODEV
			}
		}
		return err
	}
}

func setProc(t *testing.T, env *Env, name, content string) {
	t.Helper()
	setFile(t, env.Proc.String(), name, content)
}

func setFile(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// addProcess makes a process in env's procfs. Its maps are lines of /proc/PID/maps.
func addProcess(t *testing.T, env *Env, pid int, comm string, flags int, maps ...string) {
	t.Helper()
	id := strconv.Itoa(pid)
	setProc(t, env, id+"/stat", id+" ("+comm+") S 1 1 1 0 -1 "+strconv.Itoa(flags)+
		" 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n")
	setProc(t, env, id+"/status", "Tgid:\t"+id+"\nUid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\nNSpid:\t"+id+"\n")
	setProc(t, env, id+"/comm", comm+"\n")
	setProc(t, env, id+"/maps", strings.Join(maps, "\n"))
}
