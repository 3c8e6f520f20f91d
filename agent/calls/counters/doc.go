// Package counters makes the call graph of a HotSpot JVM from the counters that its own code keeps. The interpreter and C1's
// code of level 3 count every call, by bytecode index, inlined ones too; C2's code counts nothing. So the JVM must have been
// started with Flags. The difference of two readings is the calls between them.
//
//	err := counters.Check(vm)             // the flags, or what to do about them
//	begin, err := counters.Read(vm, epoch)
//	...
//	end, err := counters.Read(vm, epoch)
//	d := end.Since(begin)
//	book, err := book.Learn(vm, epoch, d) // what calls lead to, and names, while they are there
//	graph := book.Graph(d, symbol)
//
// What is not exact:
//   - Threads count without locks: of two that count the same call at the same moment, one may be lost.
//   - A reading takes time (Reading.Took), while the program goes on: calls of that time are in or out.
//   - A method's calls are counted from its first few hundred invocations on (Losses.Uncounted).
//   - Calls that native methods, reflection and the VM make have no counter: their callees are entered from nowhere
//     (Book.Elsewhere). So are calls of receivers beyond -XX:TypeProfileWidth classes, which have a count, but no callee.
//   - Classes that are unloaded take their counters with them.
package counters
