package semaphore

import (
	"fmt"
	"os"
	"testing"
)

// The test program is its own guard, as the agent is, and the agent that is killed.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == GuardVerb:
		err = Guard()
	case len(os.Args) == 4 && os.Args[1] == victimVerb:
		err = victim(os.Args[2], os.Args[3])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
