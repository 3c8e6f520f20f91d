package self

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// The lowest limit of the cgroup and of those above it counts, in both versions, in containers and
// on hosts.
func TestCgroupLimit(t *testing.T) {
	const (
		v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1 = "35 23 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n36 23 0:32 / /sys/fs/cgroup/cpu " +
			"rw - cgroup cgroup rw,cpu\n"
		docker = "35 23 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
		none   = "9223372036854771712" // as version 1 says it
	)
	for name, tt := range map[string]struct {
		cgroup, mounts string
		files          map[string]string
		want           int64
	}{
		"version 2": {"0::/system.slice/vmprof-agent.service\n", v2,
			map[string]string{"system.slice/vmprof-agent.service/memory.max": "268435456"}, 256 << 20},
		"version 2, above": {"0::/a/b\n", v2, map[string]string{"a/memory.max": "1048576", "a/b/memory.max": "max"},
			1 << 20},
		"version 2, no max": {"0::/a\n", v2, map[string]string{"a/memory.max": "max"}, math.MaxInt64},
		"namespace":         {"0::/\n", v2, map[string]string{"memory.max": "4096"}, 4096},
		"version 1": {"4:memory:/x\n2:cpu:/y\n", v1, map[string]string{"memory/x/memory.limit_in_bytes": "4096",
			"memory/memory.limit_in_bytes": none}, 4096},
		"version 1, none": {"4:memory:/x\n", v1, map[string]string{"memory/x/memory.limit_in_bytes": none},
			math.MaxInt64},
		"version 1, docker": {"4:memory:/docker/abc\n", docker,
			map[string]string{"memory/memory.limit_in_bytes": "8192"}, 8192},
		"both": {"4:memory:/x\n0::/\n", v1 + v2,
			map[string]string{"memory/x/memory.limit_in_bytes": "4096"}, 4096},
		"no cgroups": {"", "", nil, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			process, root := t.TempDir(), t.TempDir()
			write := func(path, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write(filepath.Join(process, "cgroup"), tt.cgroup)
			write(filepath.Join(process, "mountinfo"), tt.mounts)
			for path, text := range tt.files {
				write(filepath.Join(root, "sys/fs/cgroup", path), text+"\n")
			}
			got, err := cgroupLimit(process, root)
			if err != nil || got != tt.want {
				t.Errorf("%d, %v; want %d", got, err, tt.want)
			}
		})
	}
	if _, err := cgroupLimit(t.TempDir(), ""); err == nil {
		t.Error("no error where there is no procfs")
	}
}

func TestMaxContexts(t *testing.T) {
	for heap, want := range map[int64]int{
		math.MaxInt64: agent.DefaultMaxContexts, 350 * 500_000: 500_000, 1 << 20: 1 << 16, 0: 1 << 16,
	} {
		if got := contextsIn(heap); got != want {
			t.Errorf("contextsIn(%d) = %d, want %d", heap, got, want)
		}
	}
}
