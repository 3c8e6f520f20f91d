package proc

import (
	"bytes"
	"cmp"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxComm bounds the name of a task: TASK_COMM_LEN is 16, workqueue threads show up to 64
	// bytes.
	maxComm = 256
	// maxName bounds every name that this package makes for people and metrics.
	maxName = 128
)

// Comm reads the name of a process: that of its thread group leader, at most 15 bytes for user
// tasks. A task chooses its name freely; what is returned is printable.
func (r Root) Comm(pid int) (string, error) {
	b, err := r.read(pid, maxComm, "comm")
	if err != nil {
		return "", err
	}
	return parseComm(b), nil
}

// ThreadComm is Comm of a thread.
func (r Root) ThreadComm(pid, tid int) (string, error) {
	b, err := r.read(pid, maxComm, "task", strconv.Itoa(tid), "comm")
	if err != nil {
		return "", err
	}
	return parseComm(b), nil
}

// TaskName is the name of a task as a record of the kernel has it, which ends at a zero byte;
// printable as in Comm.
func TaskName(comm []byte) string {
	comm, _, _ = bytes.Cut(comm, []byte{0})
	return printable(comm)
}

// memfd begins the names of files that are in memory only. A program that is executed from one
// without a path has its name, of which the kernel keeps 15 bytes.
const memfd = "memfd:"

// Nameless reports whether the kernel's name of a process is that of a file in memory and not a
// program's.
func Nameless(comm string) bool { return strings.HasPrefix(comm, memfd) }

// NameOf is what a process is called: the kernel's name, or where that is a file in memory, the
// name of the program in its first argument. Without arguments it is what the file was called by
// the process that made it.
func NameOf(comm, arg0 string) string {
	if !Nameless(comm) {
		return comm
	}
	if name := path.Base(arg0); arg0 != "" && name != "/" && name != "." {
		return printable([]byte(name))
	}
	return cmp.Or(strings.TrimPrefix(comm, memfd), comm)
}

// parseComm takes off the one newline that the kernel adds; the name itself may hold more of them.
func parseComm(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	return printable(b)
}

// printable makes a name fit for terminals, logs and metrics: valid UTF-8, nothing that moves a
// cursor or reverses the writing direction, at most maxName bytes.
func printable(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		c, size := utf8.DecodeRune(b)
		b = b[size:]
		if c == utf8.RuneError || !unicode.IsPrint(c) {
			c = '?'
		}
		if s.Len()+utf8.RuneLen(c) > maxName {
			break
		}
		s.WriteRune(c)
	}
	return s.String()
}
