package probesite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// compiled matches a line of jcmd's Compiler.codelist: id, tier, state, method, and the addresses
// of its blob and its code.
var compiled = regexp.MustCompile(`^\s*\d+\s+(\d)\s+\d\s+Monitors\.([a-z]+)(\d)\(.*\[0x[0-9a-f]+, 0x([0-9a-f]+) - 0x([0-9a-f]+)\]`)

// Methods with a known number of monitors, as each compiler of each installed JDK makes them.
func TestLiveMonitorEnters(t *testing.T) {
	for _, version := range liveVersions {
		jdk := jdkOf(t, version)
		classes, err := jdk.Compile(t.Context(), jvm.Build{Sources: os.DirFS("testdata"),
			Only: []string{"Monitors.java"}, Release: jvm.MinVersion})
		if err != nil {
			t.Fatal(err)
		}
		for tier, flag := range map[string]string{
			"1": "-XX:TieredStopAtLevel=1", "3": "-XX:TieredStopAtLevel=3", "4": "-XX:TieredStopAtLevel=4",
		} {
			t.Run(fmt.Sprintf("%d/%s", version, tier), func(t *testing.T) {
				guest, err := jvm.Start(t.Context(), jvm.Command{
					JDK: jdk, Classpath: []string{classes}, Main: "Monitors",
					Flags: []string{"-Xmx64m", "-XX:+UseSerialGC", "-Xbatch", "-XX:CompileCommand=quiet",
						"-XX:CompileCommand=dontinline,Monitors::*", flag},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer guest.Close()
				checkMonitors(t, jdk, guest.PID(), tier)
			})
		}
	}
}

// checkMonitors looks for monitors in all compiled methods of a guest.
func checkMonitors(t *testing.T, jdk jvm.JDK, pid int, tier string) {
	list, err := exec.Command(filepath.Join(jdk.Home, "bin/jcmd"), strconv.Itoa(pid), "Compiler.codelist").Output()
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	seen := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		m := compiled.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		begin, _ := strconv.ParseUint(m[4], 16, 64)
		end, _ := strconv.ParseUint(m[5], 16, 64)
		code := make([]byte, end-begin)
		if _, err := memory.ReadAt(code, int64(begin)); err != nil {
			t.Fatal(err)
		}
		enters, err := MonitorEnters(code, begin, jdk.Version)
		if err != nil || strconv.Itoa(len(enters)) != m[3] {
			t.Errorf("%s at tier %s: %+v, %v, want %s", m[2], m[1], enters, err, m[3])
		}
		if m[1] == tier {
			seen[m[2]] = true
		}
	}
	for _, name := range []string{"method", "static", "block", "constant", "field", "nested", "none"} {
		if !seen[name] {
			t.Errorf("%s was not compiled at tier %s", name, tier)
		}
	}
}

// The busiest nmethods are searched again and again.
func BenchmarkMonitorEnters(b *testing.B) {
	m := readRecorded(b)[0]
	b.SetBytes(int64(len(m.code)))
	for b.Loop() {
		if _, err := MonitorEnters(m.code, m.address, m.release); err != nil {
			b.Fatal(err)
		}
	}
}
