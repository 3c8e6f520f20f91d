// Package top is what vmprof-agent top shows: a Model that takes one window after the other and keeps some minutes of them, and a View
// that writes what is to be seen of it, as lines of text. Neither knows the terminal.
//
//	m := top.NewModel(runtime.NumCPU())
//	m.Add(window)
//	for _, line := range view.Lines(m, 80, 24) {
//		draw(line)
//	}
package top
