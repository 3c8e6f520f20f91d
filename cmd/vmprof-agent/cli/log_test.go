package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Warnings of one cause are one a minute, whichever processes they are about.
func TestWarnings(t *testing.T) {
	var b bytes.Buffer
	log := (&Log{format: "text"}).Logger(&b)
	for pid := range 100 {
		log.Warn("cannot read the VM", "pid", 4000+pid, "err", fmt.Errorf("process %d: libjvm.so has no vmStructs",
			4000+pid))
	}
	log.Warn("cannot read the VM", "pid", 1, "err", errors.New("permission denied"))
	log.With("source", "calls").Warn("cannot read the VM", "pid", 1, "err", errors.New("permission denied"))
	log.Error("broken")
	log.Error("broken")
	if n := strings.Count(b.String(), "level=WARN"); n != 3 || strings.Count(b.String(), "level=ERROR") != 2 {
		t.Errorf("%d warnings:\n%s", n, &b)
	}
	if strings.Contains(b.String(), "time=") || !strings.HasPrefix(b.String(),
		`level=WARN msg="cannot read the VM" pid=4000 `) {
		t.Errorf("%s", &b)
	}
	b.Reset()
	verbose := (&Log{format: "text", verbose: true}).Logger(&b)
	for range 3 {
		verbose.Warn("again")
	}
	if n := strings.Count(b.String(), "again"); n != 3 {
		t.Errorf("%d lines with -v", n)
	}
}

func TestWarningHistory(t *testing.T) {
	h := warningHistory{last: map[string]*warned{}}
	now := time.Unix(1000, 0)
	for i, test := range []struct {
		after time.Duration
		cause string
		more  int
		ok    bool
	}{
		{0, "a", 0, true}, {0, "b", 0, true}, {time.Second, "a", 0, false}, {30 * time.Second, "a", 0, false},
		{warnPause, "a", 2, true}, {0, "a", 0, false},
		{2 * warnPause, "a", 1, true}, {0, "b", 0, true},
	} {
		now = now.Add(test.after)
		if more, ok := h.next(test.cause, now); more != test.more || ok != test.ok {
			t.Errorf("%d: %d, %v", i, more, ok)
		}
	}
	for i := range 3 * maxCauses {
		h.next(fmt.Sprint(i), now)
	}
	if len(h.last) > maxCauses {
		t.Errorf("%d causes are remembered", len(h.last))
	}
}

func TestLogFormat(t *testing.T) {
	var b bytes.Buffer
	(&Log{format: "json"}).Logger(&b).Warn("cannot read", "pid", 7)
	var line struct {
		Time       time.Time
		Level, Msg string
		PID        int
	}
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line.Level != "WARN" || line.Msg != "cannot read" ||
		line.PID != 7 || line.Time.IsZero() {
		t.Errorf("%s: %+v, %v", &b, line, err)
	}
}
