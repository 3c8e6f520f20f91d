package symbolize

import "testing"

func TestIsThreadRoot(t *testing.T) {
	for _, symbol := range []string{
		"_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main", "start_thread", "clone",
		"clone3",
		"__clone3", "thread_native_entry", "_ZL19thread_native_entryP6Thread", "main", "main.constprop.0",
		"start_thread.part.0", "ret_from_fork", "ret_from_fork_asm", "entry_SYSCALL_64_after_hwframe", "runtime.goexit",
		"runtime.goexit.abi0", "el0t_64_sync", "secondary_startup_64_no_verify", "asm_sysvec_apic_timer_interrupt",
	} {
		if !IsThreadRoot(symbol) {
			t.Errorf("%s is no root", symbol)
		}
	}
	for _, symbol := range []string{
		"", "[unknown]", "memcpy", "_ZN10JavaThread3runEv", "mainloop", "main.worker", "main.main", "runtime.gopark",
		"clone_private_mount", "el1h_64_irq", "a.cold", ".cold", "do_syscall_64",
	} {
		if IsThreadRoot(symbol) {
			t.Errorf("%s is a root", symbol)
		}
	}
}
