// Package fold joins samples with their processes and calling contexts, and holds the contents of
// open windows: the trees of each Thread, an EventSet and a CallSet of each Process. Frames have no
// names here before a window closes.
//
// If not all stacks are walked, a Joiner completes partial walks at once, or learns contexts from
// walks. When a window closes, a Placing finds the contexts of samples that have only a link.
//
// Only a Coverage and an Owner have locks of their own. The rest belongs to a State, which its
// Owner lends to one function at a time.
//
//	o := fold.NewOwner(fold.NewState(options), failed)
//	w := fold.NewWindow(nil)
//	o.Do(func(s *fold.State) { s.Open(w) })
//	o.Do(func(s *fold.State) { s.Take(s.Process(sample.Header), sample) }) // for each sample
//	o.Do(func(s *fold.State) { processes = s.Close(w) })
package fold
