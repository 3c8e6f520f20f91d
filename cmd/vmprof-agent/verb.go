package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// A verb is one thing that the program does. It writes results to stdout and everything else to
// stderr.
type verb struct {
	name    string
	summary string // one line of help; empty hides the verb
	heading string // heading in the help above this verb; empty if it stands below the one before
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// String is how the user calls it.
func (v verb) String() string { return strings.TrimSpace("vmprof-agent " + v.name) }

// exit does what the arguments say and returns the exit code: 0, 1 if it failed, 2 if it was not
// understood.
func (v verb) exit(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := v.run(ctx, args, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp): // whose text is out already
		return 0
	case errors.Is(err, errReported):
		return 1
	}
	fmt.Fprintf(stderr, "%v: %v\n", v, err)
	if !isMisuse(err) {
		return 1
	}
	fmt.Fprintf(stderr, "Run '%v -h' for help.\n", v)
	return 2
}

// errReported ends a verb with exit code 1 when its output says why already.
var errReported = errors.New("the output says why")

// A misuse is an argument that makes no sense. It ends the program with exit code 2.
type misuse string

func (e misuse) Error() string { return string(e) }

// isMisuse reports whether the user has to change the command line.
func isMisuse(err error) bool {
	var (
		usage    misuse
		unknown  *pflag.NotExistError
		required *pflag.ValueRequiredError
		value    *pflag.InvalidValueError
		syntax   *pflag.InvalidSyntaxError
	)
	return errors.As(err, &usage) || errors.As(err, &unknown) || errors.As(err, &required) ||
		errors.As(err, &value) || errors.As(err, &syntax)
}

// unexpected is the error for an argument where none belongs. A number is most likely a process.
func unexpected(arg, remedy string) error {
	text := "unexpected argument " + arg
	if n, err := strconv.Atoi(arg); err == nil && n > 0 {
		return misuse(text + fmt.Sprintf("; to profile process %d use -p %d", n, n))
	}
	return misuse(text + remedy)
}

// A definition is what a verb says of itself. As the place for a verb's help it takes that instead
// of its text.
type definition struct {
	verb
	usage string
	flags *pflag.FlagSet
}

func (*definition) Write(b []byte) (int, error) { return len(b), nil }

// define has a verb define itself.
func define(v verb) *definition {
	d := &definition{verb: v}
	_ = v.run(context.Background(), []string{"--help"}, io.Discard, d) // pflag.ErrHelp
	return d
}

// columns is the width of a terminal, and 80 for everything else.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}
