// Package vmprofagent is the root of vmprof-agent; it holds no code, only the order to generate some.
//
// The BPF programs in bpf/ are compiled for every architecture that the agent builds for, and committed: building
// the agent needs no C compiler. Regenerating needs clang 19 and libbpf's headers (Debian: clang-19 libbpf-dev).
package vmprofagent

//go:generate go tool bpf2go -output-dir bpf -go-package bpf -target amd64,arm64 -tags linux -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type event_kind -type walk_end -type frame_kind -type sample_flags -type counter -type hotspot_flags -type event_header -type sample -type process_event -type hotspot_process -type code_heap Profile bpf/profile.bpf.c
//go:generate go tool bpf2go -output-dir bpf -go-package bpf -target amd64,arm64 -tags linux -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type operand_kind -type code_load -type operand -type load_site CodeMap bpf/codemap.bpf.c
//go:generate go tool bpf2go -output-dir bpf -go-package bpf -target amd64 -tags linux -output-stem walktest -output-suffix _test -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type request -type blob_kind WalkTest bpf/walk_test.bpf.c
