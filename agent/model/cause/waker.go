package cause

import (
	"iter"
	"strings"
)

// Wakers that are no thread of a program. Others are Disk.
const (
	Timer        = "timer"
	Network      = "network"
	Interrupt    = "interrupt"     // interrupt of none of these
	KernelThread = "kernel thread" // for none of these
)

// wakeFunctions are those of the kernel that wake a thread, and lists of them.
var wakeFunctions = setOf("__traceiter_sched_waking try_to_wake_up wake_up_process wake_up_state wake_up_q " +
	"default_wake_function autoremove_wake_function " +
	"woken_wake_function __wake_up_common __wake_up_common_lock __wake_up __wake_up_sync_key swake_up_locked " +
	"swake_up_one complete")

// maxWaking bounds how far in a stack they are looked for: programs that follow the kernel are
// further in.
const maxWaking = 16

// wakerRules are of functions of the kernel in interrupts and its own threads; the innermost frame
// that has a rule counts.
var wakerRules = compile([]rule{
	{"hrtimer_wakeup process_timeout call_timer_fn run_timer_softirq __run_timers hrtimer_interrupt " +
		"__hrtimer_run_queues hrtimer_run_softirq posix_timer_fn it_real_fn " +
		"timerfd_tmrproc timerfd_alarmproc alarmtimer_fired alarm_handle_timer", Timer},
	{"net_rx_action net_tx_action process_backlog __napi_poll napi_poll napi_threaded_poll __netif_receive_skb " +
		"netif_receive_skb_internal", Network},
	{"blk_mq_end_request blk_mq_end_request_batch blk_complete_reqs blk_update_request blk_done_softirq " +
		"blk_mq_complete_request bio_endio scsi_io_completion " +
		"folio_end_writeback end_page_writeback folio_end_read iomap_dio_bio_end_io", Disk},
})

// interruptFunctions are where the kernel handles interrupts; so do those with interruptPrefixes.
var (
	interruptFunctions = setOf("common_interrupt asm_common_interrupt __common_interrupt asm_call_irq_on_stack " +
		"handle_irq_event __handle_irq_event_percpu handle_edge_irq " +
		"handle_fasteoi_irq generic_handle_domain_irq handle_percpu_devid_irq hrtimer_interrupt irq_exit " +
		"irq_exit_rcu __irq_exit_rcu gic_handle_irq do_interrupt_handler " +
		"el0_interrupt el1_interrupt xen_evtchn_do_upcall xen_pv_evtchn_do_upcall irq_work_run " +
		"generic_smp_call_function_single_interrupt")
	interruptPrefixes = [...]string{"sysvec_", "asm_sysvec_", "__sysvec_", "instr_sysvec_", "fred_sysvec_",
		"fred_extint", "el1h_64_irq", "el0t_64_irq", "exc_nmi", "asm_exc_nmi"}
)

// softFunctions are where the kernel handles what interrupts have left to do: at their end, in a
// thread of its own, or when a thread has given it more, as senders do.
var (
	softFunctions  = setOf("handle_softirqs __do_softirq")
	givenFunctions = setOf("__local_bh_enable_ip do_softirq")
)

// sentHere is where the kernel hands on what threads of the same machine send each other.
const sentHere = "process_backlog"

func setOf(names string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		set[name] = true
	}
	return set
}

// A KernelFrame is what a function of the kernel says of who wakes a thread.
type KernelFrame struct {
	wakes, interrupt, soft, given, sent bool
	by                                  string // what the kernel is at, "" if there is no rule
}

// KernelFrameOf looks at a function of the kernel.
func KernelFrameOf(function string) KernelFrame {
	function = plain(function)
	f := KernelFrame{
		wakes: wakeFunctions[function], interrupt: interruptFunctions[function], soft: softFunctions[function],
		given: givenFunctions[function],
		sent:  function == sentHere, by: wakerRules.lookup(function),
	}
	for _, prefix := range interruptPrefixes {
		f.interrupt = f.interrupt || strings.HasPrefix(function, prefix)
	}
	return f
}

// Waker returns who woke a thread, by the kernel's frames, innermost first: "" for the thread that
// they are of, or else what the kernel was at. Inner is how many of the innermost frames are the
// waking itself. It is not ok if that cannot be told. inKernel says that the frames are of a thread
// of the kernel, or of none.
func Waker(inKernel bool, frames iter.Seq[KernelFrame]) (by string, inner int, ok bool) {
	soft, sent, done := false, false, false // done: past the waking itself
	i := 0
	for f := range frames {
		i++
		if f.wakes && !done {
			inner = i
			continue
		}
		if inner == 0 {
			if i >= maxWaking {
				break
			}
			continue
		}
		done = true
		if by == "" {
			by = f.by
		}
		switch {
		case f.interrupt:
			return orInterrupt(by), inner, true
		case f.soft:
			soft = true
		case f.given && soft && sent && !inKernel:
			return "", inner, true
		}
		sent = sent || f.sent
	}
	switch {
	case inner == 0: // the kernel's functions have no names
		return "", 0, false
	case soft:
		return orInterrupt(by), inner, true
	case inKernel && by == "":
		return KernelThread, inner, true
	case inKernel:
		return by, inner, true
	}
	return "", inner, true
}

func orInterrupt(by string) string {
	if by == "" {
		return Interrupt
	}
	return by
}
