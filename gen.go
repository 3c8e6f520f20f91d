// Package vmprofagent is the root of vmprof-agent; it holds no code, only the order to generate some.
//
// The BPF programs in bpf/ are compiled for every architecture that the agent builds for, and committed: building
// the agent needs no C compiler. Regenerating needs clang 19 and libbpf's headers (Debian: clang-19 libbpf-dev).
package vmprofagent

//go:generate -command bpf go tool bpf2go -output-dir bpf -go-package bpf -target amd64,arm64 -tags linux -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu"
//go:generate bpf -type event_kind -type walk_end -type frame_kind -type sample_flags -type counter -type hotspot_flags -type event_header -type sample -type process_event -type call_engine -type call -type named_call -type hotspot_process -type code_heap -type context_mode -type shared_stack -type chain_rate -type link_tags -type seen_method Profile bpf/profile.bpf.c -- -mcpu=v3
//go:generate bpf -type operand_kind -type code_load -type operand -type load_site CodeMap bpf/codemap.bpf.c -- -mcpu=v3
//go:generate bpf -no-global-types -type observation -type probe -type probe_count -type hotspot_heap -type counted_class -type class_count -type name_site -type pause_cause -type observed -type seen_flags -type heap_place -type heap_flags -type value_operand -type value_form -type probed_value -type probed_values Probe bpf/probe.bpf.c -- -mcpu=v3
//go:generate bpf -no-global-types Fault bpf/fault.bpf.c -- -mcpu=v3
//go:generate bpf -no-global-types -type enter_window -type enter_site -type enter_hit Enter bpf/enter.bpf.c -- -mcpu=v3
//go:generate bpf -no-global-types -type listener_hit -type listener_window Listener bpf/listener.bpf.c -- -mcpu=v3
//go:generate bpf -no-global-types -type branch_cost -type branch_rate Branch bpf/branch.bpf.c
//go:generate bpf -no-global-types -type exact_counter -type new_method -type exact_node -type exact_edge -type exact_method -type exact_thread Exact bpf/exact.bpf.c -- -mcpu=v3
//go:generate bpf -no-global-types -type php_mode -type php_action -type php_probe -type php_guest -type php_notice -type php_rate -type php_site -type php_edge -type operand Php bpf/php.bpf.c
//go:generate bpf -no-global-types -type burst_probe -type vmprof_page -type vmprof_slot -type burst_guest -type burst_rate -type burst_cost -type operand -type burst_site Burst bpf/burst.bpf.c
//go:generate go tool bpf2go -output-dir bpf -go-package bpf -target amd64 -tags linux -output-stem walktest -output-suffix _test -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type request -type blob_kind WalkTest bpf/walk_test.bpf.c -- -mcpu=v3
//go:generate go tool bpf2go -output-dir bpf -go-package bpf -target amd64 -tags linux -output-stem phptest -output-suffix _test -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type php_request -type php_guest -type php_rate -type php_notice -type php_probe -type php_edge -type php_site -type operand PhpTest bpf/php_test.bpf.c
//go:generate go tool bpf2go -output-dir bpf -go-package bpf -target amd64 -tags linux -output-stem bursttest -output-suffix _test -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type burst_request -type burst_guest -type burst_rate -type burst_cost -type vmprof_slot -type vmprof_page BurstTest bpf/burst_test.bpf.c
//go:generate go tool bpf2go -output-dir bpf -go-package bpf -target amd64 -tags linux -output-stem listenertest -output-suffix _test -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type listener_request -type listener_hit -type listener_window ListenerTest bpf/listener_test.bpf.c -- -mcpu=v3
//go:generate go tool bpf2go -output-dir bpf -go-package bpf -target amd64 -tags linux -output-stem exacttest -output-suffix _test -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type registers ExactTest bpf/exact_test.bpf.c -- -mcpu=v3
//go:generate go tool bpf2go -output-dir bpf -go-package bpf -target amd64 -tags linux -output-stem branchtest -output-suffix _test -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type branch_request -type branch_cost -type branch_rate BranchTest bpf/branch_test.bpf.c
//go:generate go tool bpf2go -output-dir tests/exactcalls -go-package exactcalls -target amd64,arm64 -tags linux -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu -Ibpf" -type replay_call Replay tests/exactcalls/replay.bpf.c -- -mcpu=v3
