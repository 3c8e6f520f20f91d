package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A program is a real one, compiled from the sources of a Debian package.
type program struct {
	name    string   // name of the package
	files   []string // patterns
	without []string // base names that the patterns match and that are not part of it
	flags   []string // flags of the compiler; $SRC is the sources' directory
	args    []string // arguments of a run; $INPUT is a file of text, $SCRIPT the program's script
	script  string
	stdin   bool // reads the input there
}

func programs() []program {
	return []program{
		{
			name: "zlib", files: []string{"*.c", "test/minigzip.c"},
			flags: []string{"-DHAVE_UNISTD_H", "-DHAVE_STDARG_H", "-I$SRC"},
			args:  []string{"-9"}, stdin: true,
		},
		{name: "bzip2", files: []string{"*.c"}, without: []string{"bzip2recover.c", "dlltest.c", "mk251.c", "spewG.c",
			"unzcrash.c"}, args: []string{"-k", "-c", "$INPUT"}},
		{name: "lz4", files: []string{"lib/*.c", "programs/*.c"}, flags: []string{"-I$SRC/lib", "-DXXH_NAMESPACE=LZ4_"},
			args: []string{"-9", "-c", "-f", "$INPUT"}},
		{name: "lua5.4", files: []string{"src/*.c"}, without: []string{"luac.c"}, flags: []string{"-DLUA_USE_POSIX"},
			args: []string{"$SCRIPT"}, script: luaScript},
	}
}

// luaScript counts words, sorts them, and solves the eight queens.
const luaScript = `
local words = {}
for i = 1, 300000 do
	local w = ("%x"):format((i * 2654435761) % 4093)
	words[w] = (words[w] or 0) + 1
end
local list = {}
for w in pairs(words) do list[#list + 1] = w end
table.sort(list, function(a, b) return words[a] > words[b] or words[a] == words[b] and a < b end)
local function queens(n, row, cols, up, down)
	if row > n then return 1 end
	local found = 0
	for c = 1, n do
		if not cols[c] and not up[row + c] and not down[row - c] then
			cols[c], up[row + c], down[row - c] = true, true, true
			found = found + queens(n, row + 1, cols, up, down)
			cols[c], up[row + c], down[row - c] = nil, nil, nil
		end
	end
	return found
end
print(#list, list[1], queens(9, 1, {}, {}, {}))
`

// sources are the directory of a program's sources.
func (p program) sources(ctx context.Context, root string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(root, "scripts/sources"), p.name).Output()
	if err != nil {
		return "", fmt.Errorf("fetch the sources of %s: %w", p.name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// build compiles the program with markers, as VMPROF_MARKERS has them, and returns its path. Timing
// points are empty functions of another file, or count if counted is set.
func (p program) build(ctx context.Context, c *compiler, root, as, markers string, counted bool) (string, error) {
	dir, err := p.sources(ctx, root)
	if err != nil {
		return "", err
	}
	var files []string
	for _, pattern := range p.files {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		files = append(files, slices.DeleteFunc(found, func(f string) bool {
			return slices.Contains(p.without,
				filepath.Base(f))
		})...)
	}
	runtime := "noop.c"
	if counted {
		runtime = "runtime.c"
	}
	object := filepath.Join(c.dir, runtime+".o")
	if err := c.compile(ctx, "", "-O2", "-c", "-o", object, filepath.Join(root, "tests/llvm/testdata",
		runtime)); err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, p.name+"-"+as)
	args := []string{"-O3", "-g", "-w", "-o", path, "-lm", object}
	for _, flag := range p.flags {
		args = append(args, strings.ReplaceAll(flag, "$SRC", dir))
	}
	return path, c.compile(ctx, markers, append(args, files...)...)
}

// writeInput writes that many words of text, which is always the same.
func writeInput(path string, words int) error {
	random := rand.New(rand.NewPCG(2009, 4))
	var vocabulary []string
	for range 5000 {
		word := make([]byte, 2+random.IntN(9))
		for i := range word {
			word[i] = "etaoinshrdlucmfwypvbgkjqxz"[min(random.IntN(26), random.IntN(26))]
		}
		vocabulary = append(vocabulary, string(word))
	}
	var text strings.Builder
	for i := range words {
		text.WriteString(vocabulary[min(random.IntN(len(vocabulary)), random.IntN(len(vocabulary)),
			random.IntN(len(vocabulary)))])
		text.WriteByte(" \n"[min(i%12/11, 1)])
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}

// A ran is the result of one run of a program.
type ran struct {
	cpu    time.Duration // user time
	output string
}

// run runs a built program on an input.
func (p program) run(ctx context.Context, path, input string, env ...string) (ran, error) {
	script := input + "." + p.name
	if p.script != "" {
		if err := os.WriteFile(script, []byte(p.script), 0o600); err != nil {
			return ran{}, err
		}
	}
	var args []string
	for _, arg := range p.args {
		args = append(args, strings.NewReplacer("$INPUT", input, "$SCRIPT", script).Replace(arg))
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	if p.stdin {
		file, err := os.Open(input)
		if err != nil {
			return ran{}, err
		}
		defer file.Close()
		cmd.Stdin = file
	}
	out, err := cmd.Output()
	if err != nil {
		return ran{}, fmt.Errorf("run %s: %w", filepath.Base(path), err)
	}
	return ran{cmd.ProcessState.UserTime(), string(out)}, nil
}
