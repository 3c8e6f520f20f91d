package proc

import (
	"bytes"
	"path"
	"strings"
)

// maxCommand bounds what is read of a process's arguments and of its environment. Class paths of JVMs are the longest of the
// arguments in use; what comes after the bound is not read.
const maxCommand = 256 << 10

// Arguments reads the arguments of a process. They are the process's own memory: call this through a Pool.
func (r Root) Arguments(pid int) ([]string, error) { return r.words(pid, "cmdline") }

// Environment reads the variables NAME=VALUE that a process was started with, under the terms of Arguments.
func (r Root) Environment(pid int) ([]string, error) { return r.words(pid, "environ") }

// words reads a file of words that end with a zero byte. The last one may be cut.
func (r Root) words(pid int, name string) ([]string, error) {
	b, err := r.readSome(pid, maxCommand, name)
	if err != nil {
		return nil, err
	}
	b = bytes.TrimSuffix(b, []byte{0})
	if len(b) == 0 {
		return nil, nil
	}
	return strings.Split(string(b), "\x00"), nil
}

// optionsWithValue are the options of the java launcher that take the next argument, apart from those that begin with two dashes and
// have no equals sign (java(1)).
var optionsWithValue = map[string]bool{"-cp": true, "-classpath": true, "-p": true}

// flagsWithoutValue are the options with two dashes that take none.
var flagsWithoutValue = map[string]bool{
	"--enable-preview": true, "--dry-run": true, "--list-modules": true, "--validate-modules": true, "--version": true, "--show-version": true,
	"--show-module-resolution": true, "--help": true, "--help-extra": true,
}

// Application returns what people call the program of a JVM, given its arguments and environment: OTEL_SERVICE_NAME,
// spring.application.name, the name of the jar without its suffix, or the main class; "" if the first argument is not java or there
// is none of these. It is printable and bounded.
func Application(arguments, environment []string) string {
	if len(arguments) == 0 || path.Base(arguments[0]) != "java" {
		return ""
	}
	const variable, property = "OTEL_SERVICE_NAME=", "-Dspring.application.name="
	for _, v := range environment {
		if name := strings.TrimPrefix(v, variable); name != v && name != "" {
			return printable([]byte(name))
		}
	}
	main, spring := "", ""
	for i := 1; i < len(arguments) && main == ""; i++ {
		switch arg := arguments[i]; {
		case strings.HasPrefix(arg, property):
			spring = strings.TrimPrefix(arg, property)
		case arg == "-jar" && i+1 < len(arguments):
			main = strings.TrimSuffix(path.Base(arguments[i+1]), ".jar")
		case (arg == "-m" || arg == "--module") && i+1 < len(arguments):
			module, class, _ := strings.Cut(arguments[i+1], "/")
			if main = class; main == "" {
				main = module
			}
		case strings.HasPrefix(arg, "--module="):
			module, class, _ := strings.Cut(strings.TrimPrefix(arg, "--module="), "/")
			if main = class; main == "" {
				main = module
			}
		case optionsWithValue[arg], strings.HasPrefix(arg, "--") && !strings.Contains(arg, "=") && !flagsWithoutValue[arg]:
			i++
		case strings.HasPrefix(arg, "-"), strings.HasPrefix(arg, "@"), arg == "":
		case strings.HasSuffix(arg, ".java"): // source file mode
			main = strings.TrimSuffix(path.Base(arg), ".java")
		default:
			main = strings.ReplaceAll(arg, "/", ".")
		}
	}
	if spring != "" {
		main = spring
	}
	return printable([]byte(main))
}
