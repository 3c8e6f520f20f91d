// Package counters makes the call graph of a HotSpot JVM from the counters that its own code keeps.
// The interpreter and C1's code of level 3 count every call by bytecode index, inlined ones too;
// C2's code counts nothing. So the JVM must be started with Flags. The difference of two readings
// is the calls between them.
//
//	err := counters.Check(vm)             // the flags, or what to do about them
//	begin, err := counters.Read(vm, epoch)
//	...
//	end, err := counters.Read(vm, epoch)
//	d := end.Since(begin)
//	book, err := (*counters.Book)(nil).Learn(vm, epoch(), d) // callees and names, while they exist
//	graph := book.Graph(d, limit, named, marker)
//
// Limits of exactness:
//   - Threads count without locks: if two count the same call at the same moment, one count may be lost.
//   - A reading takes time (Reading.Took) while the program goes on: calls of that time may or may not be included.
//   - A method's calls are counted only after its first few hundred invocations (Losses.Uncounted).
//   - Calls by native methods, reflection and the VM have no counter: their callees appear without
//     a caller (Book.Elsewhere). So do calls with receivers beyond -XX:TypeProfileWidth classes,
//     which have a count but no callee.
//   - Unloaded classes take their counters with them.
package counters
