package symbolize

import "strings"

// IsThreadRoot reports whether a stack legitimately ends in the function with that symbol
// (Frame.SystemName). A walk by frame pointers that ends there is complete, one that ends elsewhere
// was truncated.
//
// In addition to code that begins threads, this includes main and the functions that programs pass
// to pthread_create: their callers are in libc, which is usually built without frame pointers, so
// that a walk rarely gets further.
func IsThreadRoot(symbol string) bool {
	switch symbol {
	case
		// The first instructions of a process, in the C library and in the dynamic linker.
		"_start", "_start_c", "_dl_start_user",
		// glibc and musl: the first function of a new thread or process, which clears the frame
		// pointer.
		"clone", "__clone", "clone3", "__clone3", "__clone_internal",
		"start_thread", "__start_thread", "__pthread_start", "thread_start",
		// Entry points of programs.
		"main",
		// HotSpot: entry of the threads of the VM (JDK 9 and later, JDK 8), and of the launcher's
		// main thread.
		"_ZL19thread_native_entryP6Thread", "thread_native_entry", "_ZL10java_startP6Thread", "java_start",
		"ThreadJavaMain", "JavaMain",
		// Go: the bottom of every goroutine, and of the threads and the stack of the runtime.
		"runtime.goexit", "runtime.mstart", "runtime.rt0_go", "runtime.mcall", "runtime.systemstack",
		// Linux: idle tasks, and the boot of a CPU.
		"cpu_startup_entry", "start_secondary", "start_kernel", "__secondary_switched", "__primary_switched",
		// Linux: threads of the kernel; a new task's first return.
		"kthread", "kernel_init",
		// Linux on arm64: entry from user space.
		"el0t_64_sync", "el0t_64_irq", "el0t_64_fiq", "el0t_64_error", "el0t_32_sync", "el0t_32_irq":
		return true
	}
	for _, prefix := range [...]string{
		"__libc_start_main",      // and _impl, _alias_1, @@GLIBC_2.34
		"__libc_start_call_main", // and .constprop.0
		"runtime.goexit.",        // and .abi0
		"runtime.systemstack.",
		"runtime.mcall.",
		"runtime.mstart.",
		"runtime.rt0_go.",
		"ret_from_fork",    // and _asm
		"entry_SYSCALL_64", // and _after_hwframe, _safe_stack
		"entry_SYSENTER_compat",
		"entry_INT80_compat",
		"secondary_startup_64",                            // and _no_verify
		"asm_exc_", "asm_sysvec_", "asm_common_interrupt", // exceptions and interrupts
	} {
		if strings.HasPrefix(symbol, prefix) {
			return true
		}
	}
	for _, part := range [...]string{".part.", ".constprop.", ".isra.", ".cold", ".lto_priv."} {
		if stem, _, found := strings.Cut(symbol, part); found {
			return IsThreadRoot(stem) // the compiler's variant of a root; each call is shorter
		}
	}
	return false
}
