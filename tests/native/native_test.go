package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

func TestShort(t *testing.T) {
	needs.Root(t, "sampling")
	if runtime.GOARCH != "amd64" {
		t.Skip("only x86-64 has unwind tables")
	}
	harness.TestShort(t, run, "-short")
}

func TestReadScript(t *testing.T) {
	got, err := readScript(strings.NewReader(`
	ffffffff81000000 native_write_msr
	    7f0000001000 write@@GLIBC_2.2.5
	    5500000010f0 [unknown]
	    5500000011f0 main

	ffffffff81000000 kthread

	    5500000010f0 _start_main
`), aliases{"_start_main": "main"})
	if err != nil {
		t.Fatal(err)
	}
	if got.samples != 2 || got.stacks["write;?;main"] != 0 || got.stacks["main"] != 1 || got.depth() != 3 {
		t.Errorf("%+v", got)
	}
	if _, err := readScript(strings.NewReader("text\n"), nil); err == nil {
		t.Error("no error")
	}
}
