// Package probe is the wing of where and how the agent hooks into kernel and programs, and of how
// records come back.
//
//   - probesite finds the instructions of a library at which a probe is cheap and safe; hitcost, in
//     it, measures what a hit costs here
//   - valueprobe has the syntax of probes that users write, and of the values that they read
//   - attach opens perf events, uprobes and USDT probes
//   - breakpoint sets hardware breakpoints in threads, where that is safe
//   - library does so once for each file that processes map, and while any of them does
//   - watch sets breakpoints on threads for milliseconds
//   - ring reads the records of all ring buffers in the order of their times
//
// Its rooms know neither a VM nor a profile: watch only reads code through vmruntime.Memory. They
// import only the wing host.
package probe
