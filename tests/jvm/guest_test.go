package jvm

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// echo answers each order with itself twice, "burn" after some work, and fails at "fail".
const echo = `
import java.util.Scanner;
class Echo {
    public static void main(String[] args) {
        System.out.println("ready pid " + ProcessHandle.current().pid());
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String line = in.nextLine();
            if (line.equals("fail")) {
                throw new IllegalStateException("told to fail");
            }
            if (line.equals("burn")) {
                for (long end = System.nanoTime() + 50_000_000; System.nanoTime() < end;) {}
            }
            System.out.println(line);
            System.out.println(line);
            System.out.println("done");
        }
    }
}`

func startEcho(t *testing.T) *Guest {
	t.Helper()
	jdk := require(t)
	classes, err := jdk.Compile(t.Context(), Build{
		Sources: fstest.MapFS{"Echo.java": {Data: []byte(echo)}},
		Release: MinVersion,
		Cache:   t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	guest, err := Start(t.Context(), Command{JDK: jdk, Classpath: []string{classes}, Main: "Echo"})
	if err != nil {
		t.Fatal(err)
	}
	return guest
}

func TestGuest(t *testing.T) {
	guest := startEcho(t)
	answer, err := guest.Order("hello there")
	if err != nil || !slices.Equal(answer, []string{"hello there", "hello there"}) {
		t.Errorf("got %q, %v", answer, err)
	}

	before, err := guest.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Order("burn"); err != nil {
		t.Fatal(err)
	}
	after, err := guest.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	if used := after - before; used <= 0 || used > time.Minute {
		t.Errorf("a busy guest used %v of CPU", used)
	}
	if err := guest.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestGuestThatFails(t *testing.T) {
	guest := startEcho(t)
	if _, err := guest.Order("fail"); err == nil {
		t.Error("a guest that failed answered")
	}
	err := guest.Close()
	if err == nil || !strings.Contains(err.Error(), "told to fail") {
		t.Errorf("got %v, want the guest's own words", err)
	}
}

func TestStartError(t *testing.T) {
	_, err := Start(t.Context(), Command{JDK: require(t), Flags: []string{"-XX:+NoSuchFlag"}, Main: "Echo"})
	if err == nil || !strings.Contains(err.Error(), "NoSuchFlag") {
		t.Errorf("got %v, want the JVM's complaint", err)
	}
}

func TestTail(t *testing.T) {
	var tail tail
	for range 3 {
		tail.Write([]byte(strings.Repeat("x", tailBytes)))
	}
	tail.Write([]byte("end"))
	if got := tail.String(); len(got) != tailBytes || !strings.HasSuffix(got, "xend") {
		t.Errorf("kept %d bytes that end in %q", len(got), got[len(got)-4:])
	}
}
