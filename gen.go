// Package vmprofagent is the root of vmprof-agent; it holds no code, only the order to generate
// some.
//
// The BPF programs in bpf/ are compiled for every architecture that the agent builds for, and
// committed: building the agent needs no C compiler. Regenerating needs clang 19 and libbpf's
// headers (Debian: clang-19 libbpf-dev).
package vmprofagent

//go:generate go run bpf/generate.go
