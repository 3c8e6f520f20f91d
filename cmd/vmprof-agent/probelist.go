package main

import (
	"bufio"
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// An offer is what the files of a process offer.
type offer struct {
	files  []offeredFile
	unread []string // paths of files that could not be read; hostile
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
			fmt.Fprintf(out, "      %d more sites\n", len(p.operands)-i)
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

// example is what a user could type next: a probe of the file that has most, one whose first operand is understood, or
// any.
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
