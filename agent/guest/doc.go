// Package guest knows one process and its VM: who it is, how to attach to its VM, what its method
// maps say, and what a frame of it is called. A Resolver does that for all processes, on a few
// workers. Each process is with one worker at a time, so what belongs to its VM needs no lock. The
// drainer only leaves work with a Process and calls Submit.
//
// Everything read from a process is hostile. Reads run in a pool with deadlines; a panic over one
// process costs that process its names for a while, and others nothing.
//
// Its rooms: runtimes is the table of VMs that the agent knows; bridge, in it, says what the kernel
// side needs of a VM, and hotspotbpf and cpythonbpf give it that of HotSpot and of CPython. They
// import the wings host and probe.
package guest
