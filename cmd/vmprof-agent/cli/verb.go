// Package cli is what the verbs of the command line have in common: how they are called, their
// flags and the help on these, their logs, and the exit code. A verb is a function of its
// arguments:
//
//	flags := cli.NewFlags("probes", usage, stderr)
//	if err := cli.Parse(flags, usage, args); err != nil {
//		return err
//	}
//
// An argument that makes no sense is a Misuse.
package cli

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

// A Verb is one thing that the program does. It writes results to stdout and everything else to
// stderr.
type Verb struct {
	Name    string
	Summary string // one line of help; empty hides the verb
	Heading string // heading in the help above this verb; empty if it stands below the one before
	Run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// String is how the user calls it.
func (v Verb) String() string { return strings.TrimSpace("vmprof-agent " + v.Name) }

// Exit does what the arguments say and returns the exit code: 0, 1 if it failed, 2 if it was not
// understood.
func (v Verb) Exit(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := v.Run(ctx, args, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp): // whose text is out already
		return 0
	case errors.Is(err, ErrReported):
		return 1
	}
	fmt.Fprintf(stderr, "%v: %v\n", v, err)
	if !IsMisuse(err) {
		return 1
	}
	fmt.Fprintf(stderr, "Run '%v -h' for help.\n", v)
	return 2
}

// ErrReported ends a verb with exit code 1 when its output says why already.
var ErrReported = errors.New("the output says why")

// A Misuse is an argument that makes no sense. It ends the program with exit code 2.
type Misuse string

func (e Misuse) Error() string { return string(e) }

// IsMisuse reports whether the user has to change the command line.
func IsMisuse(err error) bool {
	var (
		usage    Misuse
		unknown  *pflag.NotExistError
		required *pflag.ValueRequiredError
		value    *pflag.InvalidValueError
		syntax   *pflag.InvalidSyntaxError
	)
	return errors.As(err, &usage) || errors.As(err, &unknown) || errors.As(err, &required) ||
		errors.As(err, &value) || errors.As(err, &syntax)
}

// Unexpected is the error for an argument where none belongs. A number is most likely a process.
func Unexpected(arg, remedy string) error {
	text := "unexpected argument " + arg
	if n, err := strconv.Atoi(arg); err == nil && n > 0 {
		return Misuse(text + fmt.Sprintf("; to profile process %d use -p %d", n, n))
	}
	return Misuse(text + remedy)
}

// A Definition is what a verb says of itself. As the place for a verb's help it takes that instead
// of its text.
type Definition struct {
	Verb
	Usage string
	Flags *pflag.FlagSet
}

func (*Definition) Write(b []byte) (int, error) { return len(b), nil }

// Define has a verb define itself.
func Define(v Verb) *Definition {
	d := &Definition{Verb: v}
	_ = v.Run(context.Background(), []string{"--help"}, io.Discard, d) // pflag.ErrHelp
	return d
}

// Columns is the width of a terminal, and 80 for everything else.
func Columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}
