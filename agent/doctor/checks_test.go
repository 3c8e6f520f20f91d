package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
)

// TestChecks breaks one thing after another in a healthy Env.
func TestChecks(t *testing.T) {
	kernel := func(release, machine string) func(*testing.T, *Env) {
		return func(_ *testing.T, env *Env) {
			env.Uname = func() (string, string, error) { return release, machine, nil }
		}
	}
	without := func(missing cap.Value, instead ...cap.Value) func(*testing.T, *Env) {
		return func(_ *testing.T, env *Env) {
			held := instead
			for _, c := range []cap.Value{cap.BPF, cap.PERFMON, cap.SYS_PTRACE, cap.DAC_READ_SEARCH, cap.SYSLOG,
				cap.CHECKPOINT_RESTORE} {
				if c != missing {
					held = append(held, c)
				}
			}
			env.Capable = capabilities(held...)
		}
	}
	file := func(name, content string) func(*testing.T, *Env) {
		return func(t *testing.T, env *Env) { setProc(t, env, name, content) }
	}
	remove := func(name string) func(*testing.T, *Env) {
		return func(_ *testing.T, env *Env) { os.RemoveAll(filepath.Join(env.Proc.String(), name)) }
	}
	lockdown := func(modes string) func(*testing.T, *Env) {
		return func(t *testing.T, env *Env) { setFile(t, env.Sys, "kernel/security/lockdown", modes) }
	}
	mounts := func(lines string) func(*testing.T, *Env) {
		return func(t *testing.T, env *Env) {
			setProc(t, env, "self/mounts", strings.ReplaceAll(lines, "/proc", env.Proc.String()))
		}
	}
	all := func(breaks ...func(*testing.T, *Env)) func(*testing.T, *Env) {
		return func(t *testing.T, env *Env) {
			for _, b := range breaks {
				b(t, env)
			}
		}
	}
	const hiddenSymbols = "0000000000000000 A fixed_percpu_data\n0000000000000000 T _text\n"

	for _, tt := range []struct {
		id, name string
		setup    func(*testing.T, *Env) // nil: healthy
		want     Status
		says     string // somewhere in detail, why or remedy
	}{
		{"kernel", "newer", nil, OK, "6.12.9-amd64"},
		{"kernel", "the oldest", kernel("6.1.0-18-amd64", "x86_64"), OK, "6.1.0"},
		{"kernel", "too old", kernel("6.0.19", "x86_64"), Missing, "Boot Linux 6.1"},
		{"kernel", "much too old", kernel("5.15.0-91-generic", "x86_64"), Missing, "Boot Linux 6.1"},
		{"kernel", "next major", kernel("7.0-rc1", "x86_64"), OK, "7.0-rc1"},
		{"kernel", "strange", kernel("unstable", "x86_64"), Limited, "no version"},

		{"architecture", "amd64", nil, OK, "x86_64"},
		{"architecture", "arm64", kernel("6.1.0", "aarch64"), Limited, "Java stacks are truncated"},
		{"architecture", "other", kernel("6.1.0", "riscv64"), Missing, "no BPF programs"},

		{"btf", "present", nil, OK, "present"},
		{"btf", "not there", func(_ *testing.T, env *Env) { env.Sys = "/nowhere" }, Missing, "CONFIG_DEBUG_INFO_BTF"},
		{"btf", "something else", func(t *testing.T, env *Env) { setFile(t, env.Sys, "kernel/btf/vmlinux", "\x7fELF") },
			Missing, "7f45"},

		{"lockdown", "none", nil, Info, "none"},
		{"lockdown", "integrity", lockdown("none [integrity] confidentiality\n"), Info, "no effect"},
		{"lockdown", "confidentiality", lockdown("none integrity [confidentiality]\n"), Info,
			"must not read kernel memory"},
		{"lockdown", "unknown", func(_ *testing.T, env *Env) { env.Sys = "/nowhere" }, Info, "unknown"},

		{"cap_bpf", "held", nil, OK, "held"},
		{"cap_bpf", "not held", without(cap.BPF), Missing, "cap_bpf"},
		{"cap_bpf", "included", without(cap.BPF, cap.SYS_ADMIN), OK, "CAP_SYS_ADMIN"},
		{"cap_bpf", "unknown", func(_ *testing.T, env *Env) {
			env.Capable = func(cap.Value) (bool, error) { return false, errors.New("no such capability") }
		}, Limited, "no such capability"},
		{"cap_perfmon", "held", nil, OK, "held"},
		{"cap_perfmon", "not held", without(cap.PERFMON), Missing, "cap_perfmon"},
		{"cap_perfmon", "included", without(cap.PERFMON, cap.SYS_ADMIN), OK, "CAP_SYS_ADMIN"},
		{"cap_sys_ptrace", "held", nil, OK, "held"},
		{"cap_sys_ptrace", "not included", without(cap.SYS_PTRACE, cap.SYS_ADMIN), Limited, "Java frames"},
		{"cap_dac_read_search", "held", nil, OK, "held"},
		{"cap_dac_read_search", "not included", without(cap.DAC_READ_SEARCH, cap.SYS_ADMIN), Limited, "symbols"},
		{"cap_syslog", "held", nil, OK, "held"},
		{"cap_syslog", "not held, but not needed", without(cap.SYSLOG), OK, "not held, and not needed"},
		{"cap_syslog", "not held", all(without(cap.SYSLOG), file("kallsyms", hiddenSymbols)), Limited, "cap_syslog"},

		{"cap_checkpoint_restore", "held", nil, OK, "held"},
		{"cap_checkpoint_restore", "not held", without(cap.CHECKPOINT_RESTORE), Limited, "cap_checkpoint_restore"},
		{"pid_namespace", "the host's", nil, OK, "the host's"},
		{"pid_namespace", "another", func(t *testing.T, env *Env) { setPIDNamespace(t, env, "pid:[4026532201]") },
			Missing, "--pid=host"},
		{"pid_namespace", "not understood", func(t *testing.T, env *Env) { setPIDNamespace(t, env, "pid") }, Info,
			"not understood"},
		{"after_start", "as a service", nil, OK,
			"keep CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_SYSLOG, CAP_CHECKPOINT_RESTORE; " +
				"no_new_privs"},
		{"after_start", "as root", without(0, cap.SYS_ADMIN, cap.SETPCAP), OK, "the bounding set is emptied"},
		{"after_start", "as root before 6.6", all(without(0, cap.SYS_ADMIN), func(_ *testing.T, env *Env) {
			env.UprobeMulti = fails(ebpf.ErrNotSupported)
		}), Info, "no uprobe.multi"},
		{"after_start", "as root on a paranoid kernel", all(without(0, cap.SYS_ADMIN), func(_ *testing.T, env *Env) {
			env.Without = func(cap.Value, func() error) error { return unix.EACCES }
		}), Info, "perf_event_paranoid"},

		{"bpf", "loads", nil, OK, "loads"},
		{"bpf", "refused", all(without(cap.BPF), func(_ *testing.T, env *Env) { env.LoadProgram = fails(unix.EPERM) }),
			Missing, "cap_bpf"},
		{"bpf", "refused with capabilities", func(_ *testing.T, env *Env) { env.LoadProgram = fails(unix.EPERM) },
			Missing, "seccomp"},
		{"bpf", "not there", func(_ *testing.T, env *Env) { env.LoadProgram = fails(unix.ENOSYS) }, Missing,
			"CONFIG_BPF_SYSCALL"},
		{"ring_buffer", "works", nil, OK, ""},
		{"ring_buffer", "refused", func(_ *testing.T, env *Env) { env.MakeRingBuffer = fails(unix.EPERM) }, Missing,
			"seccomp"},
		{"ring_buffer", "no memory", func(_ *testing.T, env *Env) { env.MakeRingBuffer = fails(unix.ENOMEM) }, Missing,
			"cgroup"},
		{"ring_buffer", "real-time", func(_ *testing.T, env *Env) {
			env.CheckRing = func(string) error { return attach.ErrRingSleeps }
		}, Missing, "6.12"},
		{"uprobe_multi", "works", nil, OK, ""},
		{"uprobe_multi", "not there", func(_ *testing.T, env *Env) { env.UprobeMulti = fails(ebpf.ErrNotSupported) },
			Limited, "Linux 6.6"},
		{"uprobe_multi", "not there, but CAP_SYS_ADMIN is", all(without(cap.SYSLOG, cap.SYS_ADMIN),
			func(_ *testing.T, env *Env) { env.UprobeMulti = fails(ebpf.ErrNotSupported) }), OK, "single uprobes"},
		{"uprobe_multi", "refused", func(_ *testing.T, env *Env) { env.UprobeMulti = fails(unix.EPERM) }, Limited,
			"seccomp"},
		{"uprobe_multi", "broken", func(_ *testing.T, env *Env) { env.UprobeMulti = fails(unix.ENOMEM) }, Limited,
			"trial failed"},

		{"memlock", "small", nil, Info, "8 MiB"},
		{"memlock", "unlimited", func(_ *testing.T, env *Env) {
			env.Memlock = func() (uint64, error) { return 1<<64 - 1, nil }
		}, Info, "unlimited"},

		{"perf_event_paranoid", "2", nil, OK, "2"},
		{"perf_event_paranoid", "-1", file("sys/kernel/perf_event_paranoid", "-1\n"), OK, "-1"},
		{"perf_event_paranoid", "3 on a kernel that knows it", all(file("sys/kernel/perf_event_paranoid", "3\n"),
			func(_ *testing.T, env *Env) { env.OpenEvent = events(unix.EACCES) }), Missing,
			"sysctl -w kernel.perf_event_paranoid=2"},
		{"perf_event_paranoid", "3 on one that does not", file("sys/kernel/perf_event_paranoid", "3\n"), OK,
			"treats as 2"},
		{"perf_event_paranoid", "4 with CAP_SYS_ADMIN", all(file("sys/kernel/perf_event_paranoid", "4\n"),
			without(cap.BPF, cap.SYS_ADMIN)), OK, "CAP_SYS_ADMIN"},
		{"perf_event_paranoid", "no perf events", remove("sys/kernel/perf_event_paranoid"), Missing,
			"CONFIG_PERF_EVENTS"},
		{"perf_event_paranoid", "garbage", file("sys/kernel/perf_event_paranoid", "two"), Missing, "two"},

		{"sampling", "works", nil, OK, "cpu-clock, on 4 CPUs"},
		{"sampling", "offline CPUs", func(_ *testing.T, env *Env) { env.OpenEvent = events(nil, 1, 2, 3) }, OK,
			"on 1 CPU"},
		{"sampling", "all offline", func(_ *testing.T, env *Env) { env.OpenEvent = events(nil, 0, 1, 2, 3) }, Missing,
			"no CPU"},
		{"sampling", "refused", all(without(cap.PERFMON), func(_ *testing.T,
			env *Env) {
			env.OpenEvent = events(unix.EACCES)
		}), Missing, "cap_perfmon"},
		{"sampling", "refused for paranoia", all(file("sys/kernel/perf_event_paranoid", "3\n"),
			func(_ *testing.T, env *Env) { env.OpenEvent = events(unix.EACCES) }), Missing,
			"sysctl -w kernel.perf_event_paranoid=2"},
		{"sampling", "no perf events", func(_ *testing.T, env *Env) { env.OpenEvent = events(unix.ENOSYS) }, Missing,
			"CONFIG_PERF_EVENTS"},
		{"sampling", "unknown CPUs", func(_ *testing.T, env *Env) {
			env.CPUs = func() (int, error) { return 0, fs.ErrNotExist }
		}, Missing, "/sys"},

		{"kallsyms", "visible", nil, OK, "visible"},
		{"kallsyms", "hidden", file("kallsyms", hiddenSymbols), Limited, "cap_syslog"},
		{"kallsyms", "hidden from all", all(file("kallsyms", hiddenSymbols), file("sys/kernel/kptr_restrict", "2\n")),
			Limited, "kptr_restrict=1"},
		{"kallsyms", "not there", remove("kallsyms"), Limited, "CONFIG_KALLSYMS"},

		{"ptrace_scope", "1 with CAP_SYS_PTRACE", nil, OK, "1"},
		{"ptrace_scope", "0", all(without(cap.SYS_PTRACE), file("sys/kernel/yama/ptrace_scope", "0\n")), OK, "0"},
		{"ptrace_scope", "1 without", without(cap.SYS_PTRACE), Limited, "cap_sys_ptrace"},
		{"ptrace_scope", "3", file("sys/kernel/yama/ptrace_scope", "3\n"), Limited, "cannot be lowered"},
		{"ptrace_scope", "no Yama", remove("sys/kernel/yama"), OK, "not active"},

		{"hidepid", "off", nil, OK, "off"},
		{"hidepid", "with CAP_SYS_PTRACE", mounts("proc /proc proc rw,hidepid=invisible 0 0\n"), OK, "invisible, with"},
		{"hidepid", "without", all(without(cap.SYS_PTRACE), mounts("proc /proc proc rw,gid=4,hidepid=2 0 0\n")),
			Limited, "hidden"},
		{"hidepid", "another mount", all(without(cap.SYS_PTRACE), mounts("proc /jail/proc proc rw,hidepid=2 0 0\n")),
			OK, "off"},
		{"local_users", "only root", nil, OK, "nobody but root"},
		{"local_users", "accounts", func(t *testing.T, env *Env) {
			setFile(t, filepath.Dir(env.Passwd), "passwd",
				"x\nbob:x:1001:1001::/home/bob:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/sh\ndaemon:x:1:1::/:/bin/sh\n")
		}, Info, "alice, bob"},
		{"local_users", "a login of no account here", func(t *testing.T, env *Env) {
			setProc(t, env, "1/loginuid", "4294967295\n")
			setProc(t, env, "2/loginuid", "0\n")
			setProc(t, env, "3/loginuid", "4711\n")
		}, Info, "user4711"},
		{"local_users", "many", func(t *testing.T, env *Env) {
			setFile(t, filepath.Dir(env.Passwd), "passwd", strings.Repeat("a:x:1000:1::/:/bin/sh\n", 2)+
				"b:x:1000:1::/:/bin/sh\nc:x:1000:1::/:/bin/sh\nd:x:1000:1::/:/bin/sh\ne:x:1000:1::/:/bin/sh\nf:x:1000:1::/:/bin/sh\n")
		}, Info, "a, b, c, d, e and 1 more"},
		{"local_users", "no list", func(t *testing.T, env *Env) { env.Passwd += ".missing" }, Info, "cannot find out"},
		{"hidepid", "mounted over", all(without(cap.SYS_PTRACE),
			mounts("proc /proc proc rw,hidepid=2 0 0\nproc /proc proc rw 0 0\n")), OK, "off"},
	} {
		t.Run(tt.id+"/"+tt.name, func(t *testing.T) {
			env := healthy(t)
			if tt.setup != nil {
				tt.setup(t, env)
			}
			r := checkNamed(t, tt.id).Run(t.Context(), env)
			if r.Status != tt.want {
				t.Errorf("status %q, want %q: %+v", r.Status, tt.want, r)
			}
			if text := strings.Join([]string{r.Detail, r.Why, r.Remedy}, "\n"); !strings.Contains(text, tt.says) {
				t.Errorf("does not say %q:\n%s", tt.says, text)
			}
			if r.Detail == "" {
				t.Error("does not say what was found")
			}
			if bad := r.Status == Missing || r.Status == Limited; bad && (r.Why == "" || r.Remedy == "") {
				t.Errorf("does not say why it matters or how to mend it: %+v", r)
			}
		})
	}
}

func checkNamed(t *testing.T, id string) Check {
	t.Helper()
	for _, c := range checks() {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("there is no check %q", id)
	return Check{}
}

func TestTitlesFit(t *testing.T) {
	for _, c := range checks() {
		if len(c.Title) > titleWidth-2 {
			t.Errorf("%q takes %d columns", c.Title, len(c.Title))
		}
	}
}
