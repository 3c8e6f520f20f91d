package main

import (
	"bytes"
	"errors"
	"testing"
)

// The bytes of a small archive, field by field, so that a change of one is seen.
func TestCPIO(t *testing.T) {
	var buf bytes.Buffer
	c := cpio{w: &buf}
	c.Dir("d")
	c.CharDevice("n", 1, 3)
	c.File("d/f", 0o755, []byte("hello"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	const z8 = "00000000"
	want := "070701" + "00000001" + "000041ED" + z8 + z8 + "00000001" + z8 + z8 + z8 + z8 + z8 + z8 + "00000002" + z8 +
		"d\x00" +
		"070701" + "00000002" + "00002180" + z8 + z8 + "00000001" + z8 + z8 + z8 + z8 + "00000001" + "00000003" +
		"00000002" + z8 + "n\x00" +
		"070701" + "00000003" + "000081ED" + z8 + z8 + "00000001" + z8 + "00000005" + z8 + z8 + z8 + z8 + "00000004" +
		z8 + "d/f\x00\x00\x00" +
		"hello\x00\x00\x00" +
		"070701" + "00000004" + z8 + z8 + z8 + "00000001" + z8 + z8 + z8 + z8 + z8 + z8 + "0000000B" + z8 +
		"TRAILER!!!\x00\x00\x00\x00"
	if got := buf.String(); got != want {
		t.Errorf("archive is\n%q, want\n%q", got, want)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestCPIOKeepsWriteError(t *testing.T) {
	c := cpio{w: failingWriter{}}
	c.File("f", 0o644, nil)
	if c.Close() == nil {
		t.Error("an archive on a full disk was closed without error")
	}
}
