package breakpoint

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// trapsLost counts SIGTRAPs of this process, all threads.
var trapsLost uint64

// trapHandler is a handler that counts them, and the restorer that it returns to.
func trapHandler() (handler, restorer uintptr)

// int1 raises a debug exception without a cause in DR6, like a lost one: for tests.
func int1()

// catchLostTraps starts to count debug exceptions lost by a hypervisor in this process, for the
// rest of its life. Otherwise the SIGTRAP ends it: package os/signal cannot catch one that the
// kernel sends to a thread.
var catchLostTraps = sync.OnceValue(func() error {
	handler, restorer := trapHandler()
	// SA_ONSTACK, SA_RESTART, SA_RESTORER of asm/signal.h
	const onStack, restart, restorerGiven = 0x08000000, 0x10000000, 0x04000000
	// This is sigaction of asm/signal.h as the system call has it.
	action := struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}{handler: handler, restorer: restorer, flags: onStack | restart | restorerGiven}
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTRAP), uintptr(unsafe.Pointer(&action)), 0,
		unsafe.Sizeof(action.mask), 0, 0)
	if errno != 0 {
		return fmt.Errorf("catch SIGTRAP: %w", errno)
	}
	return nil
})

// lostTraps returns how many debug exceptions of this process were lost since catchLostTraps.
func lostTraps() uint64 { return atomic.LoadUint64(&trapsLost) }
