package targets

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

func TestTargets(t *testing.T) {
	machine := []Candidate{
		{PID: 10, comm: "nginx", Workload: proc.Workload{Service: "nginx.service", Unit: "nginx.service"}},
		{PID: 20, comm: "java", java: true, Workload: proc.Workload{Service: "shop.service", Unit: "shop.service",
			Application: "shop", Main: "com.acme.shop.Main"}},
		{PID: 21, comm: "java", java: true, Workload: proc.Workload{Service: "com.acme.Orders",
			Application: "com.acme.Orders", Main: "com.acme.Orders"}},
		{PID: 22, comm: "java", java: true, Workload: proc.Workload{Service: "com.acme.Orders",
			Application: "com.acme.Orders", Main: "com.acme.Orders"}},
		{PID: 30, comm: "java", java: true, Workload: proc.Workload{Service: "3f4a9c0d7be1",
			ContainerID: "3f4a9c0d7be1"}},
		{PID: 31, comm: "java", java: true, Workload: proc.Workload{
			Service: "com.acme.Cart", Application: "com.acme.Cart", Container: "web", ContainerID: "aaaa9c0d7be1",
			Pod: "web-7d9f8b6c5-x2x4z"}},
		{PID: 40, comm: "bash", Workload: proc.Workload{Service: "bash"}},
		{PID: 41, comm: "3f4a", Workload: proc.Workload{Service: "3f4a"}},
		{PID: 50, comm: "java", java: true, Workload: proc.Workload{Service: "billing", Application: "billing",
			Main: "com.acme.Bill"}, others: []string{"billing", "invoices"}},
	}
	for _, test := range []struct {
		words string
		want  []int
		fails string
	}{
		{"4711", []int{4711}, ""},
		{"22 21 22", []int{21, 22}, ""},
		{"shop", []int{20}, ""},
		{"shop.service", []int{20}, ""},
		{"Main", []int{20}, ""},
		{"nginx shop", []int{10, 20}, ""},
		{"Order*", []int{21, 22}, ""},
		{"com.acme.O*", []int{21, 22}, ""},
		{"com.acme.*", []int{20, 21, 22, 31, 50}, ""},
		{"java*", []int{20, 21, 22, 30, 31, 50}, ""},
		{"billing", []int{50}, ""},
		{"invoices", []int{50}, ""},
		{"com.acme.Bill", []int{50}, ""},
		{"Bill", []int{50}, ""},
		{"unit:*", []int{10, 20}, ""},
		{"unit:shop", []int{20}, ""},
		{"unit:*.service 40", []int{10, 20, 40}, ""},
		{"container:3f4a*", []int{30}, ""},
		{"container:web", []int{31}, ""},
		{"container:*", []int{30, 31}, ""},
		{"web-7d9f8b6c5-x2x4z", []int{31}, ""},
		{"Orders", nil, "2 processes are called Orders: give one pid, or -p 21,22 for all of them\n       21  " +
			"com.acme.Orders, java\n       22"},
		{"unit:bash", nil, "no process is called unit:bash; running JVMs and services:\n       20  shop.service (shop, " +
			"com.acme.shop.Main), java\n"},
		{"unknown", nil, "\n       30  3f4a9c0d7be1, java\n"},
		{"0", nil, "-p 0: a pid is a positive number"},
		{"-3", nil, "-p -3: a pid is a positive number"},
		{"[", nil, "malformed pattern"},
	} {
		got, err := (&Flag{strings.Fields(test.words)}).pids(func() ([]Candidate, error) { return machine, nil })
		if !slices.Equal(got, test.want) || (err == nil) != (test.fails == "") || err != nil &&
			!strings.Contains(err.Error(), test.fails) {
			t.Errorf("-p %s: %v, %v", test.words, got, err)
		}
	}
	if got, err := (&Flag{}).pids(nil); got != nil || err != nil {
		t.Errorf("without words: %v, %v", got, err)
	}
	why := errors.New("no /proc")
	if _, err := (&Flag{[]string{"shop"}}).pids(func() ([]Candidate, error) { return nil, why }); !errors.Is(err,
		why) {
		t.Error(err)
	}
}

// A JVM is found by what people call it; the agent itself is not.
func TestProcesses(t *testing.T) {
	java := filepath.Join(t.TempDir(), "java")
	cat, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(java, cat, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(arguments ...string) int {
		// which waits for its input
		cmd := exec.CommandContext(t.Context(), java, append([]string{"--", "-"}, arguments...)...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); cmd.Wait() })
		// until the kernel has its arguments
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if arguments, err := proc.DefaultRoot.Arguments(cmd.Process.Pid); err != nil || len(arguments) > 0 {
				break
			}
		}
		return cmd.Process.Pid
	}
	shop := start("-jar", "/opt/shop.jar")
	// More arguments than are read, so that the main class is unknown.
	long := start(append(slices.Repeat([]string{"--add-opens", "-D" + strings.Repeat("x", 100<<10)}, 10),
		"com.acme.Main")...)
	all, err := processes(t.Context(), proc.DefaultRoot)
	if err != nil {
		t.Fatal(err)
	}
	byPID := map[int]Candidate{}
	for _, c := range all {
		byPID[c.PID] = c
	}
	if _, found := byPID[os.Getpid()]; found {
		t.Error("the agent finds itself")
	}
	if c := byPID[shop]; c.Application != "shop" || c.comm != "java" || !c.Matches("shop") {
		t.Errorf("shop is %+v", c)
	}
	if !IsRunning("shop") || IsRunning("no such process") {
		t.Error("shop is not running, or something else is")
	}
	if c := byPID[long]; !c.java || !c.Matches("java") || len(applications([]Candidate{c})) != 1 ||
		!strings.HasSuffix(c.String(), "java") {
		t.Errorf("a JVM with a megabyte of arguments is %+v", c)
	}
}

// A JVM has all of its names. One with more arguments than are read is a JVM nevertheless.
func TestApplicationNames(t *testing.T) {
	for _, test := range []struct{ command, environment, want string }{
		{"java com.acme.Shop", "", "com.acme.Shop"},
		{"java com.acme.Shop", "OTEL_SERVICE_NAME=checkout", "checkout com.acme.Shop"},
		{"java -Dspring.application.name=orders -jar /opt/shop-1.2.jar", "OTEL_SERVICE_NAME=checkout",
			"checkout orders shop"},
		{"java -Dspring.application.name=orders -jar orders.jar", "", "orders"},
		{"java -cp " + strings.Repeat("x", 10), "", ""},
	} {
		if got := strings.Join(proc.ApplicationNames(&proc.Launch{Arguments: strings.Fields(test.command),
			Environment: strings.Fields(test.environment)}), " "); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.environment, test.command, got, test.want)
		}
	}
	if line := (Candidate{PID: 7, comm: "java", Workload: proc.Workload{Service: "java"},
		java: true}).String(); strings.TrimSpace(line) != "7  java" {
		t.Errorf("%q", line)
	}
}
