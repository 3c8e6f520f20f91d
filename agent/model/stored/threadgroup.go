package stored

import "strings"

// ThreadGroup is what a thread and others that do the same work have in common: its name with a
// star for the number at its end. http-nio-8080-exec-7 is of the group http-nio-8080-exec-*. A name
// that does not end in a number is a group of its own.
func ThreadGroup(thread string) string {
	stem := strings.TrimRight(thread, "0123456789")
	if stem == thread || stem == "" {
		return thread
	}
	return stem + "*"
}
