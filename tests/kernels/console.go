package main

import (
	"regexp"
	"strings"
)

// trouble matches messages of a kernel about internal faults, whatever the tests report.
var trouble = regexp.MustCompile(`\bBUG:|\bWARNING:|\bOops\b|Kernel panic|general protection fault|Call Trace:` +
	`|rcu:.*(stall|self-detected)|soft lockup|hard LOCKUP|hung task|blocked for more than|UBSAN:|KASAN:` +
	`|scheduling while atomic|Unable to mount root|No working init`)

// findTrouble returns the lines of a console that report trouble, at most 20 of them.
func findTrouble(console string) []string {
	var found []string
	for line := range strings.Lines(console) {
		if trouble.MatchString(line) && len(found) < 20 {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// A debug exception in the kernel without any of the processor's bits for its reason.
var debugForNothing = regexp.MustCompile(`(?s)WARNING: [^\n]* exc_debug_kernel\+.*? DR6: 00000000ffff0ff0 `)

// emulatorFault detects a fault of the emulator, which real processors do not have: with hardware
// breakpoints it may raise spurious debug exceptions, and corrupt the flags. Test results after
// that are meaningless.
func emulatorFault(console string) bool { return debugForNothing.MatchString(console) }

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
