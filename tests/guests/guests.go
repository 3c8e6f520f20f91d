// Package guests runs Java programs whose profile is known, because they measure themselves.
//
//	guest, err := guests.Start(ctx, jdk, program, flavour)
//	... record ...
//	truth, err := guest.Truth(began, ended)
//
// Each program does some kinds of work in turn. It records in a ledger when each piece was done and
// how much CPU time it took, by its thread's own clock. No work is calibrated: whatever else the
// machine does, the guest knows where its time went.
package guests

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

//go:embed java/guest java/calls
var sources embed.FS

// A Guest is a running program.
type Guest struct {
	*jvm.Guest
}

// Main is the class that runs the program named by its argument.
const Main = "guest.Main"

// Compile compiles the programs unless that was done before, and returns the directory of their
// classes.
func Compile(ctx context.Context, jdk jvm.JDK) (classes string, err error) {
	java, err := fs.Sub(sources, "java")
	if err != nil {
		return "", err
	}
	if classes, err = jdk.Compile(ctx, jvm.Build{Sources: java, Release: jvm.MinVersion}); err != nil {
		return "", fmt.Errorf("compile guests: %w", err)
	}
	return classes, nil
}

// Old are the sources that JDK 8 can run.
var old = []string{
	"guest/Allocating.java", "guest/Away.java", "guest/Burn.java", "guest/Carried.java", "guest/Crew.java",
	"guest/Events.java", "guest/Steered.java", "guest/Throwing.java",
	"guest/Versions.java", "guest/Waiting.java", "guest/Working.java",
}

// CompileOld compiles those programs that JDK 8 can run.
func CompileOld(ctx context.Context, jdk jvm.JDK) (classes string, err error) {
	java, err := fs.Sub(sources, "java")
	if err != nil {
		return "", err
	}
	if classes, err = jdk.Compile(ctx, jvm.Build{Sources: java, Only: old, Release: 8}); err != nil {
		return "", fmt.Errorf("compile guests for JDK 8: %w", err)
	}
	return classes, nil
}

// Start starts a program. The guest ends when ctx is done.
func Start(ctx context.Context, jdk jvm.JDK, program Program, flavour Flavour) (*Guest, error) {
	compiler, err := jdk, error(nil)
	if jdk.Root != "" { // it has none
		if compiler, err = jvm.Oldest(); err != nil {
			return nil, err
		}
	}
	classes, err := Compile(ctx, compiler)
	if err != nil {
		return nil, err
	}
	guest, err := jvm.Start(ctx, jvm.Command{
		JDK:       jdk,
		Flags:     slices.Concat(flavour.Flags, program.Flags),
		Classpath: []string{classes},
		Main:      Main,
		Args:      []string{program.Class},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program.Name, err)
	}
	return &Guest{Guest: guest}, nil
}

// Await returns what the guest has done since then, once it has done some of every kind of its
// work. On a busy machine that may take long. It fails when ctx is done.
func (g *Guest) Await(ctx context.Context, since time.Time) (Truth, error) {
	return g.await(ctx, since, Truth.whole)
}

// await returns what the guest has done since then, once enough reports true.
func (g *Guest) await(ctx context.Context, since time.Time, enough func(Truth) bool) (Truth, error) {
	for {
		truth, err := g.Truth(since, time.Now())
		if err == nil && enough(truth) {
			return truth, nil
		}
		if err != nil && !errors.Is(err, errIdle) {
			return Truth{}, err
		}
		select {
		case <-ctx.Done():
			return truth, fmt.Errorf("wait for the guest to work: %w; so far %+v, %v", ctx.Err(), truth, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Truth returns what the guest did between two moments.
func (g *Guest) Truth(from, to time.Time) (Truth, error) {
	lines, err := g.Order(fmt.Sprintf("truth %d %d", from.UnixMilli(), to.UnixMilli()))
	if err != nil {
		return Truth{}, err
	}
	return parseTruth(lines)
}
