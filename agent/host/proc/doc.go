// Package proc reads what the kernel shows of target processes, their memory and their files.
//
//	root := proc.Root("")                      // /proc
//	pool := proc.NewPool(proc.PoolOptions{})   // one for the whole agent
//	id, err := root.Identify(pid)
//	mem, err := proc.OpenMemory(root, id, pool)
//	maps, err := proc.Call(ctx, pool, pid, func() (proc.Maps, error) { return root.Maps(pid, proc.Executable) })
//
// A target is hostile. It chooses the names and paths found here, the contents of its files, and
// how long a read of it takes: a page or a file served by FUSE or userfaultfd may not answer for
// ever, and no signal ends such a read. Three rules follow.
//
//   - Every read has a bound, stated at its constant. Passing it is ErrTooLarge, never a larger allocation.
//   - Whatever a target can delay (its memory, its files, its maps) is read through a Pool, which abandons a call
//     after a deadline and leaves the target alone for a while. Memory does so by itself; callers wrap the others.
//     /proc/PID/cmdline and environ are target memory too: call Arguments, Environment and Launch through a Pool.
//   - A process is its Identity, not its pid: a pid may mean somebody else between two system calls.
//
// The pids are those of the agent's own pid namespace, which must be the host's for the agent to
// see all processes.
package proc
