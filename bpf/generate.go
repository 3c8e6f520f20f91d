//go:build ignore

// Command generate compiles the BPF programs and writes their Go types: go generate runs it at the
// root of the repository. Sources in the rooms of bpf name headers with their room
// ("walk/frames.bpf.h"), and what is made of them goes to bpf itself.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// An object is one BPF object and the types of C that Go needs of it.
type object struct {
	name   string // prefix of its Go types: NameObjects
	source string
	types  string
	// CPU is the version of the instruction set that clang may use; by default its own.
	cpu string
	// Test says that only tests on x86-64 load it.
	test bool
	// Global says that constants of its enums have no prefix of their own. One object of a package
	// may.
	global bool
}

// atomics is the first version with atomic operations that return what was there before.
const atomics = "v3"

var objects = []object{
	{
		name: "Profile", source: "bpf/sample/profile.bpf.c", cpu: atomics, global: true,
		types: "event_kind walk_end frame_kind sample_flags counter hotspot_flags event_header sample " +
			"process_event call_engine call named_call hotspot_process cpython_process cpython_flags code_heap " +
			"short_sample suffix_tags seen_method known_thread known_thread_key unwound_process unwind_mapping " +
			"unwind_block unwind_want rule_kind rule_saved",
	},
	{
		name: "KernelTick", source: "bpf/sample/kerneltick.bpf.c", cpu: atomics,
	},
	{
		name: "Context", source: "bpf/sample/context.bpf.c", cpu: atomics,
		types: "context_mode shared_stack chain_rate link_tags",
	},
	{
		name: "CodeMap", source: "bpf/event/codemap.bpf.c", cpu: atomics, global: true,
		types: "operand_kind code_load operand load_site",
	},
	{
		name: "Probe", source: "bpf/event/probe.bpf.c", cpu: atomics,
		types: "observation probe probe_count stranger hotspot_heap counted_class class_count name_site pause_cause " +
			"ended_thread lock_key lock_wait wait_begin " +
			"observed seen_flags heap_place heap_flags value_operand value_form probed_value probed_values " +
			"virtual_thread unmounted_wait unmounted_kind virtual_count",
	},
	{
		name: "Fault", source: "bpf/event/fault.bpf.c", cpu: atomics,
	},
	{
		name: "OffCPU", source: "bpf/wait/offcpu.bpf.c", cpu: atomics,
		types: "off_cpu_thread wait_values off_cpu_state waker_values waker_flags",
	},
	{
		name: "RunTime", source: "bpf/sample/runtime.bpf.c", cpu: atomics, types: "thread_run thread_end",
	},
	{
		name: "Waiting", source: "bpf/wait/waiting.bpf.c", cpu: atomics,
	},
	{
		name: "MonitorEnter", source: "bpf/lock/monitorenter.bpf.c", cpu: atomics,
		types: "watch enter_watch enter_site enter_hit",
	},
	{
		name: "Listener", source: "bpf/call/listener.bpf.c", cpu: atomics,
		types: "watch listener_hit listener_watch",
	},
	{
		name: "Timing", source: "bpf/call/timing/timing.bpf.c", cpu: atomics,
		types: "watch timing_watch timed timed_thread timing_mode timing_loss operand",
	},
	{
		name: "Invocation", source: "bpf/call/timing/invocation.bpf.c", cpu: atomics,
		types: "followed invocation invocation_counts open_invocation invocation_end",
	},
	{
		name: "Branch", source: "bpf/call/branch.bpf.c",
		types: "branch_cost branch_rate",
	},
	{
		name: "Exact", source: "bpf/call/exact/exact.bpf.c", cpu: atomics,
		types: "exact_counter new_method exact_node exact_edge exact_method exact_thread exact_objects_key " +
			"exact_objects",
	},
	{
		name: "Usdt", source: "bpf/call/usdt.bpf.c", cpu: atomics,
		types: "usdt_mode usdt_dialect usdt_action usdt_probe usdt_guest usdt_notice usdt_rate usdt_site " +
			"usdt_edge operand",
	},
	{
		name: "Burst", source: "bpf/call/burst.bpf.c", cpu: atomics,
		types: "burst_probe vmprof_page vmprof_slot burst_guest burst_rate burst_cost operand burst_site",
	},
	{
		name: "WalkTest", source: "bpf/walk/walk_test.bpf.c", cpu: atomics, test: true,
		types: "request blob_kind",
	},
	{
		name: "ContextTest", source: "bpf/sample/context_test.bpf.c", cpu: atomics, test: true,
	},
	{
		name: "ThinTest", source: "bpf/sample/thin_test.bpf.c", cpu: atomics, test: true,
		types: "thin_request",
	},
	{
		name: "UsdtTest", source: "bpf/call/usdt_test.bpf.c", cpu: atomics, test: true,
		types: "usdt_request usdt_guest usdt_rate usdt_notice usdt_probe usdt_edge usdt_site operand",
	},
	{
		name: "BurstTest", source: "bpf/call/burst_test.bpf.c", cpu: atomics, test: true,
		types: "burst_request burst_guest burst_rate burst_cost vmprof_slot vmprof_page",
	},
	{
		name: "ListenerTest", source: "bpf/call/listener_test.bpf.c", cpu: atomics, test: true,
		types: "listener_request watch listener_hit listener_watch",
	},
	{
		name: "ExactTest", source: "bpf/call/exact/exact_test.bpf.c", cpu: atomics, test: true,
		types: "registers",
	},
	{
		name: "BranchTest", source: "bpf/call/branch_test.bpf.c", test: true,
		types: "branch_request branch_cost branch_rate",
	},
	{
		name: "InvocationTest", source: "bpf/call/timing/invocation_test.bpf.c", cpu: atomics, test: true,
		types: "invocation_request followed open_invocation invocation_counts",
	},
	{
		name: "Replay", source: "tests/exactcalls/replay.bpf.c", cpu: atomics,
		types: "replay_call",
	},
}

func main() {
	for _, o := range objects {
		if err := o.generate(); err != nil {
			fmt.Fprintf(os.Stderr, "generate %s: %v\n", o.source, err)
			os.Exit(1)
		}
	}
}

// generate compiles an object with bpf2go.
func (o object) generate() error {
	dir, _, inRoom := strings.Cut(o.source, "/")
	if dir != "bpf" || !inRoom { // an object of a package of its own stays with its source
		dir = filepath.Dir(o.source)
	}
	cflags := "-O2 -g -Wall -Werror -Ibpf -I/usr/include/x86_64-linux-gnu"
	args := []string{"tool", "bpf2go", "-output-dir", dir, "-go-package", filepath.Base(dir), "-tags", "linux",
		"-cc", "clang-19", "-strip", "llvm-strip-19", "-cflags", cflags}
	if o.test {
		args = append(args, "-target", "amd64", "-output-stem", strings.ToLower(o.name), "-output-suffix", "_test")
	} else {
		args = append(args, "-target", "amd64,arm64")
	}
	if !o.global {
		args = append(args, "-no-global-types")
	}
	for _, t := range strings.Fields(o.types) {
		args = append(args, "-type", t)
	}
	args = append(args, o.name, o.source)
	if o.cpu != "" {
		args = append(args, "--", "-mcpu="+o.cpu)
	}
	cmd := exec.Command("go", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
