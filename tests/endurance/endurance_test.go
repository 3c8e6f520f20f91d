package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

var built profiler.Agent

func TestMain(m *testing.M) { harness.RunTests(m, &built) }

// TestFlat: what the server holds for a JVM it gives back when the JVM has ended.
func TestFlat(t *testing.T) {
	needs.Root(t, "sampling")
	jdk := needs.JDK(t)
	classes, err := compile(t.Context(), jdk)
	if err != nil {
		t.Fatal(err)
	}
	s, err := startServer(t.Context(), built, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if output, err := s.Interrupt(); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
	})
	look := func() usage {
		u, err := s.usage()
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	run := func() {
		if err := live(t.Context(), jdk, classes, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, time.Minute, "it records", func() bool {
		status, _ := profiler.Get(t, s.URL+"/-/ready")
		return status == http.StatusOK
	})
	run()
	first := look()
	for range 2 {
		run()
		wait.For(t, time.Minute, fmt.Sprintf("it holds no more than after the first JVM: %v", first), func() bool {
			u := look()
			more := u.descriptors > first.descriptors
			for kind, n := range u.objects {
				more = more || n > first.objects[kind]
			}
			return !more
		})
	}
	if last := look(); last.samples == 0 || last.kernel > first.kernel+first.kernel/10 {
		t.Errorf("%v\nafter the first JVM: %v", last, first)
	}
}
