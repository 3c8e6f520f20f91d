// Package guests runs Java programs whose profile is known, because they measure themselves.
//
//	guest, err := guests.Start(ctx, jdk, program, flavour)
//	guest.Reset()
//	... record ...
//	truth, err := guest.Truth()
//
// Each program does some kinds of work in turn, reads its threads' CPU clocks around every piece, and adds up what each
// kind took. No work is calibrated: whatever the machine does meanwhile, the guest knows where its time went.
package guests

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

//go:embed java
var sources embed.FS

// release is the Java version that the programs are written in, and so the oldest JDK that runs them.
const release = 17

// A Guest is a running program.
type Guest struct {
	*jvm.Guest
}

// Start compiles the programs if need be, and starts one. The guest ends when ctx is done.
func Start(ctx context.Context, jdk jvm.JDK, program Program, flavour Flavour) (*Guest, error) {
	cache, err := jvm.CacheDir()
	if err != nil {
		return nil, err
	}
	java, err := fs.Sub(sources, "java")
	if err != nil {
		return nil, err
	}
	classes, err := jdk.Compile(ctx, jvm.Build{Sources: java, Release: release, Cache: cache})
	if err != nil {
		return nil, fmt.Errorf("compile guests: %w", err)
	}
	guest, err := jvm.Start(ctx, jvm.Command{
		JDK:       jdk,
		Flags:     slices.Concat(flavour.Flags, program.Flags),
		Classpath: []string{classes},
		Main:      "guest.Main",
		Args:      []string{program.Class},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program.Name, err)
	}
	return &Guest{Guest: guest}, nil
}

// Reset has the guest forget what it measured: a recording begins.
func (g *Guest) Reset() error {
	_, err := g.Order("reset")
	return err
}

// Truth returns what the guest measured since the last reset.
func (g *Guest) Truth() (Truth, error) {
	lines, err := g.Order("truth")
	if err != nil {
		return Truth{}, err
	}
	return parseTruth(lines)
}
