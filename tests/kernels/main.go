// Command kernels runs tests on Debian's kernels, each booted in an emulated machine. It needs no
// KVM, no privilege, and only qemu-system-x86 and apt installed. First, the tests that need a
// kernel and no guest:
//
//	go run ./tests/kernels -kernels 6.1,6.12
//
// It packs the test binary of every package with a TestKernel function, the generated BPF objects
// of the others, and an init into an initramfs and boots each kernel with it. It fails unless these
// objects were loaded, every test binary ran and passed, and the kernel reported no fault.
//
// Kernels of which this machine's Debian has no package are given by their file, such as a 6.6 of
// another distribution, or asked for as the newest one that Debian has at all:
//
//	go run ./tests/kernels -kernels newest,/path/to/bzImage,/path/to/linux-image.deb
//
// With a JDK, live tests:
//
//	go run ./tests/kernels -kernels 6.1,6.12 -jdk 17 -run 'TestRecord(OffCPU|Wall)$' ./tests
//
// The machine's root is a disk then, with this machine's JDK and its libraries, the agent, and
// guests. It has no compiler, so tests that need one are skipped.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/kernels/observed"
)

func main() {
	var rig rig
	flag.StringVar(&rig.Series, "kernels", "6.1,6.12",
		"`kernels` to boot, separated by commas: a series of this machine's Debian; \"newest\": the newest in "+
			"Debian; or the path of "+
			"a bzImage, or of a Debian package with one")
	flag.StringVar(&rig.Cache, "cache", "",
		"`directory` for downloaded kernels (default: vmprof-agent/kernels in the user's cache)")
	flag.StringVar(&rig.JDKs, "jdk", "",
		"run live tests, on JDKs of these `versions`, separated by commas; \"oldest\" is the oldest here")
	flag.StringVar(&rig.Only, "run", "^TestKernel", "run tests that match this `pattern`")
	flag.StringVar(&rig.Skip, "skip", "", "skip tests that match this `pattern`")
	flag.DurationVar(&rig.Limit, "timeout", 15*time.Minute, "end a machine after this `time`")
	flag.StringVar(&rig.Observed, "observed", "",
		"write what TestKernelFeatures finds into that `file`: see package observed")
	flag.BoolVar(&rig.Verbose, "v", false, "print the output of every test")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go run ./tests/kernels [flags] [packages, default ./...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	rig.Patterns = flag.Args()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rig.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

// A rig boots kernels and judges the reports of their guests.
type rig struct {
	Series   string   // comma-separated
	Patterns []string // packages; nil means all
	Cache    string   // directory of kernels
	JDKs     string   // comma-separated versions, for live tests
	Only     string   // tests to run
	Skip     string   // tests to skip
	Limit    time.Duration
	Observed string // file
	Verbose  bool
}

// arguments are those of test binaries. A hanging test is ended with a goroutine dump, well before
// the machine.
func (r *rig) arguments() []string {
	args := []string{"-test.v", "-test.run=" + r.Only, "-test.skip=" + r.Skip, "-test.timeout=" +
		(r.Limit * 8 / 10).String()}
	if r.JDKs == "" {
		args = append(args, "-test.short") // leaves out what shows nothing of a kernel
	}
	return args
}

// Run boots every kernel, prints one line about each, and fails if any did.
func (r *rig) Run(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return errors.New("needs Debian's apt and dpkg-deb, so a Debian machine")
	}
	if err := r.setDefaults(); err != nil {
		return err
	}
	packages, err := findPackages(ctx, r.Patterns, r.JDKs != "")
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		return fmt.Errorf("neither a BPF object nor a TestKernel function in %s", strings.Join(r.Patterns, " "))
	}
	dir, err := os.MkdirTemp("", "vmprof-kernels-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m := machine{Initramfs: filepath.Join(dir, "initramfs"), Limit: r.Limit}
	packed := packages
	if r.JDKs != "" {
		packed, m.Disk = nil, filepath.Join(dir, "disk.img")
		if err := buildDisk(ctx, packages, r.JDKs, r.arguments(), dir, m.Disk); err != nil {
			return fmt.Errorf("build disk: %w", err)
		}
	}
	if err := buildInitramfs(ctx, packed, r.arguments(), dir, m.Initramfs); err != nil {
		return fmt.Errorf("build initramfs: %w", err)
	}
	// One emulator keeps one CPU busy, so the kernels run in parallel; their output is printed in
	// order.
	series := strings.Split(r.Series, ",")
	boots := make([]boot, len(series))
	var running sync.WaitGroup
	for i, s := range series {
		running.Go(func() { boots[i] = r.boot(ctx, s, m, dir) })
	}
	running.Wait()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	var failed []string
	for i, s := range series {
		if err := r.judge(boots[i], packages); err != nil {
			fmt.Printf("linux %s: FAIL: %v\n", s, err)
			failed = append(failed, s)
		}
	}
	if failed != nil {
		return fmt.Errorf("failed on %s", strings.Join(failed, ", "))
	}
	return nil
}

func (r *rig) setDefaults() error {
	if len(r.Patterns) == 0 {
		r.Patterns = []string{"./..."}
	}
	if r.Cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("find a cache for kernels (-cache names one): %w", err)
		}
		r.Cache = filepath.Join(user, "vmprof-agent", "kernels")
	}
	// apt-get runs elsewhere, so the path must not depend on where we are.
	var err error
	r.Cache, err = filepath.Abs(r.Cache)
	return err
}

// A boot is the output of a machine.
type boot struct {
	Console string // console output of its kernel
	Results string // results of the tests
	Err     error  // error of the machine: it did not start, or had to be stopped
}

func (r *rig) boot(ctx context.Context, series string, m machine, dir string) boot {
	image, err := kernelImage(ctx, series, r.Cache)
	if err != nil {
		return boot{Err: err}
	}
	m.Kernel = image
	if m.Dir, err = os.MkdirTemp(dir, "machine-"); err != nil {
		return boot{Err: err}
	}
	const boots = 3
	var b boot
	for range boots {
		b.Console, b.Results, b.Err = m.Boot(ctx)
		if !emulatorFault(b.Console) {
			break
		}
		fmt.Fprintf(os.Stderr, "linux %s: the emulator raised a debug exception for nothing\n", series)
	}
	return b
}

// judge prints the line about one kernel, with everything needed to understand a failure.
func (r *rig) judge(b boot, packages []testPackage) error {
	if b.Console == "" && b.Err != nil {
		return b.Err // nothing ran, so there is nothing to judge
	}
	report := parseResults(b.Results)
	objects, problems := report.Check(packages)
	complaints := findTrouble(b.Console)
	for _, line := range complaints {
		problems = append(problems, "kernel: "+line)
	}
	passed, failed, skipped := 0, 0, 0
	for _, s := range report.Steps {
		if r.Verbose {
			fmt.Printf("%s on linux %s:\n%s", s.Name, report.Release, s.Output)
		} else if s.Exit != "0" {
			fmt.Printf("%s on linux %s (-v shows all):\n%s", s.Name, report.Release, s.Eventful())
		}
		if k, ok := observed.Parse(s.Output); ok && r.Observed != "" {
			if err := observed.Record(r.Observed, k); err != nil {
				return err
			}
		}
		passed, failed, skipped = passed+len(s.Passed), failed+len(s.Failed), skipped+len(s.Skipped)
		for _, test := range s.Skipped {
			fmt.Printf("linux %s: skipped %s\n", report.Release, test)
		}
	}
	fmt.Printf("linux %s: booted in %s s, %d BPF objects loaded, tests: %d passed, %d failed, %d skipped\n",
		cmp.Or(report.Release, "?"), cmp.Or(report.Boot, "?"), objects, passed, failed, skipped)
	if problems == nil {
		return b.Err
	}
	if complaints != nil || !report.Done {
		fmt.Printf("end of the console:\n%s\n", tail(b.Console, 40))
	}
	return errors.Join(b.Err, errors.New(strings.Join(problems, "\n\t")))
}
