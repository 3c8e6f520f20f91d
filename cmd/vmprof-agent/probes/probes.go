// Package probes has the verb probes, which lists the USDT probes of a process, and finds the
// places that --probe names in the files of processes.
package probes

import (
	"bufio"
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

const probesUsage = `Usage: vmprof-agent probes -p PID [FILTER]

Lists the USDT probes of a process, by file: the number of sites of each probe,
the instruction there, and the operands with size (u64: unsigned, 64 bits; s32:
signed, 32 bits) and location. Attaches no probe. FILTER is a part of the name
of a probe or of a file.

  vmprof-agent probes -p PID                  # all probes
  vmprof-agent probes -p PID gc__             # probes with gc__ in the name
  vmprof-agent probes -p PID libjvm.so        # probes of one file

The instruction at a probe determines its cost:

  nop       a hit costs about half a microsecond
  nop5      the same on Linux 6.16 and later, as stepped before. Kernels that
            replace it by a call (6.18 on): refused unless it is proved safe
  stepped   a hit costs 2.5 to 10 microseconds, sometimes 70: only for rare
            events
  semaphore the program sees an attached probe, and may do more work

To record the values at one of these probes, or at the entry of a function:

  vmprof-agent record -e value --probe SPEC -p PID

` + valueprobe.Help + `
Flags:
`

// probesDeadline is how long the files of a process may take to read: 400 MB of debug information
// are passed over.
const probesDeadline = 20 * time.Second

// listed bounds the files that are looked through.
var listed = attach.MappedLimits{Files: 1024, Size: 2 << 30}

// Run is the verb.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := cli.NewFlags("probes", probesUsage, stderr)
	pid := fs.IntP("pid", "p", 0, "list the probes of process `PID`")
	if err := cli.Parse(fs, probesUsage, args); err != nil {
		return err
	}
	switch {
	case *pid <= 0 && fs.NArg() == 1:
		return cli.Unexpected(fs.Arg(0), "; select the process with -p")
	case *pid <= 0:
		return cli.Misuse("-p needs a process id")
	case fs.NArg() > 1:
		return cli.Misuse("unexpected argument " + fs.Arg(1))
	}
	pool := proc.NewPool(proc.PoolOptions{Deadline: probesDeadline, FirstDeadline: probesDeadline})
	offer, err := proc.Call(ctx, pool, *pid, func() (offer, error) {
		return offerOf(proc.DefaultRoot, *pid, fs.Arg(0))
	})
	if err != nil {
		return err
	}
	for _, u := range offer.unread {
		fmt.Fprintf(stderr, "skipped %s: %s\n", plainText(u.Path, maxPath), plainText(u.Err.Error(), maxWhy))
	}
	if len(offer.files) == 0 {
		return nothingOffered(*pid, fs.Arg(0))
	}
	return offer.write(stdout, cli.Columns(stdout), *pid)
}

func nothingOffered(pid int, filter string) error {
	if filter != "" {
		return fmt.Errorf("no USDT probe of process %d has %q in its name or file name; "+
			"remove the filter to see all", pid, filter)
	}
	return fmt.Errorf("the files of process %d contain no USDT probes; "+
		"record the entry of a function instead (func:SYMBOL)", pid)
}

// offerOf reads what a process offers; it runs on a worker.
func offerOf(root proc.Root, pid int, filter string) (o offer, err error) {
	unread, err := attach.MappedFiles(root, pid, listed, func(m *attach.MappedFile) error {
		found, err := m.ELF.Probes()
		if err != nil {
			return fmt.Errorf("probes of %s: %w", plainText(m.Path, maxPath), err)
		}
		o.add(m.Path, m.ELF.Machine(), m.File, found, filter)
		return nil
	})
	o.unread = unread
	return o, err
}

// An offer is what the files of a process offer.
type offer struct {
	files  []offeredFile
	unread []attach.UnreadFile
}

type offeredFile struct {
	path   string // hostile
	probes []offeredProbe
}

// An offeredProbe is one probe; its strings are as they are shown, except for the name.
type offeredProbe struct {
	name         string // PROVIDER:NAME; hostile
	sites        int
	semaphore    bool
	instructions []string // that stand there, each once
	operands     []string // of the sites, each once
	readable     bool     // the first operand is understood
}

// add takes those probes of a file that the filter lets pass.
func (o *offer) add(path string, machine elf.Machine, f io.ReaderAt, found []elffile.Probe, filter string) {
	byName := map[string]*offeredProbe{}
	for _, p := range found {
		name := p.Provider + ":" + p.Name
		if !strings.Contains(name, filter) && !strings.Contains(path, filter) {
			continue
		}
		probe := byName[name]
		if probe == nil {
			probe = &offeredProbe{name: name, readable: len(p.Args) > 0}
			byName[name] = probe
		}
		probe.sites++
		probe.semaphore = probe.semaphore || p.Semaphore != 0
		probe.readable = probe.readable && len(p.Args) > 0 && p.Args[0].Err == nil
		probe.instructions = once(probe.instructions, instructionAt(f, machine, p.Offset))
		probe.operands = once(probe.operands, operandText(p.Args))
	}
	if len(byName) == 0 {
		return
	}
	file := offeredFile{path: path}
	for _, p := range byName {
		file.probes = append(file.probes, *p)
	}
	slices.SortFunc(file.probes, func(a, b offeredProbe) int { return cmp.Compare(a.name, b.name) })
	o.files = append(o.files, file)
}

func once(list []string, word string) []string {
	if slices.Contains(list, word) {
		return list
	}
	return append(list, word)
}

// maxPlaces is how many different lists of operands of one probe are shown; libjvm has up to 9.
const maxPlaces = 3

func (o *offer) write(w io.Writer, width, pid int) error {
	out := bufio.NewWriter(w)
	for i, f := range o.files {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, leftCut(plainText(f.path, maxPath), width-1))
		column := 0
		for _, p := range f.probes {
			column = max(column, min(len(plainText(p.name, maxProbeName)), maxColumn))
		}
		for _, p := range f.probes {
			p.write(out, column, width)
		}
	}
	if example := o.example(); example != "" {
		fmt.Fprintf(out, "\nTo record one of these:\n  vmprof-agent record -e value --probe %s -p %d\n", example, pid)
	}
	return out.Flush()
}

// maxColumn is how wide the column of names becomes; longer names reach into the next.
const maxColumn = 40

// write writes a probe, its name in a column of its own.
func (p *offeredProbe) write(out io.Writer, column, width int) {
	sites := "1 site"
	if p.sites > 1 {
		sites = fmt.Sprintf("%d sites", p.sites)
	}
	about := append([]string{sites}, p.instructions...)
	if p.semaphore {
		about = append(about, "semaphore")
	}
	wrap(out, "  ", fmt.Sprintf("%-*s  %s", column, plainText(p.name, maxProbeName), strings.Join(about, ", ")), width)
	for i, operands := range p.operands {
		if i == maxPlaces {
			fmt.Fprintf(out, "      %s\n", stored.Plural(len(p.operands)-i, "more site"))
			break
		}
		if i > 0 {
			operands = "or " + operands
		}
		if operands != "" {
			wrap(out, "    ", operands, width)
		}
	}
}

// example is what a user could type next: a probe of the file that has most, one whose first
// operand is understood, or any.
func (o *offer) example() string {
	best := ""
	file := slices.MaxFunc(o.files, func(a, b offeredFile) int { return cmp.Compare(len(a.probes), len(b.probes)) })
	for _, p := range file.probes {
		spec := "usdt:" + p.name
		if p.readable {
			spec += "=arg1"
		}
		if _, err := valueprobe.Parse(spec); err == nil && p.readable {
			return spec
		} else if err == nil && best == "" {
			best = spec
		}
	}
	return best
}

// Bounds on what is shown of hostile names, in columns.
const (
	maxPath      = 4096 // PATH_MAX of linux/limits.h; its end is shown
	maxWhy       = 2 * maxPath
	maxProbeName = 60
)

// plainText makes a name safe for a terminal: escapes for all but printable ASCII, and an ellipsis
// for what is too long. Unlike symbol.Printable it leaves no letter of another script: bytes are
// columns then, and tables line up.
func plainText(name string, limit int) string {
	text := strconv.QuoteToASCII(name[:min(len(name), limit)])
	text = strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
	if len(name) > limit || len(text) > limit {
		return text[:min(len(text), limit-3)] + "..."
	}
	return text
}

// instructionAt says what stands at an offset of a file, in the words of the usage.
func instructionAt(f io.ReaderAt, machine elf.Machine, offset uint64) string {
	switch kind, err := probesite.KindAt(machine, f, offset); {
	case err != nil:
		return "unreadable"
	case kind == probesite.Refused:
		return "refused by the kernel"
	case kind == probesite.Nop5 || kind.Emulated():
		return kind.String()
	}
	return "stepped"
}

// operandText lists operands as the user names them: arg1 u64 rdi, arg2 s32 [rbp-56].
func operandText(args []elffile.Operand) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = fmt.Sprintf("arg%d %s", i+1, placeText(a))
	}
	return strings.Join(words, ", ")
}

// placeText is an operand's size and place: u64 rdi, s32 [rax+rbx*8-56], u8 =7 for a constant.
func placeText(a elffile.Operand) string {
	if a.Err != nil {
		return "?"
	}
	size := fmt.Sprintf("u%d", 8*int(a.Size))
	if a.Size < 0 {
		size = fmt.Sprintf("s%d", -8*int(a.Size))
	}
	switch a.Kind {
	case elffile.OperandReg:
		return size + " " + a.Reg.String()
	case elffile.OperandConst:
		return fmt.Sprintf("%s =%d", size, a.Disp)
	}
	var parts []string
	if a.Reg != elffile.NoReg {
		parts = append(parts, a.Reg.String())
	}
	if a.Index != elffile.NoReg {
		parts = append(parts, fmt.Sprintf("%s*%d", a.Index, a.Scale))
	}
	address := strings.Join(parts, "+")
	if a.Disp != 0 || address == "" {
		address += fmt.Sprintf("%+d", a.Disp)
	}
	return size + " [" + address + "]"
}

// wrap writes text behind an indent, broken at ", " so that lines are narrower than width where
// that is possible.
func wrap(out io.Writer, indent, text string, width int) {
	line := indent
	for i, word := range strings.SplitAfter(text, ", ") {
		if i > 0 && len(line)+len(strings.TrimRight(word, " ")) >= width {
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			line = indent + "  "
		}
		line += word
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
}

// leftCut leaves the end of a path, which says more than its beginning.
func leftCut(path string, width int) string {
	const dots = "..."
	if len(path) <= width || width <= len(dots) {
		return path
	}
	return dots + path[len(path)-width+len(dots):]
}
