package stored

import "testing"

func TestThreadGroup(t *testing.T) {
	for thread, want := range map[string]string{
		"http-nio-8080-exec-7": "http-nio-8080-exec-*", "pool-1-thread-12": "pool-1-thread-*",
		"GC Thread#0": "GC Thread#*", "C2 CompilerThread0": "C2 CompilerThread*",
		"http-nio-8080-Acceptor": "http-nio-8080-Acceptor", "main": "main", "": "", "12": "12",
	} {
		if got := ThreadGroup(thread); got != want {
			t.Errorf("%s: %s, want %s", thread, got, want)
		}
	}
}
