package main

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A compiler is clang with the plug-in of contrib/llvm.
type compiler struct {
	plugin string // its path
	dir    string // for what it builds
}

// errNoCompiler says what the machine lacks.
var errNoCompiler = errors.New("contrib/llvm needs clang-19, llvm-19-dev and libstdc++: scripts/deps test installs " +
	"them")

// newCompiler builds the plug-in of a repository in a directory, as contrib/llvm/README.md says.
func newCompiler(ctx context.Context, root, dir string) (*compiler, error) {
	for _, needed := range []string{"clang++-19", "llvm-config-19"} {
		if _, err := exec.LookPath(needed); err != nil {
			return nil, fmt.Errorf("%w (%w)", errNoCompiler, err)
		}
	}
	build := exec.CommandContext(ctx, "make", "-s", "-C", filepath.Join(root, "contrib/llvm"), "BUILD="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the plug-in: %w\n%s", err, out)
	}
	return &compiler{filepath.Join(dir, "vmprof-markers.so"), dir}, nil
}

// compile runs clang, with markers as the environment variable VMPROF_MARKERS; empty: without the
// plug-in. Names that end in .cc are C++.
func (c *compiler) compile(ctx context.Context, markers string, args ...string) error {
	name := "clang-19"
	for _, arg := range args {
		if strings.HasSuffix(arg, ".cc") {
			name = "clang++-19"
		}
	}
	if markers != "" {
		args = append([]string{"-fpass-plugin=" + c.plugin}, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "VMPROF_MARKERS="+markers)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("VMPROF_MARKERS=%s %s: %w\n%s", markers, strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// A loopID names a loop, or a basic block, in the table of a program.
type loopID struct{ Method, Loop uint32 }

// A row of the table.
type loopRow struct {
	Function, File string
	Line           int
}

// tableSection is where the plug-in leaves the table.
const tableSection = "vmprof_table"

// readTable reads the table of a program, which is empty if the program has none.
func readTable(path string) (map[loopID]loopRow, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(tableSection)
	if section == nil {
		return nil, nil
	}
	text, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read the table of %s: %w", path, err)
	}
	rows := map[loopID]loopRow{}
	for line := range strings.Lines(string(text)) {
		var id loopID
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("%s: a row %q of the table", path, line)
		}
		_, errID := fmt.Sscanf(fields[0]+" "+fields[1], "%x %d", &id.Method, &id.Loop)
		i := strings.LastIndexByte(fields[3], ':')
		number, errLine := strconv.Atoi(fields[3][i+1:])
		if err := errors.Join(errID, errLine); err != nil {
			return nil, fmt.Errorf("%s: a row %q of the table: %w", path, line, err)
		}
		row := loopRow{fields[2], fields[3][:i], number}
		if before, ok := rows[id]; ok && before != row {
			return nil, fmt.Errorf("%s: loops %v and %v have one number", path, before, row)
		}
		rows[id] = row
	}
	return rows, nil
}

// A count is the report of a loop's timing points.
type count struct{ Iterations, Calls uint64 }

// Counts are the report of a program's run time at its end.
type counts struct {
	Loops            map[loopID]count
	Truth            map[int]uint64 // iterations by the line of their loop
	Started, Stopped uint64         // timers
	Output           string         // output of the program
}

// runCounted runs a program that was linked with testdata/runtime.c.
func runCounted(ctx context.Context, program string) (*counts, error) {
	path := program + ".counts"
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "VMPROF_COUNTS="+path)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", program, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &counts{Loops: map[loopID]count{}, Truth: map[int]uint64{}, Output: string(out)}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		var id loopID
		var n, calls uint64
		var at int
		if _, err := fmt.Sscanf(line, "loop %x %d %d %d", &id.Method, &id.Loop, &n, &calls); err == nil {
			c.Loops[id] = count{n, calls}
		} else if _, err := fmt.Sscanf(line, "truth %d %d", &at, &n); err == nil {
			c.Truth[at] = n
		} else if _, err := fmt.Sscanf(line, "timers %d %d", &c.Started, &c.Stopped); err != nil {
			return nil, fmt.Errorf("%s: a line %q", path, line)
		}
	}
	return c, nil
}

// byLine adds up the iterations of loops that are on one line of a file: of all instances of a
// template.
func byLine(loops map[loopID]count, table map[loopID]loopRow, file string) (map[int]uint64, error) {
	lines := map[int]uint64{}
	for id, c := range loops {
		row, ok := table[id]
		if !ok {
			return nil, fmt.Errorf("no row of the table for loop %v", id)
		}
		if filepath.Base(row.File) == filepath.Base(file) {
			lines[row.Line] += c.Iterations
		}
	}
	return lines, nil
}

// An account is the fates of markers.
type account struct {
	Inserted, Kept, Merged, Removed, Lost     int // markers
	Sites, Ones, Constants, Variables, Memory int // where they are in the end
}

// accountFormat is that of the plug-in.
const accountFormat = "inserted %d = kept %d + merged %d + removed %d + lost %d; sites %d: by one %d, by a constant " +
	"%d, variable %d, in memory %d"

// readAccount adds up the lines of a file of accounts, and checks them.
func readAccount(path string) (sum account, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return account{}, err
	}
	for line := range strings.Lines(string(text)) {
		var a account
		_, figures, _ := strings.Cut(strings.TrimPrefix(line, "vmprof-markers: "), ": ")
		if _, err := fmt.Sscanf(figures, accountFormat, &a.Inserted, &a.Kept, &a.Merged, &a.Removed, &a.Lost,
			&a.Sites, &a.Ones, &a.Constants, &a.Variables, &a.Memory); err != nil {
			return account{}, fmt.Errorf("%s: a line %q: %w", path, line, err)
		}
		if a.Inserted != a.Kept+a.Merged+a.Removed+a.Lost || a.Sites != a.Ones+a.Constants+a.Variables {
			return account{}, fmt.Errorf("%s: markers are missing in %q", path, line)
		}
		sum.add(a)
	}
	return sum, nil
}

func (a *account) add(b account) {
	a.Inserted += b.Inserted
	a.Kept += b.Kept
	a.Merged += b.Merged
	a.Removed += b.Removed
	a.Lost += b.Lost
	a.Sites += b.Sites
	a.Ones += b.Ones
	a.Constants += b.Constants
	a.Variables += b.Variables
	a.Memory += b.Memory
}
