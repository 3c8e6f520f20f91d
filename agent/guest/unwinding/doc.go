// Package unwinding gives the kernel side unwind tables for native code that keeps no frame pointer.
//
//	t := unwinding.Start(unwinding.Config{Root: root, Pool: pool, Objects: objects, Log: log})
//	defer t.Close()
//
// A walk that comes to such code leaves a request in a map of the kernel side: its process, and two
// addresses. Look, which the drainer calls, finds requests, and one goroutine answers them. It reads
// the mappings of the process, makes the tables of the files that the addresses are in, and tells the
// kernel side which mappings have which tables. Walks from then on are whole, or come to the next file
// without a table, and ask again.
//
// A table belongs to the content of a file, so processes share it. What the kernel side knows of a
// process is only used while the process has the memory that was read: see proc.Layout. So code
// that is loaded later, an execve or a reused pid never gets a wrong table, but a request.
//
// Everything is bounded: requests, processes, mappings of each, tables and their memory, and the
// time that all of this takes. A table that no process has makes room for others, and is dropped
// after a while. What is refused is counted, by cause.
package unwinding
